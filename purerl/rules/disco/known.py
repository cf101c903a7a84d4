"""A rule of DiscoRL's form that was written by hand."""

from typing import Any

import jax
import jax.numpy as jnp
from flax import struct

from purerl.config import POSITIVE, dynamic
from purerl.rules.disco.features import of_action
from purerl.rules.disco.inputs import DiscoInputs, DiscoTargets


@struct.dataclass
class CMPORule:
    """Clipped maximum a posteriori policy optimisation (Hessel et al. 2021, Muesli).

    The policy shall come nearer to that of the target network, with more of what is
    better than the mean (arXiv:2104.06159, equation 5, for discrete actions exactly):

        pi_hat(a|s)  ~  pi'(a|s) exp(clip(A(s, a), -clip, clip))

    with `A` the standardised advantages of the target network's action values. The
    predictions are their own targets, so that they never move: nothing else of Muesli
    is here.

    Attributes:
        clip: Largest advantage that counts, in standard deviations.
    """

    clip: float = dynamic(1.0, "Largest advantage that counts.", POSITIVE)

    def init(self) -> tuple[()]:
        """Return what the rule remembers: nothing."""
        return ()

    def __call__(
        self, inputs: DiscoInputs, memory: Any, axis_name: str | None = None
    ) -> tuple[DiscoTargets, Any]:
        """Return the targets of trajectories, see `DiscoTargets`.

        Args:
            inputs: The trajectories.
            memory: Nothing.
            axis_name: Mapped axis over which trajectories are spread; not used.
        """
        del axis_name
        advantage = inputs.values.action_standardised
        logits = jax.nn.log_softmax(inputs.target.logits)
        targets = DiscoTargets(
            logits=logits + jnp.clip(advantage, -self.clip, self.clip),
            y=inputs.online.y,
            z=of_action(inputs.online.z, inputs.action),
        )
        return targets, memory
