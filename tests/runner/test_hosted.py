"""Training in Gymnasium's environments: the same learner, and the right transitions."""

import gymnasium
import jax
import numpy as np
import pytest

import purerl
from purerl import schedules
from purerl.cli import results
from purerl.execution.hosted import HostedCohort, HostedProgram
from purerl.report.tables import run_table
from purerl.train import bind
from tests import boxes
from tests.helpers import CONTINUOUS_CARTPOLE, assert_same_bits, slow_but
from tests.runner import hosted_tasks
from tests.runner.hosted_tasks import LANES, SCRIPT

SEED = 3
SMALL = {"hidden_sizes": (8,), "num_envs": 2, "num_evaluations": 0}
ROLLOUT = {**SMALL, "num_steps": 32, "num_minibatches": 2, "num_epochs": 2}
REPLAY = {
    **SMALL,
    "num_steps": 2,
    "rounds_per_update": 10,
    "learning_starts": 50,
    "buffer_size": 90,  # overwritten before the end
    "batch_size": 8,
}
STEPS = {"num_steps": 40, "num_evaluations": 0}
TABLE = {**STEPS, "num_envs": 2, "learning_rate": 0.5, "epsilon": 0.3}
CONFIGS = {
    "ppo": purerl.PPOConfig(
        normalize_observations=True,
        normalize_rewards=True,
        learning_rate=schedules.Linear(1e-2, 1e-3),
        **ROLLOUT,
    ),
    "recurrent_ppo": purerl.RecurrentPPOConfig(memory_size=8, **ROLLOUT),
    "recurrent_ppo_privileged": purerl.RecurrentPPOConfig(
        memory_size=8, actor_keys=("cart",), **ROLLOUT
    ),
    "recurrent_ppo_transformer": purerl.RecurrentPPOConfig(
        memory="transformer", memory_size=8, **{**ROLLOUT, "num_minibatches": 1}
    ),
    "vpg": purerl.VPGConfig(**SMALL, num_steps=32, critic_iterations=3),
    "lpg": purerl.LPGConfig(
        **SMALL,
        num_steps=32,
        normalize_observations=True,
        rule=purerl.rules.LPGRule.make(4, 3, 4, temporal=True),
    ),
    "disco": purerl.DiscoConfig(
        **SMALL,
        num_steps=48,
        buffer_size=288,  # overwritten before the end
        batch_size=4,
        learning_starts=192,
        model_size=4,
        head_sizes=(4,),
        num_bins=7,
        rule=purerl.rules.DiscoRule.make(
            hidden_size=4, lifetime_size=3, prediction_size=4
        ),
    ),
    "pqn": purerl.PQNConfig(**ROLLOUT, normalize_observations=True),
    "recurrent_pqn": purerl.RecurrentPQNConfig(memory_size=8, **ROLLOUT),
    "recurrent_dqn": purerl.RecurrentDQNConfig(
        **SMALL,
        memory_size=8,
        sequence_length=24,
        burn_in=8,
        buffer_size=150,  # three sequences of each environment: overwritten at the end
        learning_starts=50,
        batch_size=4,
        epsilon_steps=100.0,
        learning_rate=1e-2,
    ),
    "dqn": purerl.DQNConfig(
        **REPLAY, prioritised=True, n_step=2, epsilon_steps=100.0, learning_rate=1e-2
    ),
    "dqn_noisy": purerl.DQNConfig(
        **REPLAY, values="implicit", noisy=True, learning_rate=1e-3
    ),
    "td3": purerl.TD3Config(**REPLAY, learning_rate=1e-2, n_step=2),
    "sac": purerl.SACConfig(**REPLAY, learning_rate=1e-2),
    "sac_memory": purerl.SACConfig(
        **{**REPLAY, "num_steps": 1, "rounds_per_update": 4, "batch_size": 12},
        learning_rate=1e-2,
        memory="gru",
        memory_size=4,
        head_sizes=(4,),
        sequence_length=6,
        burn_in=3,
    ),
    "mpo": purerl.MPOConfig(
        **{**REPLAY, "batch_size": 4}, action_samples=3, learning_rate=1e-2
    ),
    "q_learning": purerl.TabularConfig(
        **STEPS, learning_rate=schedules.Linear(1.0, 0.1)
    ),
    "sarsa": purerl.TabularConfig(method="sarsa", **TABLE),
    "expected_sarsa": purerl.TabularConfig(method="expected_sarsa", **TABLE),
    "double_q": purerl.TabularConfig(method="double_q", **TABLE),
    "bandit": purerl.BanditConfig(method="gradient", **STEPS),
}
CONTINUOUS = ("td3", "sac", "sac_memory", "mpo")
# Metrics of an environment that tells the values of its arms, which no other one does.
INSIDE_ONLY = {"optimal_action", "regret"}
# What states have of parts that a config has not on.
EMPTY = ("priorities", "obs_moments", "memory", "level_buffer")
UPDATES, LIMIT = 4, 12  # a time limit that cuts many episodes


