"""The algorithms by name. Adding one is adding a row."""

from collections.abc import Callable
from typing import Any, NamedTuple

from purerl.algorithms import (
    checks,
    dqn,
    lpg,
    mpo,
    outer,
    plr,
    ppo,
    pqn,
    recurrent_dqn,
    sac,
    tabular,
    td3,
    vpg,
)
from purerl.algorithms.outer import Outer
from purerl.config import ConfigError, TrainConfig
from purerl.envs.base import Environment
from purerl.errors import near
from purerl.registry import ON_COMMAND_LINE, Table, loaded, qualified
from purerl.types import Algorithm


class Entry(NamedTuple):
    """The parts of an algorithm: its config, its checks, the function that binds it.

    Attributes:
        config: The config class.
        validate: Function that refuses what cannot be trained, `(config, env)`.
        make: Function that binds the algorithm, `(config, env, axis_name) ->
            Algorithm`.
        outer: Outer losses that judge the algorithm's updates when these are
            differentiated, see `purerl.meta_gradient`; None where they are not.
    """

    config: type[TrainConfig]
    validate: Callable[[Any, Environment], None]
    make: Callable[..., Algorithm]
    outer: Outer | None = None


_OWN = {
    "ppo": Entry(ppo.PPOConfig, checks.ppo, ppo.make, outer.PPO),
    "recurrent_ppo": Entry(ppo.RecurrentPPOConfig, checks.ppo, ppo.make, outer.PPO),
    "vpg": Entry(vpg.VPGConfig, vpg.validate, vpg.make, outer.VPG),
    "dqn": Entry(dqn.DQNConfig, dqn.validate, dqn.make),
    "recurrent_dqn": Entry(
        recurrent_dqn.RecurrentDQNConfig,
        recurrent_dqn.validate,
        recurrent_dqn.make,
    ),
    "pqn": Entry(pqn.PQNConfig, pqn.validate, pqn.make, outer.PQN),
    "recurrent_pqn": Entry(pqn.RecurrentPQNConfig, pqn.validate, pqn.make),
    "td3": Entry(td3.TD3Config, td3.validate, td3.make),
    "sac": Entry(sac.SACConfig, sac.validate, sac.make),
    "mpo": Entry(mpo.MPOConfig, mpo.validate, mpo.make),
    "tabular": Entry(tabular.TabularConfig, tabular.validate, tabular.make),
    "lpg": Entry(lpg.LPGConfig, lpg.validate, lpg.make, outer.LPG),
    "plr": Entry(plr.PLRConfig, plr.validate, plr.make),
}
ALGORITHMS: Table[Entry] = Table(
    _OWN, {name: f"purerl.contrib.{name}:ENTRY" for name in ("disco", "bandit")}
)


def register(name: str, entry: Entry) -> None:
    """Let configs of `entry.config` train, under a name for files and commands.

    The same class under the same name may be registered again, as when a notebook's
    cell runs twice: the new one takes the old one's place.

    Args:
        name: A new name, such as `"a2c"`.
        entry: Config class, `validate(config, env)`, `make(config, env, axis_name)`.

    Raises:
        ConfigError: the name or the config class is registered already.
    """
    named = {name: ALGORITHMS[name]} if name in ALGORITHMS else {}
    for known, other in {**loaded(ALGORITHMS), **named}.items():
        is_rerun = qualified(entry.config) == qualified(other.config)
        is_taken = name == known and not is_rerun
        if is_taken or (name != known and entry.config is other.config):
            raise ConfigError(
                f"algorithm {name!r} with {entry.config.__name__}: {known!r} with "
                f"{other.config.__name__} is registered already; choose another name "
                "and a config class of its own."
            )
    ALGORITHMS[name] = entry


def entry_of(config: TrainConfig) -> Entry:
    """Return the entry whose config class `config` is.

    Raises:
        ConfigError: not a config of any algorithm.
    """
    return ALGORITHMS[name_of(config)]


def name_of(config: TrainConfig) -> str:
    """Return the algorithm's name."""
    for name, entry in loaded(ALGORITHMS).items():
        if type(config) is entry.config:
            return name
    classes = [entry.config for entry in ALGORITHMS.values()]
    name = type(config).__name__
    if qualified(type(config)) in map(qualified, classes):
        raise ConfigError(
            f"this {name} was made before its class was defined and registered again; "
            "make the config again too."
        )
    if type(config) is TrainConfig:
        raise ConfigError(
            "config is a TrainConfig, which is of no algorithm; where its folder was "
            "read without a module that it names, import that and read it again."
        )
    known = ", ".join(cls.__name__ for cls in classes)
    raise ConfigError(
        f"config must be one of {known}, got {name}. Where that is the config of "
        "another algorithm, register its entry first, as in "
        "from purerl.algorithms import Entry, register; "
        'register("mine", Entry(MyConfig, validate, make)).'
    )


def config_class(name: str) -> type[TrainConfig]:
    """Return the config class of an algorithm.

    Raises:
        ConfigError: no such algorithm.
    """
    if not isinstance(name, str) or name not in ALGORITHMS:
        guess = near(str(name), ALGORITHMS)
        hint = f" Did you mean {guess!r}?" if guess else ""
        raise ConfigError(
            f"there is no algorithm {name!r}.{hint} "
            f"Algorithms: {', '.join(ALGORITHMS)}. purerl.algorithms.register adds "
            f"one. {ON_COMMAND_LINE}"
        )
    return ALGORITHMS[name].config
