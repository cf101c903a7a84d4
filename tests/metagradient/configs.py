"""Small runs of every algorithm that is differentiated."""

import purerl
from purerl.losses import DPODrift
from purerl.optimisers import SGD
from purerl.rules import LPGRule
from tests.helpers import tiny_config

PPO = tiny_config(
    num_envs=4,
    gamma=0.95,
    gae_lambda=0.9,
    entropy_coef=0.02,
    learning_rate=1e-2,
    policy_loss=DPODrift(2.0, 0.6),
    num_evaluations=0,
)
VPG = purerl.VPGConfig(
    num_envs=4,
    num_steps=16,
    total_timesteps=640,
    gamma=0.95,
    gae_lambda=0.9,
    entropy_coef=0.02,
    learning_rate=1e-2,
    critic_learning_rate=1e-2,
    critic_iterations=3,
    hidden_sizes=(8,),
    num_evaluations=0,
)
RECURRENT_PPO = purerl.RecurrentPPOConfig(
    num_envs=4,
    num_steps=16,
    num_epochs=2,
    num_minibatches=2,
    total_timesteps=1_280,
    gamma=0.95,
    gae_lambda=0.9,
    entropy_coef=0.02,
    learning_rate=1e-2,
    policy_loss=DPODrift(2.0, 0.6),
    hidden_sizes=(8,),
    memory_size=4,
    head_sizes=(4,),
    activation="tanh",
    num_evaluations=0,
)
PQN = purerl.PQNConfig(
    num_envs=4,
    num_steps=16,
    num_epochs=2,
    num_minibatches=2,
    total_timesteps=1_280,
    gamma=0.95,
    trace_decay=0.9,
    learning_rate=1e-2,
    hidden_sizes=(8,),
    num_evaluations=0,
)
LPG = purerl.LPGConfig(
    num_envs=4,
    num_steps=16,
    total_timesteps=640,
    gamma=0.95,
    entropy_coef=0.02,
    # Adam's first step has one length whatever the gradient, so that what a prediction
    # learns there would move nothing.
    optimiser=SGD(),
    learning_rate=0.5,
    hidden_sizes=(8,),
    num_evaluations=0,
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