@pytest.fixture(autouse=True, scope="module")
def registered():
    hosted_tasks.register()


def pair(name):
    """The config of a compiled run, and of that with its environment outside."""
    config, begun_with = CONFIGS[name], 2
    task = CONTINUOUS_CARTPOLE if name in CONTINUOUS else "CartPole-v1"
    if isinstance(config, purerl.TabularConfig):
        task, begun_with = "CliffWalking-v0", 0
    elif name == "recurrent_ppo_privileged":
        task = boxes.PACKED
    elif isinstance(config, purerl.BanditConfig):
        task, begun_with = "KArmedBandit-v0", 0
    config = config.replace(total_timesteps=UPDATES * config.steps_per_update)
    steps = config.steps_per_update // config.num_envs
    options = {"task": task, "limit": LIMIT, "seed": SEED, "steps": steps}
    options["begun_with"] = begun_with
    return (
        config.replace(env=task, env_params={"max_steps_in_episode": LIMIT}),
        config.replace(
            env=f"gymnasium/{LANES}",
            env_kwargs={"vectorization_mode": "vector_entry_point", **options},
        ),
    )


@pytest.mark.parametrize("name", slow_but(CONFIGS, "dqn", "sarsa"))
def test_the_learner_is_that_of_the_compiled_run(name):
    """With the same keys and environments, all that is learned and kept is the same.

    The environments are compiled by themselves here and in one program with the
    networks there, so that numbers differ in the last bits.
    """
    inside, outside = pair(name)
    expected = jax.jit(purerl.make_train(inside))(jax.random.key(SEED))
    found = purerl.run(outside, seeds=[SEED], segment_updates=1, progress=False)
    # Something was learned, and episodes ended in both ways.
    assert expected.metrics["episodes"].sum() > 10
    assert name == "bandit" or expected.metrics["episode_length"].min() < LIMIT
    assert set(expected.metrics) - set(found.metrics) <= INSIDE_ONLY
    for metric, values in expected.metrics.items():
        if metric in INSIDE_ONLY and name == "bandit":
            continue
        np.testing.assert_allclose(
            found.metrics[metric][0], values, rtol=1e-3, atol=1e-4, err_msg=metric
        )
    fields = [f for f in expected.state._fields if f not in ("key", "envs")]
    for field in fields:
        one, two = (getattr(s, field) for s in (expected.state, found.state))
        leaves = jax.tree_util.tree_leaves_with_path(one)
        assert leaves or field in EMPTY
        for (path, a), b in zip(leaves, jax.tree.leaves(two), strict=True):
            np.testing.assert_allclose(
                b[0], a, rtol=1e-3, atol=1e-4, err_msg=f"{field}{path}"
            )
    for field in ("obs", "episode_return", "episode_length"):
        one, two = (getattr(s.envs, field) for s in (expected.state, found.state))
        for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(two), strict=True):
            np.testing.assert_allclose(b[0], a, rtol=1e-4, atol=1e-5, err_msg=field)


