"""PPO with a memory, for environments that hide their state: see `ppo` and `memory`.

`PPOConfig(memory="gru")` is PPO with a GRU, of the sizes of PPO. This config has the
sizes and numbers of PureJaxRL's `ppo_rnn.py` (Lu et al. 2022) for CartPole-v1: an
embedding, a GRU and two heads of 128 units with relu. Its heads' hidden layers start at
gain 2, ours at sqrt(2). Where actions are continuous, which its script does not know,
observations and rewards are normalised and there is no entropy bonus, as in `ppo`; the
sizes stay, because a gradient step goes through all steps of a rollout.
"""

from typing import Any

from purerl.algorithms.ppo import PPOConfig
from purerl.config import POSITIVE, config_dataclass, static


@config_dataclass
class RecurrentPPOConfig(PPOConfig):
    """PPO with a GRU, with the sizes and numbers of PureJaxRL's `ppo_rnn.py`."""

    num_steps: int = static(128, "Steps per environment and update.", POSITIVE)
    num_epochs: int = static(4, "Passes over the rollout per update.", POSITIVE)
    num_minibatches: int = static(4, "Gradient steps per pass.", POSITIVE)
    hidden_sizes: tuple[int, ...] = (128,)
    memory: Any = "gru"
    head_sizes: tuple[int, ...] = (128,)
    activation: str = "relu"
