"""The pages on own parts, followed literally: they run, and what they claim holds."""

import ast

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import purerl
from purerl import envs, serialise
from purerl.algorithms import ALGORITHMS, Entry, register
from purerl.config import ConfigError
from tests.docs import pages

DOCS = pages.ROOT / "docs"
ENVIRONMENT, LOSS, PARTS, ALGORITHM = (
    DOCS / f"adding-{name}.md" for name in ("environment", "loss", "parts", "algorithm")
)
pytestmark = pytest.mark.slow


def lane(tree, index):
    return jax.tree.map(lambda x: x[index], tree)


def assert_close(one, other):
    for x, y in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-3, atol=1e-4)


# An environment


@pytest.fixture(scope="module")
def environment():
    return pages.run(ENVIRONMENT)


def test_the_environment_keeps_the_contract_under_its_name(environment):
    assert "Tightrope-v0" in envs.registered()
    assert envs.source_of("Tightrope-v0") == "registered"
    params = environment["TightropeParams"](wind=0.3, edge=0.2)
    envs.check(envs.make("Tightrope-v0"), params, jax.random.key(3))
    assert hash(environment["Tightrope"]()) == hash(environment["Tightrope"]())


def test_ppo_learns_to_stay_on_the_rope(environment):
    length = environment["result"].metrics["episode_length"]
    assert jnp.nanmean(length[:2]) < 35
    assert jnp.nanmean(length[-3:]) > 40
    np.testing.assert_array_equal(
        environment["result"].evaluation["episode_return"], 50.0
    )


def test_every_wind_is_a_lane_and_a_gale_is_worse_than_a_calm(environment):
    gusty = environment["gusty"]
    returns = gusty.evaluation["episode_return"].mean((1, 2))
    np.testing.assert_array_equal(returns[:2], 50.0)
    assert returns[2] < 40


# A loss


@pytest.fixture(scope="module")
def a_loss():
    return pages.run(LOSS)


def test_the_drift_holds_the_policy_back(a_loss):
    free, held, tight = a_loss["tighter"].metrics["approx_kl_last"].mean(1)
    assert free > 5 * held > 10 * tight > 0


def test_the_drift_is_the_divergence_of_the_old_from_the_new_policy(a_loss):
    old, new = jax.nn.log_softmax(
        2.0 * jax.random.normal(jax.random.key(1), (2, 5)), axis=-1
    )
    drift = a_loss["KLDrift"](3.0)(new - old, jnp.ones(5))
    expected = 3.0 * (jnp.exp(old) * (old - new)).sum()
    np.testing.assert_allclose((jnp.exp(old) * drift).sum(), expected, rtol=1e-5)


def test_the_term_keeps_neighbouring_policies_near(a_loss):
    distance = a_loss["nearer"].metrics["near_policies"].mean(1)
    assert np.all(np.diff(distance) < 0)


def test_losses_are_written_and_read_by_their_names(a_loss, tmp_path):
    assert a_loss["written"] == {"type": "KLDrift", "beta": 1.0}
    serialise.to_yaml(a_loss["config"], tmp_path / "config.yaml")
    assert serialise.from_yaml(tmp_path / "config.yaml") == a_loss["config"]


# A part of an agent


@pytest.fixture(scope="module")
def parts():
    return pages.run(PARTS)


def test_every_part_is_in_the_agents_and_its_numbers_are_lanes(parts):
    metrics, state = parts["agents"].metrics, parts["agents"].state
    assert metrics["env_steps"].shape == (3, 4)
    for name in ("policy_loss", "value_loss", "entropy"):
        assert np.isfinite(metrics[name]).all()
    # A pole of the third agent has the length of its range, which is one number.
    lengths = np.asarray(state.envs.state.drawn["length"])
    assert len(np.unique(lengths[0])) > 1
    assert (lengths[:2] >= 0.3).all() and (lengths[:2] <= 0.9).all()
    np.testing.assert_array_equal(lengths[2], np.float32(0.3))
    # The first two differ in the optimiser alone, and begin alike.
    assert metrics["entropy"][0, -1] != metrics["entropy"][1, -1]
    widths = [x.shape[1:] for x in jax.tree.leaves(state.params)]
    assert (4 + 16, 16) in widths  # numbers and products of pairs