# What the script of `hosted_tasks.Script` leads to in ten steps: observations, and
# those that the actions led to, as (episode, step).
OBS = [(0, 0), (0, 1), (1, 0), (1, 1), (1, 2), (2, 0), (2, 1), (3, 0), (3, 1), (3, 2)]
NEXT = [(0, 1), (0, 2), (1, 1), (1, 2), (1, 3), (2, 1), (2, 2), (3, 1), (3, 2), (3, 3)]
SCRIPTED = purerl.DQNConfig(
    env=f"gymnasium/{SCRIPT}",
    hidden_sizes=(2,),
    num_envs=2,
    num_steps=2,
    rounds_per_update=5,
    buffer_size=20,
    total_timesteps=20,
    learning_starts=18,
    batch_size=2,
    num_evaluations=0,
)


def test_transitions_are_exactly_those_of_the_script():
    """Ends, cuts, and the observation before a reset; no step is lost or repeated."""
    result = purerl.run(SCRIPTED, progress=False)
    buffer = jax.tree.map(lambda x: x[0], result.state.buffer)  # of the only seed
    for lane in range(2):
        np.testing.assert_array_equal(buffer.obs[:, lane], OBS)
        np.testing.assert_array_equal(buffer.next_obs[:, lane], NEXT)
        rewards = [10 * episode + step for episode, step in NEXT]
        np.testing.assert_array_equal(buffer.reward[:, lane], rewards)
        np.testing.assert_array_equal(
            np.flatnonzero(buffer.terminated[:, lane]), [1, 6]
        )
        # Where an environment says both, the episode terminated.
        np.testing.assert_array_equal(np.flatnonzero(buffer.truncated[:, lane]), [4, 9])
    assert buffer.obs.dtype == np.float32
    assert set(np.unique(buffer.action)) == {0, 1}  # 5 and 6 to the environment
    row = {name: values[0, -1] for name, values in result.metrics.items()}
    assert row["episodes"] == 8 and row["episode_length"] == 2.5
    assert row["episode_return"] == (3 + 36 + 43 + 96) / 4
    np.testing.assert_array_equal(result.state.envs.obs[0], [(4, 0)] * 2)


@pytest.mark.parametrize(
    ("num_steps", "cut"), [(9, [4, 8]), pytest.param(7, [4], marks=pytest.mark.slow)]
)
def test_what_went_on_is_cut_where_episodes_begin_anew(num_steps, cut):
    """After 9 steps an episode is running, after 7 one has just terminated."""
    steps = 2 * num_steps
    config = SCRIPTED.replace(
        num_steps=1,
        rounds_per_update=num_steps,
        total_timesteps=2 * steps,
        buffer_size=40,
    )
    cohort = HostedCohort(
        HostedProgram(bind(config, on_host=True)),
        jax.random.split(jax.random.key(0)),
        1,
    )
    cohort.init()
    assert [segment.end for segment in cohort.segments(1)] == [1]
    states = cohort.gather()
    cohort.restore(states, 1)
    again = cohort.gather()
    cohort.close()
    for member in range(2):
        before, after = states.buffer.truncated[member], again.buffer.truncated[member]
        assert np.flatnonzero(before[:, 0]).tolist() == [4]
        for lane in range(2):
            assert np.flatnonzero(after[:, lane]).tolist() == cut
        # A new episode of the script, after 0 to 3.
        np.testing.assert_array_equal(again.envs.obs[member], [(4, 0)] * 2)
        assert not again.envs.episode_return[member].any()
        assert not again.envs.episode_length[member].any()


def test_memory_and_running_returns_begin_anew():
    config = CONFIGS["recurrent_ppo"].replace(env=f"gymnasium/{SCRIPT}")
    algorithm = purerl.make_algorithm(config)
    state = jax.jit(algorithm.init)(jax.random.key(0))
    state = state._replace(
        memory=jax.tree.map(lambda x: x + 1, state.memory),
        reward_scale=state.reward_scale._replace(running=np.ones(2, np.float32)),
        envs=state.envs._replace(episode_return=state.envs.episode_return + 1),
    )
    obs = np.full((2, 2), 7.0, np.float32)
    assert algorithm.hosted is not None
    again = algorithm.hosted(state.update).restart(state, obs)
    left = (again.memory, again.reward_scale.running, again.envs.episode_return)
    assert all(not np.asarray(x).any() for x in jax.tree.leaves(left))
    np.testing.assert_array_equal(again.envs.obs, obs)


