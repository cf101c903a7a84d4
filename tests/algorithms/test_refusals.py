"""What algorithms refuse before anything is traced, a row each.

Ranges of single fields are in `tests/core/test_config.py`.
"""

import flax.linen as nn
import jax
import jax.numpy as jnp
import pytest

import purerl
from purerl import optimisers, rules
from purerl.algorithms import sac
from purerl.config import ConfigError
from purerl.envs import spaces
from purerl.envs.probe import ContinuousProbe
from purerl.losses import HuberError
from purerl.randomisation import Uniform
from tests import boxes, nets

LEARNED = optimisers.LearnedOptimiser.make(3)
OPEN = optimisers.OpenOptimiser.make(4, 3)
ATOMS = {"num_atoms": 5, "value_min": -1.0, "value_max": 2.0}
MEMORIES = "purerl.networks.memories"


class Of(ContinuousProbe):
    """The probe with other actions; nothing of it is played."""

    def __init__(self, actions):
        self.actions = actions

    def action_space(self, params=None):
        return self.actions


class Joined(nn.Module):
    """A torso without parameters: the parts side by side, `most` numbers at most."""

    most: int = 9

    def __call__(self, obs):
        features = jnp.concatenate(jax.tree.leaves(obs), -1)
        if features.shape[-1] > self.most:
            raise ValueError("too many")
        return features


PPO = purerl.RecurrentPPOConfig(
    num_envs=3,
    num_steps=12,
    sequence_length=12,
    num_minibatches=1,
    memory=nets.Leaky(4),
    head_sizes=(),
)
WATCHED = PPO.replace(
    env=boxes.Privileged(), actor_keys=("obs",), critic_keys=("obs", "state")
)
PQN = purerl.PQNConfig(num_envs=4, num_steps=16, num_minibatches=2)
RPQN = purerl.RecurrentPQNConfig(
    num_envs=2, num_steps=16, num_minibatches=2, memory=nets.Leaky(6), sequence_length=8
)
RDQN = purerl.RecurrentDQNConfig(
    num_envs=3,
    sequence_length=6,
    burn_in=4,
    buffer_size=59,
    batch_size=7,
    learning_starts=1,
    memory=nets.Leaky(4),
    total_timesteps=360,
)
DQN = purerl.DQNConfig()
SAC = purerl.SACConfig(env="probe/continuous")
TD3 = purerl.TD3Config(env="probe/continuous")
RSAC = SAC.replace(
    memory=nets.Leaky(4), sequence_length=6, burn_in=4, n_step=3, batch_size=42
)
PLR = purerl.PLRConfig(
    num_envs=4,
    num_steps=12,
    num_minibatches=2,
    buffer_size=12,
    total_timesteps=384,
    env_params={"max_steps_in_episode": 10},
)
DISCO = purerl.DiscoConfig(env="Catch-bsuite", num_envs=2, num_steps=5)
BANDIT = purerl.BanditConfig()
TABLE = purerl.TabularConfig()
PLAIN, MPO = purerl.PPOConfig(), purerl.MPOConfig()
PRIVILEGED = {"env": boxes.Privileged()}
OWN = {"critic": nets.Policy(2)}
SIMBA = {"torso": "simba", "hidden_sizes": (8, 8)}
CROSSQ = SAC.replace(crossq=True)
NO_CROSSQ = "crossq must be False with "
PENDULUM = {"env": "Pendulum-v1"}


