"""What `import purerl` does and does not do, each in a process of its own."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import purerl
from tests.helpers import slow_but

HEAVY = (
    *("gymnax", "brax", "distrax", "orbax", "matplotlib", "gymnasium", "mujoco"),
    *("mlflow", "sqlalchemy", "tensorboardX", "wandb"),
)


def python(code: str) -> str:
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return done.stdout.strip()


@pytest.mark.parametrize(
    "module", slow_but(["purerl.envs", "purerl.cli.train"], "purerl.envs")
)
def test_importing_loads_nothing_heavy_and_changes_no_global_setting(module):
    code = (
        "import jax, json, os, sys; before = dict(jax.config.values); "
        f"env = dict(os.environ); import purerl, {module}; "
        "same = before == dict(jax.config.values) and env == dict(os.environ); "
        "print(json.dumps([same, *sys.modules]))"
    )
    is_same, *names = json.loads(python(code))
    assert is_same and not {name.partition(".")[0] for name in names} & set(HEAVY)


def test_a_run_does_not_load_what_gymnax_makes_pictures_with():
    code = (
        "import jax, purerl, sys; "
        "config = purerl.VPGConfig(env='Pendulum-v1', num_evaluations=0); "
        "jax.eval_shape(purerl.make_train(config), jax.random.key(0)); "
        "print(sorted({'pandas', 'scipy.stats'} & set(sys.modules))); "
        "import seaborn, matplotlib.pyplot as plt; "
        "print(callable(seaborn.color_palette) and callable(plt.figure))"
    )
    assert python(code) == "[]\nTrue"


def test_help_does_not_load_jax_twice_nor_anything_heavy():
    code = (
        "import sys; from purerl.cli import main; main(['--help']); "
        f"print(sorted(set({HEAVY!r}) & set(sys.modules)))"
    )
    out = python(code)
    assert out.startswith("usage: purerl COMMAND")
    assert out.endswith("[]")


def test_every_public_name_loads_and_no_other():
    names = [name for name in dir(purerl) if not name.startswith("_")]
    assert {"PPOConfig", "losses", "make_train", "sweep", "track"} <= set(names)
    assert all(getattr(purerl, name) is not None for name in names)
    assert dir(purerl) == sorted(["__version__", *purerl.__all__])
    with pytest.raises(AttributeError, match="no attribute 'PPOconfig'"):
        _ = purerl.PPOconfig


@pytest.mark.slow
def test_use_all_cores_before_and_after_the_first_computation():
    code = (
        "import jax, purerl; n = purerl.use_all_cores(); "
        "print(n == len(jax.devices())); purerl.use_all_cores(); print('again')"
    )
    assert python(code) == "True\nagain"
    late = (
        "import jax, purerl; jax.config.update('jax_num_cpu_devices', 5); "
        "jax.numpy.ones(3) + 1\n"
        "try:\n    purerl.use_all_cores()\n"
        "except purerl.ConfigError as e:\n    print(e)"
    )
    assert "must be called before the first JAX computation" in python(late)


@pytest.mark.slow
def test_a_project_with_its_own_envs_trains_with_an_installed_wheel(tmp_path):
    root = Path(__file__).parents[2]
    source, installed, project = (tmp_path / n for n in ("source", "site", "project"))
    for name in ("purerl", "envs"):
        shutil.copytree(root / name, source / name, symlinks=True)
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(root / name, source)
    pip = [sys.executable, "-m", "pip", "-q"]
    subprocess.run([*pip, "wheel", "--no-deps", "-w", tmp_path, source], check=True)
    (wheel,) = tmp_path.glob("*.whl")
    command = [*pip, "install", "--no-deps", "--target", installed, wheel]
    subprocess.run(command, check=True)
    assert not (installed / "envs").exists()  # Nothing of ours beside purerl.

    (project / "envs").mkdir(parents=True)
    (project / "envs" / "__init__.py").write_text("from .pole import Pole\n")
    (project / "envs" / "pole.py").write_text(
        "from purerl import envs\nclass Pole(envs.CartPole): pass\n"
    )
    code = (
        "import envs, jax, purerl, purerl.envs as theirs\n"
        "print(purerl.__file__)\n"
        "config = purerl.PPOConfig(env=envs.Pole(), total_timesteps=2048)\n"
        "result = jax.jit(purerl.make_train(config))(jax.random.key(0))\n"
        "print(int(result.metrics['episodes'].sum()) > 0, theirs is not envs)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=project,
        env={**os.environ, "PYTHONPATH": str(installed)},
        capture_output=True,
        text=True,
    )
    assert done.stdout.split() == [
        str(installed / "purerl" / "__init__.py"),
        "True",
        "True",
    ], done.stderr
