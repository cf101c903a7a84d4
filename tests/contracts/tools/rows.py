"""The rows of the grid: every algorithm as it is by default, and every preset.

A row is the structure that a user trains with in a run of a few updates. Nothing that
shapes a program is changed but how wide its layers are, and how large the batches of a
replay buffer, and, where an agent would learn very often, how many rounds or epochs an
update has and how long actions stay random after learning begins: environments, steps,
delays, n-step returns, annealing, normalisation and resets are those of the defaults or
of the preset.
"""

import dataclasses
from typing import Any, NamedTuple

from purerl import presets
from purerl.algorithms import ALGORITHMS
from purerl.config import TrainConfig
from purerl.optimisers import SGD
from purerl.randomisation import Uniform
from purerl.rules import ActorCriticRule, LPGRule
from purerl.schedules import Cosine, Linear
from purerl.train import bind
from tests import boxes, nets, terms

WIDTH = 8  # of every layer
BATCH = 32  # drawn from a replay buffer
# Of an update, at the most: rounding, in which two programs differ, is a percent after
# some hundred gradient steps of an agent that acts.
GRADIENT_STEPS = 25
# Equal parts of a run: segments, rounds of PBT, reports of a study. A power of two, so
# that rungs of successive halving with `eta=2` end with the run.
PIECES = 4

# Fields with the environment steps before which a run is another program.
WARM_UPS = ("learning_starts", "random_steps")

# Where a preset's environment takes minutes to compile, one with actions of the same
# kind stands for it. What the adapter does is tested in tests/envs. Not Pendulum: near
# its top rounding grows to a hundredth within an episode, and these presets fill the
# buffer for 10,000 steps before they learn.
STAND_INS = {"brax/": "Reacher-misc"}

TERMS = {"near": terms.Near(), "reward": terms.Reward()}

# Structures that neither a default nor a preset has: algorithm and changed fields.
VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    "ppo-continuous": ("ppo", {"env": "Pendulum-v1"}),
    "recurrent-ppo-continuous": ("recurrent_ppo", {"env": "Pendulum-v1"}),
    # Memories that are modules of sequences, one with a count; sequences and burn-in.
    "recurrent-ppo-lru": ("recurrent_ppo", {"memory": "lru"}),
    "recurrent-ppo-transformer": (
        "recurrent_ppo",
        {"memory": "transformer", "sequence_length": 32, "burn_in": 8},
    ),
    "vpg-continuous": ("vpg", {"env": "Pendulum-v1"}),
    "vpg-without-baseline": ("vpg", {"advantage": "rewards_to_go", "baseline": False}),
    "dqn-rainbow": ("dqn", {"prioritised": True, "dueling": True, "n_step": 3}),
    "dqn-quantile": ("dqn", {"values": "quantile", "double": False}),
    "dqn-implicit-noisy": ("dqn", {"values": "implicit", "noisy": True}),
    "dqn-munchausen": ("dqn", {"munchausen": True, "double": False}),
    "recurrent-dqn-prioritised": (
        "recurrent_dqn",
        {"prioritised": True, "value_rescaling": True, "dueling": True},
    ),
    "sac-discrete": ("sac", {"env": "CartPole-v1"}),
    # Sequences from replay.
    "sac-memory": ("sac", {"memory": "gru"}),
    "td3-memory": ("td3", {"memory": "lru", "num_envs": 2, "n_step": 3}),
    "td3-two-envs": ("td3", {"num_envs": 2}),
    # Distributions over atoms, and residual blocks.
    "sac-categorical": ("sac", {"num_atoms": 11, "value_min": -9.0, "value_max": 9.0}),
    "td3-simba": ("td3", {"torso": "simba", "normalize_observations": True}),
    "sac-two-envs": ("sac", {"num_envs": 2}),
    "mpo-two-envs": ("mpo", {"num_envs": 2}),
    # Observations of several parts, masks of valid actions, several actions at once.
    "ppo-dict-masked": (
        "ppo",
        {"env": boxes.MASKED, "env_kwargs": {"kind": "several"}},
    ),
    "ppo-mixed": ("ppo", {"env": boxes.MIXED}),
    "recurrent-ppo-dict": ("recurrent_ppo", {"env": boxes.PACKED}),
    "recurrent-ppo-privileged": (
        "recurrent_ppo",
        {"env": boxes.PACKED, "actor_keys": ("cart",), "critic_keys": ()},
    ),
    # Physics drawn for every episode, around which wrappers stand, and a memory and an
    # optimiser that are not the defaults.
    "recurrent-ppo-randomised": (
        "recurrent_ppo",
        {
            "env_params": {"length": Uniform(0.25, 1.0)},
            "env_wrappers": ("StickyActions(0.1)", "PreviousActionReward()"),
            "memory": nets.Leaky(4),
            "optimiser": SGD(momentum=0.9),
        },
    ),
    "dqn-masked": ("dqn", {"env": boxes.MASKED}),
    "sac-discrete-masked": ("sac", {"env": boxes.MASKED}),
    # A rule that is a network, which also sees how far the run is.
    "lpg-learned": (
        "lpg",
        {"rule": LPGRule.make(4, 3, 4, base=ActorCriticRule(), temporal=True)},
    ),
    # Tables that several environments move, and preferences of arms.
    "tabular-double-two-envs": ("tabular", {"method": "double_q", "num_envs": 2}),
    "tabular-sarsa": ("tabular", {"method": "sarsa"}),
    "bandit-gradient": ("bandit", {"method": "gradient"}),
    # A module, an optimiser and schedules of the user's own.
    "ppo-own-parts": (
        "ppo",
        {
            "torso": nets.Torso(),
            "optimiser": SGD(momentum=0.9),
            "learning_rate": Linear(0.1, 0.01),
            "entropy_coef": Cosine(0.02, 0.0),
        },
    ),
    # Terms of the user's own, one of which has a network.
    **{
        f"{name.replace('_', '-')}-own-terms": (name, {"extra_loss": TERMS})
        for name in ("ppo", "recurrent_ppo", "vpg", "dqn", "recurrent_dqn", "sac")
    },
}