HERE = "gymnasium/CartPole-v1"


@pytest.mark.parametrize(
    ("change", "options", "sentence"),
    [
        (
            {"env_wrappers": ("FrameStack(4)",)},
            {},
            "env_wrappers must be left out with",
        ),
        ({"env_params": {"length": 1.0}}, {}, "env_params must be left out with"),
        ({"reset_scheme": "pool"}, {}, "use reset_scheme='fresh'"),
        ({}, {"data_parallel": True}, "lanes and data_parallel must be left out"),
        ({}, {"lanes": 2}, "lanes and data_parallel must be left out"),
        ({"env": "gymnasium/Nothing-v0"}, {}, "Nothing-v0"),
        ({"env": "gymnasium/nobody:A-v0"}, {}, "has not been imported, and a config"),
        ({"env_kwargs": {"a": 1}}, {}, "cannot be made with these env_kwargs"),
        (
            {"env_kwargs": {"vectorization_mode": "vector_entry_point"}},
            {},
            "training needs AutoresetMode.SAME_STEP",
        ),
        ({"env_kwargs": {"vectorization_mode": "x"}}, {}, "must be one of sync, async"),
    ],
)
def test_what_cannot_be_is_refused_in_a_sentence(change, options, sentence, tmp_path):
    config = purerl.PPOConfig(env=HERE, **SMALL).replace(**change)
    out = tmp_path / "run"
    with pytest.raises(purerl.ConfigError, match=sentence):
        purerl.run(config, out=out, progress=False, **options)
    assert not out.exists()


@pytest.mark.parametrize(
    "call",
    [
        purerl.make_train,
        lambda config: purerl.sweep(config, {"learning_rate": [1e-3, 1e-4]}),
        lambda config: purerl.compare(config, {"a": {}, "b": {"gamma": 0.9}}, seeds=2),
        lambda config: purerl.data_parallel(config),
    ],
)
def test_what_needs_the_environment_inside_says_so(call):
    with pytest.raises(purerl.ConfigError, match=r"stepped on the host.*purerl\.run"):
        call(purerl.PPOConfig(env=HERE))


def test_an_algorithm_without_pieces_says_what_it_lacks(monkeypatch):
    bound = bind(purerl.PPOConfig(env=HERE, **ROLLOUT), on_host=True)
    algorithm = bound.algorithm(bound.config)._replace(hosted=None)
    monkeypatch.setattr(type(bound), "algorithm", lambda *args: algorithm)
    with pytest.raises(purerl.ConfigError, match="has no field hosted"):
        HostedProgram(bound)


# None of Gymnasium's own tasks has a part that only a critic could see.
IN_GYMNASIUM = [name for name in CONFIGS if name != "recurrent_ppo_privileged"]


IN_ENVPOOL = ("ppo", "dqn", "sac", "q_learning")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("suite", "name"),
    [
        *(("gymnasium", name) for name in IN_GYMNASIUM),
        *(("envpool", name) for name in IN_ENVPOOL),
    ],
)
def test_every_algorithm_trains_evaluates_and_goes_on(suite, name, tmp_path, capsys):
    """Four updates, a checkpoint, two more, and what is read from the folder."""
    pytest.importorskip(suite)
    task = "Pendulum-v1" if name in CONTINUOUS else "CartPole-v1"
    if isinstance(CONFIGS[name], purerl.TabularConfig):
        task = "FrozenLake-v1"
    elif isinstance(CONFIGS[name], purerl.BanditConfig):
        task = hosted_tasks.ARMS
    config = CONFIGS[name].replace(
        env=f"{suite}/{task}", num_evaluations=1, eval_episodes=3, eval_max_steps=15
    )
    each = config.steps_per_update
    config = config.replace(total_timesteps=4 * each)
    first = purerl.run(config, seeds=2, out=tmp_path, segment_updates=2, progress=False)
    assert first.finished and first.evaluation["episode_return"].shape == (2, 1, 3)
    assert (first.metrics["env_steps"][:, -1] == 4 * each).all()
    longer = config.replace(total_timesteps=6 * each)
    again = purerl.run(longer, seeds=2, out=tmp_path, resume=True, extend=True)
    said = capsys.readouterr()
    assert "begin new episodes" in " ".join((said.out + said.err).split())
    assert again.finished and int(again.state.update[0]) == 6
    assert results.main_evaluate([str(tmp_path), "--episodes", "2"]) == 0
    assert f"{suite}/" in capsys.readouterr().out
    saved = purerl.load_run(tmp_path)
    policy = purerl.make_policy(config, jax.tree.map(lambda x: x[0], first.state))
    assert saved.update == 6 and callable(policy)
    for leaf in jax.tree.leaves(again.state.params):
        assert np.isfinite(leaf).all()