def test_the_memory_acts_as_it_learns_and_forgets_at_resets(parts):
    memory = parts["OneStep"](3)
    inputs = jax.random.normal(jax.random.key(0), (5, 2, 4))
    resets = jnp.zeros((5, 2), bool).at[3, 0].set(True)
    start = memory.initial((2,))
    params = memory.init(jax.random.key(1), start, inputs, resets)
    whole, outputs = memory.apply(params, start, inputs, resets)
    carry, steps = start, []
    for step in range(5):
        one = slice(step, step + 1)
        carry, output = memory.apply(params, carry, inputs[one], resets[one])
        steps.append(output)
    np.testing.assert_allclose(outputs, jnp.concatenate(steps), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(whole, carry, rtol=1e-6)
    other = memory.apply(params, start, inputs.at[2].add(1.0), resets)[1]
    np.testing.assert_array_equal(outputs[3, 0], other[3, 0])
    assert (outputs[3, 1] != other[3, 1]).any()


def test_the_numbers_of_the_parts_are_those_of_their_definitions(parts):
    tooth = parts["Sawtooth"](0.8, teeth=2)
    numbers = [float(tooth(jnp.float32(share))) for share in (0, 0.25, 0.5, 0.75)]
    np.testing.assert_allclose(numbers, [0.8, 0.4, 0.8, 0.4])
    draws = jax.vmap(parts["Triangular"](1.0, 3.0))(
        jax.random.split(jax.random.key(0), 4_000)
    )
    assert draws.min() >= 1.0 and draws.max() <= 3.0
    # The variance of the mean of two uniform numbers is a 24th of the squared range.
    np.testing.assert_allclose(draws.mean(), 2.0, atol=0.03)
    np.testing.assert_allclose(draws.var(), 4.0 / 24.0, atol=0.01)


def test_the_parts_are_written_and_read(parts, tmp_path):
    serialise.to_yaml(parts["named"], tmp_path / "config.yaml")
    assert serialise.from_yaml(tmp_path / "config.yaml") == parts["named"]
    assert serialise.parse_part("Sawtooth(start=0.1)") == parts["Sawtooth"](0.1)


# An algorithm


@pytest.fixture(scope="module")
def algorithm():
    return pages.run(ALGORITHM)


def test_the_policy_takes_the_action_that_the_observation_asks_for(algorithm):
    policy = algorithm["policy"]
    np.testing.assert_array_equal(policy(jnp.array([[-1.0], [1.0]])), [0, 1])
    one = algorithm["one"]
    np.testing.assert_array_equal(one.evaluation["episode_return"], np.ones((1, 8)))
    assert one.metrics["episode_return"][-1] > 0.9


def test_the_critic_learns_the_values_of_the_probes(algorithm):
    np.testing.assert_allclose(algorithm["delayed"], [0.7, 1.0], atol=0.04)
    powers = [0.9**4, 0.9**3, 0.9**2, 0.9, 1.0]
    np.testing.assert_allclose(algorithm["chain"], powers, atol=0.05)


def test_seeds_learn_and_one_learning_rate_does_not(algorithm):
    returns = algorithm["seeds"].metrics["episode_return"]
    assert len(np.unique(returns[:, 0])) > 1
    assert (returns[:, -1] > 0.9).all()
    slow, fast = algorithm["swept"].metrics["episode_return"][:, -10:].mean(1)
    assert abs(slow) < 0.3 and fast > 0.9
    hosted = algorithm["hosted"]
    assert hosted.finished and hosted.seeds == (0, 1)
    np.testing.assert_array_equal(hosted.evaluation["episode_return"], 1.0)


def test_it_learns_continuous_actions_as_they_are(algorithm):
    config = algorithm["config"].replace(env="probe/continuous", log_std_init=-0.5)
    result = jax.jit(purerl.make_train(config))(jax.random.key(0))
    returns = result.metrics["episode_return"]
    assert returns[-10:].mean() > returns[:3].mean() + 0.1


def test_the_algorithm_has_at_most_80_lines():
    block = next(iter(pages.blocks(ALGORITHM)))
    assert 'register("a2c"' in block.code
    assert len([line for line in block.code.splitlines() if line.strip()]) <= 80


# Registering


class OtherConfig(purerl.PPOConfig):
    """A config class of its own."""


@pytest.mark.parametrize(
    ("name", "config"), [("ppo", OtherConfig), ("other", purerl.PPOConfig)]
)
def test_a_name_or_a_config_is_registered_once(name, config):
    before = dict(ALGORITHMS)
    entry = Entry(config, *ALGORITHMS["ppo"][1:])
    with pytest.raises(ConfigError) as error:
        register(name, entry)
    for fragment in (repr(name), "'ppo' with PPOConfig is registered already"):
        assert fragment in str(error.value)
    assert before == ALGORITHMS


def test_the_same_cell_may_run_twice():
    def cell():
        @purerl.config.config_dataclass
        class MineConfig(purerl.PPOConfig):
            """A config of a notebook."""

        register("mine", Entry(MineConfig, *ALGORITHMS["ppo"][1:]))
        return MineConfig()

    first, second = cell(), cell()
    assert serialise.from_dict(serialise.to_dict(second)) == second
    with pytest.raises(ConfigError, match=r"MineConfig was made before .* make the co"):
        purerl.make_train(first)


# The page itself


def test_the_wrong_and_right_pairs_are_python():
    pairs = list(pages.blocks(DOCS / "adding.md", "Common pitfalls"))
    assert len(pairs) >= 10
    for block in pairs:
        assert block.language == "py"  # shown, not run
        assert "# wrong" in block.code and "# right" in block.code
        lines = "".join(f"    {line}\n" for line in block.code.splitlines())
        ast.parse("def shown():\n" + lines)
