"""Fields whose meta-gradient is zero whatever the data, which are refused."""

from typing import Any

from purerl.algorithms.outer import Constant, Outer, OuterLoss
from purerl.config import ConfigError, TrainConfig
from purerl.losses import AsymmetricClipDrift, ClipDrift, ClippedSquaredError
from purerl.optimisers import Lion
from purerl.train import Bound

_CLIPS = (ClipDrift, AsymmetricClipDrift, ClippedSquaredError)


def check_acts(
    bound: Bound, field: str, outer: Outer, unroll: int, loss: OuterLoss, word: str
) -> None:
    """Refuse a field whose derivative is zero whatever the data.

    Args:
        bound: The config and its environment.
        field: Dotted name of the field.
        outer: Outer losses that judge updates of the algorithm.
        unroll: The number of updates, K.
        loss: The outer loss, which may be the user's own.
        word: Name in messages of the argument that names the fields.

    Raises:
        ConfigError: naming the field, the reason and the remedy.
    """
    config = bound.config
    judges_policy = loss is outer.losses.get("policy_gradient")
    is_alone = outer.alone(config, bound.env, field)
    found = _constant(config, field, outer)
    if found is None and _by_signs(config, field, is_alone, judges_policy):
        found = Constant(
            "Lion steps by the sign of a gradient, which has no derivative",
            "Use another optimiser, such as Adam(), or purerl.evolve.",
        )
    if found is not None:
        raise ConfigError(
            f"{word}: the meta-gradient of {field} is zero, for {found.why}. "
            f"{found.remedy}"
        )
    if is_alone and judges_policy and unroll == 1:
        other = (
            ", or objective='actor_critic'" if "actor_critic" in outer.losses else ""
        )
        raise ConfigError(
            f"{word}: the meta-gradient of {field} is zero after one update, for it "
            "moves the policy from the second one on only. Set unroll=2 or more"
            f"{other}."
        )


def _constant(config: TrainConfig, field: str, outer: Outer) -> Constant | None:
    """The reason for which a field has no derivative with any optimiser, or None."""
    first = field.split(".")[0]
    if first == "env_params":
        return Constant("they only change what is collected, and data are constants")
    if isinstance(getattr(config, first), _CLIPS):
        # A sample has its whole gradient or none, and moving the ends changes neither.
        return Constant("the interval of a clip only decides which samples count")
    return outer.constant(config).get(first)


def _by_signs(config: Any, field: str, is_alone: bool, judges_policy: bool) -> bool:
    """True if signs of gradients stand between a field and all that is judged.

    Args:
        config: Config of the agent.
        field: Dotted name of the field.
        is_alone: Whether it moves the critic alone, see `Outer.alone`.
        judges_policy: Whether the outer loss looks at the policy alone.
    """
    first, _, part = field.partition(".")
    own = getattr(config, "critic_optimiser", None)
    of_critic = "optimiser" if own is None else "critic_optimiser"
    if part in ("b1", "b2") and type(getattr(config, first)) is Lion:
        return True
    policy_steps_by_sign = type(config.optimiser) is Lion
    critic_steps_by_sign = type(getattr(config, of_critic)) is Lion
    # The length of a step, and the share of parameters that is taken away, stand
    # outside of the sign.
    in_policy = not policy_steps_by_sign or first in ("learning_rate", "optimiser")
    in_critic = not critic_steps_by_sign or first in (
        "learning_rate",
        "critic_learning_rate",
        of_critic,
    )
    if policy_steps_by_sign and judges_policy:
        in_critic = False
    return not in_critic and (is_alone or not in_policy)
