"""Errors of configs: the sentences that report them, and how values stand in them."""

import dataclasses
import difflib
import math
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from flax.core import FrozenDict
from jax.core import Tracer

T = TypeVar("T")


class ConfigError(ValueError):
    """A config that cannot be trained: says the field, value, constraint, remedy.

    A sentence that quotes something long keeps its beginning and its end.
    """

    def __str__(self) -> str:
        text = super().__str__()
        return text if len(text) <= 2_000 else f"{text[:1_200]} [...] {text[-600:]}"


class UnknownFieldError(ConfigError):
    """A name that is no field of what it was given to."""


def check_known(name: str, known: list[str], owner: str) -> None:
    """Refuse a name that is not among the known ones.

    Args:
        name: Name that was given.
        known: Names that there are.
        owner: Owner of these names, for the message.

    Raises:
        UnknownFieldError: with a guess at what was meant.
    """
    if name in known:
        return
    guess = near(str(name), known)
    hint = f" Did you mean {guess!r}?" if guess else ""
    if str(name).lower() in ("seed", "seeds", "num_seeds", "n_seeds"):
        hint = " Seeds belong to a call: purerl.run(config, seeds=4), or train(key)."
    raise UnknownFieldError(
        f"{owner} has no field {name!r}.{hint} Fields: {', '.join(sorted(known))}."
    )


def check_mapping(name: str, value: Any, example: str) -> None:
    """Refuse what does not map names of fields to values; None does.

    Args:
        name: Name of the argument, for the message.
        value: Value that was given.
        example: A value that can be, as it is written in Python.

    Raises:
        ConfigError: with what was given, and the example.
    """
    if value is None:
        return
    got = shown(value)
    if isinstance(value, Mapping):
        odd = [key for key in value if not isinstance(key, str)]
        if not odd:
            return
        got = f"the name {odd[0]!r}"
    raise ConfigError(
        f"{name} must map names of fields to values, got {got}; for example {example}."
    )


def check_apart(names: Iterable[str], words: str) -> None:
    """Refuse names of which one lies inside another: what is set would depend on order.

    Args:
        names: Names, dotted where they reach inside a field.
        words: Who names them and the verb, such as `the axes name`.

    Raises:
        ConfigError: naming both.
    """
    known = list(names)
    for name in known:
        inside = [other for other in known if other.startswith(f"{name}.")]
        if inside:
            raise ConfigError(
                f"{words} {name} and {inside[0]}, which is inside it; leave one of "
                "them out."
            )