def test_a_second_run_compiles_nothing_where_programs_are_shared():
    with purerl.share_programs():
        first, again = (purerl.run(SCRIPTED, progress=False) for _ in range(2))
    assert first.compile_seconds > again.compile_seconds == 0
    assert_same_bits(first.state, again.state)


def test_a_bandit_on_the_host_knows_nothing_of_the_problem_before():
    """Averages of what the pulls since the last end of an episode have paid."""
    config = purerl.BanditConfig(
        env=f"gymnasium/{hosted_tasks.ARMS}",
        total_timesteps=12,  # two problems of five pulls, and two pulls of a third
        step_size="sample_average",
        epsilon=1.0,
        num_steps=4,
    )
    result = purerl.run(config, progress=False)
    counts = result.state.counts[0]
    assert counts.sum() == 2
    expected = np.where(counts > 0, 10.0 * np.arange(3), 0.0)  # what an arm pays
    np.testing.assert_allclose(result.state.params["values"][0], expected)
    assert int(result.metrics["episodes"].sum()) == 2
    assert "regret" not in result.metrics


class Long(gymnasium.Env):
    """Ends by itself after 1,200 steps, each of which pays 1; no time limit."""

    observation_space = gymnasium.spaces.Box(-1, 1, (4,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        self.time = 0
        return np.zeros(4, np.float32), {}

    def step(self, action):
        self.time += 1
        return np.zeros(4, np.float32), 1.0, self.time == 1_200, False, {}


gymnasium.register("purerl-test/Long-v0", Long)


def test_an_evaluation_plays_whole_episodes_where_no_time_limit_is_known(capsys):
    config = purerl.VPGConfig(
        env="gymnasium/purerl-test/Long-v0",
        num_envs=2,
        num_steps=600,
        total_timesteps=2_400,
        hidden_sizes=(4,),
        num_evaluations=1,
        eval_episodes=2,
    )
    result = purerl.run(config)
    np.testing.assert_array_equal(result.metrics["episode_return"], [[np.nan, 1_200]])
    np.testing.assert_array_equal(result.evaluation["episode_return"], [[[1_200] * 2]])
    np.testing.assert_array_equal(result.evaluation["episode_length"], [[[1_200] * 2]])
    np.testing.assert_array_equal(result.evaluation["cut_episodes"], [[0]])
    assert result.best().score == 1_200
    said = "1 evaluation of 2 episodes of at most 27,000 steps"
    assert said in " ".join(capsys.readouterr().err.split())
    short = config.replace(num_steps=8, total_timesteps=16, eval_max_steps=100)
    cut = purerl.run(short, progress=False)
    assert cut.best().score == 100
    np.testing.assert_array_equal(cut.evaluation["cut_episodes"], [[2]])
    assert run_table(cut).caption == (
        "2 of 2 episodes still ran after 100 steps and count with what they had "
        "earned (eval_max_steps)"
    )


@pytest.mark.slow
def test_an_agent_depends_on_no_neighbour_and_no_process():
    config = purerl.PPOConfig(env=HERE, **ROLLOUT, total_timesteps=128)
    both = purerl.run(config, seeds=[1, 2], progress=False)
    second = jax.tree.map(lambda x: x[1:], both.state)
    for mode in ("sync", "async"):
        one = config.replace(env_kwargs={"vectorization_mode": mode})
        alone = purerl.run(one, seeds=[2], progress=False)
        assert_same_bits(alone.state, second)
