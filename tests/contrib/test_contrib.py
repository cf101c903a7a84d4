"""What `purerl.contrib` holds is found by name, and costs nothing before."""

import subprocess
import sys

import pytest
from flax import struct

import purerl
from purerl import envs, losses, optimisers, rules
from purerl.algorithms import ALGORITHMS
from purerl.config import ConfigError

CODE = """
import sys, purerl
purerl.make_train(purerl.PPOConfig())
purerl.serialise.to_dict(purerl.PPOConfig())
print([name for name in sys.modules if name.startswith("purerl.contrib")])
"""


def test_a_run_of_ppo_imports_nothing_of_it():
    done = subprocess.run(
        [sys.executable, "-c", CODE], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize(
    ("package", "name"),
    [
        (losses, "FormulaDrift"),
        (optimisers, "OpenOptimiser"),
        (rules, "CMPORule"),
        (rules, "DiscoRule"),
        (envs, "Channel"),
        (envs, "CheapTalk"),
        (envs, "KArmedBandit"),
    ],
)
def test_a_package_gives_its_names_on_first_use(package, name):
    found = getattr(package, name)
    assert found.__name__ == name and found.__module__.startswith("purerl.contrib.")
    with pytest.raises(AttributeError, match=f"'{package.__name__}' has no attribute"):
        _ = package.Nothing


def test_registries_know_it_by_name():
    assert ALGORITHMS["disco"].config is purerl.DiscoConfig
    assert (
        purerl.serialise.parse_part("FormulaDrift()", "loss")
        == losses.FormulaDrift.make()
    )
    assert envs.make("Chicken-v0").name == "Chicken-v0"


def test_its_names_are_taken():
    @struct.dataclass
    class Other(losses.ClipDrift):
        pass

    with pytest.raises(ConfigError, match=r"FormulaDrift.* registered under that name"):
        losses.register("FormulaDrift", Other)
