"""Small runs of every algorithm that is differentiated."""

import purerl
from purerl.losses import DPODrift
from purerl.optimisers import SGD
from purerl.rules import LPGRule
from tests.helpers import tiny_config

SHARED = {
    "num_envs": 4,
    "num_steps": 16,
    "gamma": 0.95,
    "learning_rate": 1e-2,
    "hidden_sizes": (8,),
    "num_evaluations": 0,
}
EPOCHS = {"num_epochs": 2, "num_minibatches": 2, "total_timesteps": 1_280}
CRITIC = {"gae_lambda": 0.9, "entropy_coef": 0.02}
DRIFT = {"policy_loss": DPODrift(2.0, 0.6)}
PPO = tiny_config(**SHARED, **CRITIC, **DRIFT)
VPG = purerl.VPGConfig(
    **SHARED,
    **CRITIC,
    total_timesteps=640,
    critic_learning_rate=1e-2,
    critic_iterations=3,
)
RECURRENT_PPO = purerl.RecurrentPPOConfig(
    **SHARED,
    **EPOCHS,
    **CRITIC,
    **DRIFT,
    memory_size=4,
    head_sizes=(4,),
    activation="tanh",
)
PQN = purerl.PQNConfig(**SHARED, **EPOCHS, trace_decay=0.9)
LPG = purerl.LPGConfig(
    # Adam's first step has one length whatever the gradient, so that what a prediction
    # learns there would move nothing.
    **SHARED | {"optimiser": SGD(), "learning_rate": 0.5},
    total_timesteps=640,
    entropy_coef=0.02,
    rule=LPGRule.make(hidden_size=4, prediction_size=3, embedding_size=2, seed=1),
)
ACTOR_CRITIC = ("gamma", "gae_lambda", "learning_rate", "entropy_coef")
EACH = {
    "ppo": (PPO, (*ACTOR_CRITIC, "policy_loss", "value_coef")),
    "vpg": (VPG, (*ACTOR_CRITIC, "critic_learning_rate")),
    "recurrent_ppo": (RECURRENT_PPO, (*ACTOR_CRITIC, "policy_loss")),
    "recurrent_ppo/burn_in": (
        RECURRENT_PPO.replace(
            sequence_length=4, burn_in=3, optimiser=SGD(), learning_rate=0.5
        ),
        ACTOR_CRITIC,
    ),
    "lpg": (LPG, ("learning_rate", "entropy_coef", "prediction_coef", "gamma")),
    "pqn": (PQN, ("gamma", "trace_decay", "learning_rate", "max_grad_norm")),
}