def nearest_divisors(total: int, number: int) -> str:
    """Name the divisors of a number below and above another, such as `4 or 6`.

    Args:
        total: Number that is to be divided.
        number: Number that does not divide it.
    """
    small = [n for n in range(1, math.isqrt(total) + 1) if total % n == 0]
    divisors = sorted({*small, *(total // n for n in small)})
    below = [n for n in divisors if n < number][-1:]
    above = [n for n in divisors if n > number][:1]
    return " or ".join(map(str, below + above))


def shortest(number: Any) -> float:
    """Return a number as the decimal with the fewest digits that is rounded to it.

    A float32 of 0.9 is 0.8999999761581421 as a float of Python, and nobody wrote that.

    Args:
        number: Single number `[]` of NumPy, JAX or Python, which is not traced.
    """
    return float(str(np.asarray(number)[()]))


def shown(value: Any, most: int = 200) -> str:
    """Write a value for a sentence: as Python does, or its beginning, or its class.

    Fractions of NumPy and JAX are written as Python's are, frozen mappings as others.
    """
    if isinstance(value, Tracer):
        return f"a traced value of shape {value.shape}"
    is_array = isinstance(value, np.generic | np.ndarray | jax.Array)
    if is_array and value.shape == () and jnp.issubdtype(value.dtype, jnp.floating):
        value = shortest(value)
    text = repr(value.unfreeze() if isinstance(value, FrozenDict) else value)
    if len(text) <= most:
        return text
    if isinstance(value, str | bytes | tuple | list | set | Mapping):
        return f"{text[: most - 20]}... ({len(value):,} in all)"
    return f"an instance of {type(value).__name__}"


def how_to_read(value: Any) -> str:
    """Say how text that stands where a part should is read; nothing of other values.

    Args:
        value: Value that is no part, such as `"Adam(b1=0.9)"`.
    """
    if not isinstance(value, str):
        return ""
    is_file = value.strip().endswith((".npz", ".yaml"))
    call = "purerl.load_part" if is_file else "purerl.serialise.parse_part"
    return f" Text is for files and command lines: {call}({value!r}) reads it."


def check_idle(config: Any, fields: tuple[str, ...], switch: str, on: str) -> None:
    """Refuse numbers of an option that is left off, so that nothing reads them.

    Numbers of one of several kinds, such as of `values` or `method`, are no such case:
    who compares the kinds gives the numbers of all in one config. Nor are those that a
    preset has beside its option, which can be left off again.

    Args:
        config: Config of the agent.
        fields: Names of the numbers.
        switch: Field that turns the option on, which it has not.
        on: Value of the switch that turns the option on.

    Raises:
        ConfigError: one of them is given: it is not what it is by default.
    """
    defaults: dict[str, Any] = {
        field.name: field.default for field in dataclasses.fields(config)
    }
    for name in fields:
        value = getattr(config, name)
        if not isinstance(value, Tracer) and not np.array_equal(value, defaults[name]):
            raise ConfigError(
                f"{name}={shown(value)} has no effect with {switch}="
                f"{getattr(config, switch)!r}; set {on}, or leave this out."
            )


# Names by Stable-Baselines3, CleanRL, PureJaxRL, Brax, Spinning Up and RLlib, for a
# field or algorithm of ours. Where a name stands for several, it is the first that
# there is.
_ENTROPY = "ent_coef ent_coeff entropy_cost"
_RATIO = "clip_range clip_epsilon clip_coef clip_ratio clip_param clipping_epsilon"
_LAMBDA = "lam lambda lambda_ gae_lam gae_lambda"
_BATCH = "batch_size minibatch_size"
PEERS = {
    "actor_learning_rate": "actor_lr pi_lr policy_lr",
    "critic_learning_rate": "critic_lr q_lr vf_lr",
    "learning_rate": "lr step_size actor_lr pi_lr policy_lr",
    "anneal_learning_rate": "anneal_lr",
    "clip_eps": f"{_RATIO} eps_clip",
    "policy_loss.clip_eps": f"{_RATIO} eps_clip clip_eps",
    "entropy_coef": _ENTROPY,
    "temperature_init": _ENTROPY,
    "value_coef": "vf_coef vf_coeff vf_loss_coeff value_loss_coef",
    "normalize_advantages": "norm_adv",
    "max_grad_norm": "clip_grad_norm grad_clip",
    "gamma": "discount discounting discount_factor",
    "gae_lambda": _LAMBDA,
    "trace_decay": _LAMBDA,
    "total_timesteps": "num_timesteps total_steps num_env_steps",
    "num_envs": "n_envs",
    "n_step": "n_steps",
    "num_steps": "n_steps rollout_length unroll_length",
    "num_epochs": "n_epochs update_epochs ppo_epochs",
    "batch_size": _BATCH,
    "num_minibatches": "n_minibatches",
    "num_minibatches = num_envs * num_steps / batch_size": _BATCH,
    "tau": "soft_tau target_tau",
    "tau = 1 - polyak": "polyak",
    "target_update_interval": "target_network_frequency target_update_freq",
    "buffer_size": "replay_size buffer_capacity",
    "learning_starts": "start_steps warmup_steps",
    "epsilon_start": "exploration_initial_eps start_e",
    "epsilon_end": "exploration_final_eps end_e",
    "epsilon_fraction": "exploration_fraction",
    "hidden_sizes": "net_arch hidden_dims",
    "env": "env_id env_name",
    "ppo with num_epochs=1 and num_minibatches=1": "a2c",
    "recurrent_ppo": "ppo_rnn ppo_lstm rec_ppo",
    "recurrent_dqn": "r2d2 drqn",
    "dqn with values=categorical": "c51",
    "dqn with values=quantile": "qrdqn qr_dqn",
    "dqn with values=implicit": "iqn",
    "sac with num_critics=10 and critic_subset=2": "redq",
    "sac with crossq=True": "crossq",
}


def ours_of(name: str, known: Collection[str]) -> str:
    """Return the first known field that another library's name stands for, or nothing.

    Args:
        name: The other library's name, in small letters.
        known: Names that there are.
    """
    meant = [ours for ours, theirs in PEERS.items() if name in theirs.split()]
    there = [ours for ours in meant if ours.split(" ")[0].split(".")[0] in known]
    return there[0] if there else ""


def near(name: str, known: Iterable[str]) -> str:
    """Return what was meant by a name that is not among the known ones, or nothing.

    A name of another library's is looked up, and any other compared by its letters.

    Args:
        name: Name that was given, in capitals too.
        known: Names that there are.
    """
    known, name = list(known), name.lower().replace("-", "_")
    if name in known:
        return name
    if any(name in theirs.split() for theirs in PEERS.values()):
        # Where there is none of ours, what is spelt like it is something else.
        return ours_of(name, known)
    return next(iter(difflib.get_close_matches(name, known, n=1)), "")


def tried(name: str, part: Any, words: str, call: Callable[[], T]) -> T:
    """Return what a part makes of shapes; refuse one that fails on them."""
    try:
        return call()
    except ConfigError:
        raise
    except Exception as error:
        raise ConfigError(
            f"{name} must {words}; {type(part).__name__} failed on them: {error}."
        ) from error