# Fields of defaults that train for longer than the rows do before they learn anything:
# a run of a few updates is to replay levels.
SHORTENED: dict[str, dict[str, Any]] = {
    "plr": {
        "env_kwargs": {"size": (4, 4), "view": 3, "max_walls": 4},
        "env_params": {"max_steps_in_episode": 10},
        "num_envs": 4,
        "num_steps": 12,
        "num_minibatches": 2,
        "buffer_size": 8,
    }
}

# Presets that have no row, and why.
WITHOUT_ROW: dict[str, str] = {}


class Row(NamedTuple):
    """A structure that all tools are tried with.

    Attributes:
        name: of the algorithm, the variant or the preset.
        config: shortened.
        length: updates of one piece of its run.
    """

    name: str
    config: TrainConfig
    length: int


def defaults() -> dict[str, TrainConfig]:
    """Every registered algorithm's own config, and what its row needs besides."""
    return {
        name: entry.config(**SHORTENED.get(name, {}))
        for name, entry in ALGORITHMS.items()
    }


def variants() -> dict[str, TrainConfig]:
    """Defaults with a few fields changed."""
    return {
        name: ALGORITHMS[algorithm].config(**changes)
        for name, (algorithm, changes) in VARIANTS.items()
    }


def published() -> dict[str, TrainConfig]:
    """Every preset that has a row."""
    names = [name for name in presets.names() if name not in WITHOUT_ROW]
    return {name: presets.load(name) for name in names}


def make_row(name: str, config: TrainConfig) -> Row:
    """The config's structure in a run of seconds.

    It goes on for two updates at least after the one that ends the warm-up: what
    happens first in an update with a single gradient step is inside.
    """
    for prefix, env in STAND_INS.items():
        if str(config.env).startswith(prefix):
            config = config.replace(env=env, env_kwargs={})
    bound = bind(config).config
    if "rounds_per_update" in {field.name for field in dataclasses.fields(bound)}:
        most = max(1, GRADIENT_STEPS // bound.gradient_steps_per_round)
        rounds = min(bound.rounds_per_update, most)
        config = config.replace(rounds_per_update=rounds)
        bound = bind(config).config
    if hasattr(bound, "num_epochs"):
        most = max(2, GRADIENT_STEPS // bound.num_minibatches)
        if bound.num_epochs > most:
            config = config.replace(num_epochs=most)
    steps = bound.steps_per_update
    if getattr(config, "random_steps", 0) > getattr(config, "learning_starts", 0):
        most = config.learning_starts + 2 * steps
        config = config.replace(random_steps=min(config.random_steps, most))
    warm_up = max(getattr(config, name, 0) for name in WARM_UPS)
    length = -(-(warm_up // steps + 2) // PIECES)
    config = config.replace(
        total_timesteps=PIECES * length * steps, num_evaluations=1, **_narrow(config)
    )
    return Row(name, config, length)


def _narrow(config: TrainConfig) -> dict[str, Any]:
    """As many layers as the config has, of `WIDTH` units at most; smaller batches."""
    most = {"memory_size": WIDTH, "batch_size": BATCH}
    found: dict[str, Any] = {}
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        if field.name.endswith("_sizes"):
            found[field.name] = tuple(min(units, WIDTH) for units in value)
        elif field.name in most:
            found[field.name] = min(value, most[field.name])
    return found