REFUSED = [
    # Memories and sequences.
    (PPO, {"sequence_length": 5}, r"num_steps \(12\) must be .* got 5; nearest: 4 or"),
    (PPO, {"sequence_length": 24}, r"got 24; nearest: 12\."),
    (PPO, {"burn_in": 2}, "burn_in must be 0 where a sequence is a whole rollout"),
    (PPO, {"sequence_length": 4, "burn_in": 5}, r"at most sequence_length \(4\) else"),
    (PPO, {"num_minibatches": 2}, r"\(3\), whole sequences, must be .* nearest: 1 or"),
    (PPO, {"memory": "transformer", "memory_size": 6}, "memory_size must fit .* got 6"),
    (PPO, {"memory": nets.Leaky(fault="ones")}, "initial.shape. of zeros"),
    (PPO, {"memory": nets.Leaky(fault="carry")}, "return a carry like the one it"),
    (PPO, {"memory": nets.Leaky(fault="outputs")}, r"outputs \(T, B, features\), here"),
    (PPO, {"memory": nets.Leaky(0)}, "field features, the number of its outputs, got"),
    (PPO, {"memory": nets.Torso()}, "must have a method initial"),
    (PPO, {"memory": "tests.nets:Leaky(features='a')"}, "must have a field features"),
    (PPO, {"memory": f"{MEMORIES}:LRU(features=4, r_max=2.0)"}, "0 <= r_min < r_max"),
    (PPO, {"memory": f"{MEMORIES}:Transformer(features=4, window=0)"}, "window must"),
    (PPO, {"policy": "gaussian"}, "does not fit the action space"),
    (PPO, {"shared_torso": True}, "shared_torso needs .* without a memory"),
    (WATCHED, {"critic_keys": ("obs", "stat")}, r"critic_keys .*'stat'.* obs, state"),
    # What the actor sees fits, and what the critic sees does not.
    (WATCHED, {"torso": Joined(most=2)}, r"torso .*Joined.* \(3, 3\)\} .* failed"),
    (WATCHED, {"torso": Joined(), "memory": nets.Nothing(1)}, "memory .*Nothing.* out"),
    (RPQN, {"num_minibatches": 3}, r"\(4\), whole sequences, must be .* nearest: 2"),
    (RPQN, {"critic": "mlp"}, r"critic must be auto or a flax module of .* \[N, 6"),
    (RPQN, {"critic": nets.Policy(3)}, "values of 2 actions"),
    (RPQN, PENDULUM, "RecurrentPQNConfig needs discrete"),
    (RDQN, {"burn_in": 7}, r"burn_in must be at most sequence_length \(6\), got 7"),
    (RDQN, {"buffer_size": 35}, "burn_in=4, 36 steps, got 35"),
    (RDQN, {"buffer_size": 17, "burn_in": 0}, "burn_in=0, 18 steps, got 17"),
    (RDQN, {"learning_starts": 1000}, "learning_starts must be at most the 360 steps"),
    (RDQN, {"total_timesteps": 18}, "learning_starts must be at most the 18 steps"),
    (RDQN, {"critic": nets.Policy(2), "dueling": True}, "dueling must be False where"),
    (RDQN, {"memory": "none"}, "memory must be .* use DQNConfig"),
    (RDQN, {"memory": "rnn"}, "memory must be .* gru, lstm, lru, s5, transformer"),
    (RSAC, {"n_step": 7}, r"n_step must be at most sequence_length \(6\), got 7"),
    (RSAC, {"batch_size": 32}, r"batch_size must be .* \(6\) with a memory, got 32"),
    (RSAC, {"num_steps": 2}, "num_steps must be 1 with a memory, got 2"),
    (RSAC, {"actor": nets.Policy(3)}, "a pair of mean and log standard deviation"),
    (RSAC, {"crossq": True}, f"{NO_CROSSQ}a memory"),
    (RSAC, {"memory": "none"}, "memory"),
    # Rollouts, action values and tables.
    (PQN, {"num_minibatches": 5}, r"4 \* 16 = 64.*got 5; nearest: 4 or 8"),
    (PQN, {"num_minibatches": 65}, "nearest: 64"),
    (PQN, {"torso": "cnn"}, "torso 'cnn' needs observations"),
    (PQN, {"value_loss": None}, "value_loss must be"),
    (purerl.VPGConfig(), {"baseline": False}, "use advantage='rewards_to_go'"),
    (DQN, {"values": "categorical", "value_min": 1e3}, "value_min must be less"),
    (DQN, {"munchausen": True}, "munchausen needs double=False"),
    (DQN, {"munchausen": True, "double": False, "n_step": 3}, "needs .* n_step=1"),
    (DQN, {"values": "quantile", "value_loss": HuberError()}, "value_loss must be"),
    (TABLE, {"env": "CartPole-v1"}, r"Discrete\(n\), got Box.* of Car"),
    (TABLE, {"frozen": ("q",)}, "frozen: q are all that this agent"),
    # Critics, and what they judge.
    (SAC, {"critic_subset": 3}, r"critic_subset must be at most num_critics \(2\)"),
    (SAC, {"num_quantiles": 2}, r"must be less than num_quantiles \(2\), got 2"),
    (SAC, {"num_atoms": 5}, "num_atoms=5 needs value_min below value_max, got None"),
    (TD3, {**ATOMS, "value_max": -2.0}, "value_min below value_max, got -1.0 and -2.0"),
    (TD3, {**ATOMS, "num_quantiles": 5}, "num_atoms must be 0 .* num_quantiles=5"),
    (SAC, {**ATOMS, "value_loss": HuberError()}, "must be 0 .* value_loss=HuberError"),
    (SAC, {"value_min": 1.0}, "value_min=1.0 has no effect with num_atoms=0"),
    (SAC, {**SIMBA, "critic_hidden_sizes": (8, 4)}, r"all of one width.*\(8, 4\)"),
    (TD3, {"num_critics": 3, "optimiser": optimisers.Muon()}, r"not be Muon\(\) with"),
    (SAC, {"critic_subset": 1, "optimiser": LEARNED}, r"with num_critics 2 and critic"),
    (SAC, {"num_critics": 1, "optimiser": OPEN}, r"must not be OpenOptimiser\(\)"),
    (SAC, {"env": "CartPole-v1", "num_quantiles": 5}, "num_quantiles must be 0 where"),
    (SAC, {**SIMBA, "hidden_sizes": (8, 4)}, r"one width, .* got \(8, 4\)"),
    (CROSSQ, {"env": "CartPole-v1"}, f"{NO_CROSSQ}the discrete actions"),
    (CROSSQ, {"torso": "cnn"}, f"{NO_CROSSQ}a torso"),
    (CROSSQ, SIMBA, f"{NO_CROSSQ}a torso"),
    (CROSSQ, {"optimiser": LEARNED}, f"{NO_CROSSQ}optimiser=LearnedOptimiser"),
    (CROSSQ, {"optimiser": OPEN}, f"{NO_CROSSQ}optimiser=OpenOptimiser"),
    # What cannot be learned or counted: three updates of 1,600 steps, not 5,990 steps.
    (
        SAC,
        {"num_envs": 16, "total_timesteps": 5_990, "learning_starts": 5_000},
        "learning_starts must be at most the 4800 steps that are run .* got 5000",
    ),
    (SAC, {"num_envs": 16, "updates_per_step": 0.1}, r"got 0.1 \(that is 1.6\)"),
    (SAC, {"total_timesteps": 4 * 10**9, "updates_per_step": 2}, "7999998002 gradient"),
    # Actions of other kinds.
    # A bound at the largest number is none: actions were 3.4e38 or NaN.
    *(
        (config, {"env": Of(spaces.Box(-end, end, (1,)))}, "needs bounded actions")
        for config in (SAC, TD3, MPO)
        for end in (jnp.inf, float(jnp.finfo(jnp.float32).max))
    ),
    *(
        (config, {"env": Of(spaces.Box(-1.0, 1.0, (0,)))}, "hold no number; leave")
        for config in (PPO, SAC)
    ),
    (TD3, {"env": "CartPole-v1"}, r"needs continuous actions.*use DQNConfig"),
    (MPO, {"env": Of(spaces.MultiDiscrete([2, 3]))}, "one discrete action.*PPOConfig"),
    (PQN, PENDULUM, "PQNConfig needs discrete actions, got"),
    *(
        (config, {"env": boxes.MIXED}, "needs discrete actions, .*use .*PPOConfig")
        for config in (DQN, PQN, purerl.LPGConfig())
    ),
    *(
        (config, {"env": boxes.MIXED}, "needs bounded actions of one box, .*PPOConfig")
        for config in (SAC, TD3, MPO)
    ),
    (PLAIN, {"actor": boxes.Echo(), "env": boxes.MIXED}, "6 logits and means, and"),
    # Levels, rules and arms.
    (PLR, {"total_timesteps": 48}, "0 levels are played before the last"),
    (PLR, {"buffer_size": 57}, "28 levels are played before .* of the 29 "),
    *(
        (PLR, {"env_wrappers": wrappers}, "needs RandomLevels as the last of env_wrap")
        for wrappers in ((), ("RandomLevels", "FrameStack(2)"))
    ),
    (PLR, {"env": "CartPole-v1"}, "has no levels"),
    (PLR, {"env_params": {"max_steps_in_episode": Uniform(8, 9)}}, "in env_params"),
    (PLR, {"reset_scheme": "pool"}, "reset_scheme must be fresh, got 'pool'"),
    (PLR, {"normalize_rewards": True}, "score='max_monte_carlo' compares returns"),
    (DISCO, PENDULUM, "needs discrete actions"),
    (DISCO, {"env": boxes.MASKED}, "which actions are valid"),
    (DISCO, {"buffer_size": 9}, "num_envs . num_steps = 10 steps"),
    (DISCO, {"rule": rules.DiscoRule()}, "rule must have weights"),
    (DISCO, {"rule": rules.LPGRule.make(2, 2, 2)}, r"instance of .* with init\(\)"),
    (BANDIT, {"num_envs": 2}, "num_envs must be 1 for BanditConfig, got 2.*vmap"),
    (BANDIT, {"env": "GridWorld-v0"}, r"state, Discrete\(1\), got Discrete\(96\)"),
    (
        BANDIT,
        {"method": "gradient", "step_size": "sample_average"},
        "'constant' with m",
    ),
    # Keys and masks of observations.
    (
        PLAIN,
        {**PRIVILEGED, "actor_keys": ("obs", "stat")},
        "keys .*'stat'.* obs, state",
    ),
    (PLAIN, {"actor_keys": ("obs",)}, "must name keys .*CartPole-v1 has none"),
    (PLAIN, {**PRIVILEGED, "actor_keys": "obs"}, "must name keys .*got 'obs'"),
    (
        PLAIN,
        {**PRIVILEGED, "actor_keys": ("obs",), "shared_torso": True},
        "shared_torso needs .* the same keys",
    ),
    *(
        (PLAIN, {"env": boxes.Odd(x)}, "A mask is for .* at the top")
        for x in ("size", "floats", "alone", "inside", "continuous")
    ),
]


@pytest.mark.parametrize(
    ("config", "changes", "words"),
    [pytest.param(*row, id=f"{n}-{row[2][:40]}") for n, row in enumerate(REFUSED)],
)
def test_what_cannot_work_is_refused_before_tracing(config, changes, words):
    with pytest.raises(ConfigError, match=words):
        purerl.make_train(config.replace(num_evaluations=0, **changes))


def test_crossq_takes_muon_and_no_several_devices():
    config = CROSSQ.replace(optimiser=optimisers.Muon(), num_envs=2)
    env = purerl.envs.make("probe/continuous")
    sac.validate(config, env)
    with pytest.raises(ConfigError, match="crossq must be False where one agent is"):
        sac.make(config, env, axis_name="devices")
