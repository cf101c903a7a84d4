"""What `import purerl` does and does not do, each in a process of its own."""

import json
import subprocess
import sys

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
    "module", slow_but(["purerl", "envs", "purerl.cli.train"], "purerl", "envs")
)
def test_heavy_packages_load_when_used(module):
    code = f"import {module}, sys, json; print(json.dumps(list(sys.modules)))"
    loaded = {name.partition(".")[0] for name in json.loads(python(code))}
    assert not loaded & set(HEAVY)


def test_help_does_not_load_jax_twice_nor_anything_heavy():
    code = (
        "import sys; from purerl.cli import main; main(['--help']); "
        f"print(sorted(set({HEAVY!r}) & set(sys.modules)))"
    )
    out = python(code)
    assert out.startswith("usage: purerl COMMAND")
    assert out.endswith("[]")


def test_importing_changes_no_global_setting():
    code = (
        "import jax; before = dict(jax.config.values); import os; "
        "env = dict(os.environ); import purerl; "
        "print(before == dict(jax.config.values) and env == dict(os.environ))"
    )
    assert python(code) == "True"


def test_every_public_name_loads_and_no_other():
    names = [name for name in dir(purerl) if not name.startswith("_")]
    assert {"PPOConfig", "losses", "make_train", "sweep", "track"} <= set(names)
    assert all(getattr(purerl, name) is not None for name in names)
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
def test_another_package_called_envs_gets_a_sentence(tmp_path):
    (tmp_path / "envs.py").write_text("")
    code = (
        f"import sys; sys.path.insert(0, {str(tmp_path)!r}); "
        "import purerl; purerl.make_train"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert "purerl needs its own package `envs`" in done.stderr
