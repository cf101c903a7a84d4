"""Names that other libraries give to fields get a guess at ours, or none."""

import dataclasses
import re

import jax
import pytest

import purerl
from purerl import serialise
from purerl.algorithms import ALGORITHMS, config_class
from purerl.cli import main
from purerl.config import UnknownFieldError
from purerl.config.errors import PEERS
from purerl.losses import ClipDrift
from tests.helpers import tiny_config

MINIBATCHES = "num_minibatches = num_envs * num_steps / batch_size"
MEANT = [
    ("ppo", "lr", "learning_rate"),
    ("ppo", "LR", "learning_rate"),
    ("ppo", "clip_range", "policy_loss.clip_eps"),
    ("ppo", "CLIP_EPS", "policy_loss.clip_eps"),
    ("ppo", "ent_coef", "entropy_coef"),
    ("ppo", "n_steps", "num_steps"),
    ("ppo", "UPDATE_EPOCHS", "num_epochs"),
    ("ppo", "NUM_ENVS", "num_envs"),
    ("ppo", "n-envs", "num_envs"),
    ("ppo", "GAE_LAMBDA", "gae_lambda"),
    ("ppo", "batch_size", MINIBATCHES),
    ("ppo", "tau", ""),
    ("ppo", "learning_rat", "learning_rate"),
    ("pqn", "gae_lambda", "trace_decay"),
    ("vpg", "clip_eps", ""),
    ("sac", "polyak", "tau = 1 - polyak"),
    ("sac", "ent_coef", "temperature_init"),
    ("sac", "pi_lr", "actor_learning_rate"),
    ("sac", "minibatch_size", "batch_size"),
    ("dqn", "n_steps", "n_step"),
    ("dqn", "exploration_fraction", "epsilon_fraction"),
]


def sentence(guess):
    """What follows the name, as a pattern."""
    return re.escape(f". Did you mean {guess!r}? Fields" if guess else ". Fields")


@pytest.mark.parametrize(("algorithm", "name", "guess"), MEANT)
def test_a_name_of_another_library_gets_a_guess(algorithm, name, guess):
    cls = config_class(algorithm)
    unknown = f"{cls.__name__} has no field '{name}'{sentence(guess)}"
    with pytest.raises(UnknownFieldError, match=unknown):
        cls(**{name: 1})
    with pytest.raises(UnknownFieldError, match=unknown):
        cls().replace(**{name: 1})
    with pytest.raises(UnknownFieldError, match=unknown):
        serialise.from_dict({"algorithm": algorithm, name: 1})


@pytest.mark.parametrize(
    ("name", "guess"),
    [("lr", "learning_rate"), ("policy_loss.clip_range", "clip_eps")],
)
def test_so_do_overrides_and_axes(name, guess, capsys):
    unknown = f"has no field '{name.split('.')[-1]}'{sentence(guess)}"
    with pytest.raises(UnknownFieldError, match=unknown):
        purerl.make_train(tiny_config())(jax.random.key(0), {name: 0.1})
    with pytest.raises(purerl.ConfigError, match=unknown):
        purerl.plan(tiny_config(), {name: [0.1, 0.2]})
    assert main(["sweep", "--dry-run", "--axis", f"{name}=0.1,0.2"]) == 2
    assert re.search(unknown, capsys.readouterr().err)


def test_every_guess_is_a_field_of_some_config():
    known = {f.name for f in dataclasses.fields(ClipDrift)}
    for entry in ALGORITHMS.values():
        known |= {field.name for field in dataclasses.fields(entry.config)}
    for ours, theirs in PEERS.items():
        assert ours.split(" ")[0].split(".")[0] in known, ours
        assert len(set(theirs.split())) == len(theirs.split()), ours
