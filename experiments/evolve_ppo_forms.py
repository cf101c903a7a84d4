"""The forms of PPO that are evolved: what each changes, and which numbers move."""

from collections.abc import Callable
from typing import Any, NamedTuple

import purerl
from purerl.losses import (
    AsymmetricClipDrift,
    DPODrift,
    MLPDrift,
    RobustError,
    TemporalDrift,
)
from purerl.schedules import Linear


class Setting(NamedTuple):
    """A form of PPO, and what of it is evolved.

    Attributes:
        changes: From PPO as it was tuned so far, the fields that differ from it.
        evolve: Names of what is evolved beside `PLAIN`, with scales.
        without: Names of `PLAIN` that are not evolved, as the form does not have them.
    """

    changes: Callable[[purerl.PPOConfig], dict[str, Any]]
    evolve: dict[str, str]
    without: tuple[str, ...] = ()


PLAIN = {
    "learning_rate": "log",
    "entropy_coef": "log",
    "gamma": "logit",
    "gae_lambda": "logit",
    "value_coef": "log",
    "max_grad_norm": "log",
    "policy_loss.clip_eps": "log",
    "value_loss.clip_eps": "log",
}
CLIP, VALUE_CLIP = "policy_loss.clip_eps", "value_loss.clip_eps"
# Fields that the settings have in different forms.
FORMS = ("policy_loss", "value_loss", "anneal_learning_rate")
ADAM = {"optimiser.b1": "logit", "optimiser.b2": "logit", "optimiser.eps": "log"}
ROBUST = {"value_loss.alpha": "linear", "value_loss.scale": "log"}
MOVING = {
    f"{name}.{end}": "log"
    for name in ("learning_rate", "entropy_coef")
    for end in ("start", "end")
}
ENDS = {
    f"policy_loss.{side}.{end}": "logit" if side == "low" else "log"
    for side in ("low", "high")
    for end in ("start", "end")
}


def moving(tuned: purerl.PPOConfig) -> dict[str, Any]:
    """Step size and entropy as lines, the first as steep as the default's almost."""
    rate, entropy = float(tuned.learning_rate), float(tuned.entropy_coef)
    return {
        "learning_rate": Linear(rate, 0.05 * rate),
        "entropy_coef": Linear(entropy, entropy),
        "anneal_learning_rate": False,
    }


def clip_of(tuned: purerl.PPOConfig) -> float:
    """Half-width of the clip so far, at most what a lower end can have."""
    return min(float(tuned.policy_loss.clip_eps), 0.9)


def two_ends(tuned: purerl.PPOConfig) -> dict[str, Any]:
    """A clip whose ends are two numbers, from where they are one."""
    return {"policy_loss": AsymmetricClipDrift(clip_of(tuned), clip_of(tuned))}


def everything(tuned: purerl.PPOConfig) -> dict[str, Any]:
    """Losses, entropy, step size and optimiser together, all of them in closed form."""
    line = Linear(clip_of(tuned), clip_of(tuned))
    return {
        **moving(tuned),
        "policy_loss": AsymmetricClipDrift(line, line),
        "value_loss": RobustError(1.0, 1.0),
    }


def temporal(tuned: purerl.PPOConfig) -> dict[str, Any]:
    """A drift network that knows the share of the run, and a robust error."""
    drift = TemporalDrift.zeros(2, base_clip=clip_of(tuned))
    return {"policy_loss": drift, "value_loss": RobustError(1.0, 1.0)}


def whole(tuned: purerl.PPOConfig) -> dict[str, Any]:
    """Step size and entropy as lines, the optimiser, and both losses of `temporal`."""
    return {**moving(tuned), **temporal(tuned)}


SETTINGS = {
    "tuned": Setting(lambda tuned: {}, {}),
    "everything": Setting(
        everything,
        {**MOVING, **ADAM, **ROBUST, **ENDS},
        (CLIP, VALUE_CLIP, "learning_rate", "entropy_coef"),
    ),
    "robust": Setting(
        lambda tuned: {"value_loss": RobustError(1.0, 1.0)}, ROBUST, (VALUE_CLIP,)
    ),
    "temporal": Setting(
        temporal, {**ROBUST, "policy_loss": "linear"}, (CLIP, VALUE_CLIP)
    ),
    "schedules": Setting(moving, MOVING, ("learning_rate", "entropy_coef")),
    "adam": Setting(lambda tuned: {}, ADAM),
    "asymmetric": Setting(
        two_ends, {"policy_loss.low": "logit", "policy_loss.high": "log"}, (CLIP,)
    ),
    "drift": Setting(
        lambda tuned: {"policy_loss": MLPDrift.zeros(4, base_clip=clip_of(tuned))},
        {"policy_loss": "linear"},
        (CLIP,),
    ),
    "dpo": Setting(
        lambda tuned: {"policy_loss": DPODrift(2.0, 0.6)},
        {"policy_loss.alpha": "log", "policy_loss.beta": "log"},
        (CLIP,),
    ),
    "whole": Setting(
        whole,
        {**MOVING, **ADAM, **ROBUST, "policy_loss": "linear"},
        (CLIP, VALUE_CLIP, "learning_rate", "entropy_coef"),
    ),
}
