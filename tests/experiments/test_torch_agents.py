"""The PyTorch agents of the studies learn as purerl's: one step on copied weights.

Their noise is zero here, so that both see the same; a layer norm's epsilon is not quite
the same in the two libraries (1e-6 and 1e-5), which the tolerances allow for.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from purerl import presets
from purerl.acting.environment import resolve_env
from purerl.acting.rollout import Transition
from purerl.algorithms import mpo, sac, td3, vpg
from purerl.algorithms.off_policy import Learner
from purerl.learning.branches import StepCount
from purerl.learning.returns import gae
from purerl.losses.mpo import Improvement, temperature_dual
from purerl.networks.distributions import Gaussian
from purerl.replay.batches import Batch
from tests.algorithms.agents import agent_of, algorithm_of, samples_of

torch = pytest.importorskip("torch")
from torch_agents import mpo as torch_mpo  # noqa: E402
from torch_agents import ppo as torch_ppo  # noqa: E402
from torch_agents import sac as torch_sac  # noqa: E402
from torch_agents import td3 as torch_td3  # noqa: E402
from torch_agents import vpg as torch_vpg  # noqa: E402

SIZE, OBS = 16, 3
MODULES = {"td3": td3, "sac": sac, "mpo": mpo}
RNG = np.random.default_rng(0)


def numbers(*shape):
    return RNG.normal(size=shape).astype(np.float32)


DATA = {
    "obs": numbers(SIZE, OBS),
    "action": np.tanh(numbers(SIZE, 1)),
    "reward": numbers(SIZE),
    "next_obs": numbers(SIZE, OBS),
    "discount": 0.99 * (RNG.random(SIZE) < 0.8).astype(np.float32),
}


@pytest.fixture
def batch():
    return {key: torch.from_numpy(value) for key, value in DATA.items()}


def ours(name):
    config = presets.load(f"{name}-jaxrl").replace(env="Pendulum-v1")
    module = MODULES[name]
    parts = module.build(config, resolve_env(config))
    state = module.init(parts, jax.random.key(0))
    learner = Learner(state.params, state.target_params, state.opt_state)
    return parts, learner, Batch(**DATA, weight=np.ones(SIZE, np.float32))


def weights_of(tree):
    """Kernels, biases, scales of an actor's or a critic's layers, as PyTorch has them.

    Outputs beside each other (mean and log standard deviation) are one layer there.
    """
    torso = tree.get("torso") or tree.get("MLP_0")
    flat = []
    for i in range(len([name for name in torso if name.startswith("Dense")])):
        flat += [torso[f"Dense_{i}"]["kernel"].T, torso[f"Dense_{i}"]["bias"]]
        if f"LayerNorm_{i}" in torso:
            norm = torso[f"LayerNorm_{i}"]
            flat += [norm["scale"], norm["bias"]]
    heads = [tree[name] for name in sorted(tree) if name.startswith("Dense")]
    flat.append(np.concatenate([head["kernel"].T for head in heads]))
    flat.append(np.concatenate([head["bias"] for head in heads]))
    return [np.array(x) for x in flat]


def copy_into(network, tree):
    for old, new in zip(network.parameters(), weights_of(tree), strict=True):
        assert old.shape == new.shape
        old.data = torch.from_numpy(new.copy())


def copy_agent(agent, params):
    copy_into(agent.actor, params["actor"]["params"])
    critics = params["critics"]["params"]
    copy_into(agent.critics.first, critics["ActionCritic_0"])
    copy_into(agent.critics.second, critics["ActionCritic_1"])
    agent.target_critics.load_state_dict(agent.critics.state_dict())
    if hasattr(agent, "target_actor"):
        agent.target_actor.load_state_dict(agent.actor.state_dict())


def assert_equal(network, tree, before):
    moved = 0.0
    for own, theirs, old in zip(
        weights_of(tree), network.parameters(), weights_of(before), strict=True
    ):
        # Adam's first step is the sign of a gradient, and rounding turns a few that
        # are all but zero.
        assert np.mean(np.abs(theirs.detach().numpy() - own) > 3e-5) < 0.005
        moved = max(moved, float(np.abs(own - old).max()))
    assert moved > 1e-4  # Adam's first step moves a weight by the step size, 3e-4.


@pytest.mark.parametrize(
    ("name", "make", "noise"),
    [("td3", torch_td3.TD3, (SIZE, 1)), ("sac", torch_sac.SAC, (2, SIZE, 1))],
)
@pytest.mark.slow(optimised=False)
def test_a_gradient_step_is_purerls(name, make, noise, batch, monkeypatch):
    parts, learner, own = ours(name)
    agent = make(OBS, 1)
    copy_agent(agent, learner.params)
    agent.count = 1  # The policy is due.
    monkeypatch.setattr(torch, "randn_like", torch.zeros_like)
    agent.learn(batch)
    after, *_ = MODULES[name].learn(
        parts, learner, own, jnp.zeros(noise), StepCount(jnp.uint32(1))
    )
    before = learner.params
    assert_equal(
        agent.actor, after.params["actor"]["params"], before["actor"]["params"]
    )
    for network, layer in (
        (agent.critics.first, "ActionCritic_0"),
        (agent.critics.second, "ActionCritic_1"),
    ):
        assert_equal(
            network,
            after.params["critics"]["params"][layer],
            before["critics"]["params"][layer],
        )
    if name == "sac":
        temperature = float(agent.log_temperature.detach())
        assert temperature == pytest.approx(
            float(after.params["log_temperature"]), abs=1e-6
        )


def test_mpos_loss_is_purerls(batch):
    parts, learner, own = ours("mpo")
    agent = torch_mpo.MPO(OBS, 1)
    copy_agent(agent, learner.params)
    raw, q_values, target = numbers(20, SIZE, 1), numbers(20, SIZE), numbers(SIZE)
    weights = np.array(jax.nn.softmax(q_values / 0.7, 0))
    mean, std = numbers(SIZE, 1), np.exp(0.1 * numbers(SIZE, 1))
    old = torch.distributions.Normal(torch.from_numpy(mean), torch.from_numpy(std))
    tensors = [torch.from_numpy(x) for x in (raw, q_values, weights)]
    theirs = agent._loss(batch, torch.from_numpy(target), old, *tensors)
    improvement = Improvement(
        Gaussian(mean, np.log(std)), raw, q_values, weights, jnp.float32(0.7)
    )
    total, _ = mpo.loss(parts, learner.params, own, target, improvement)
    assert float(theirs.detach()) == pytest.approx(float(total), rel=1e-4)
    assert torch_mpo.dual(0.7, q_values) == pytest.approx(
        float(temperature_dual(0.7, q_values, 0.1)), rel=1e-5
    )


def test_ppos_advantages_are_purerls():
    rewards, values, next_values = (numbers(12, 2) for _ in range(3))
    terminated = RNG.random((12, 2)) < 0.2
    truncated = ~terminated & (RNG.random((12, 2)) < 0.2)
    theirs = torch_ppo.advantages(
        *(torch.from_numpy(x) for x in (rewards, values, next_values)),
        torch.from_numpy(terminated).float(),
        torch.from_numpy(terminated | truncated).float(),
        0.9,
        0.8,
    )
    own = gae(
        rewards, values, next_values, terminated, truncated, gamma=0.9, gae_lambda=0.8
    )
    np.testing.assert_allclose(theirs.numpy(), own, rtol=1e-4, atol=1e-5)


@pytest.mark.slow(optimised=False)
def test_vpgs_update_is_purerls():
    steps, copies = 12, 2
    config = presets.load("vpg-halfcheetah").replace(
        env="Pendulum-v1",
        env_kwargs={},
        reset_scheme="fresh",
        num_envs=copies,
        num_steps=steps,
        total_timesteps=steps * copies,
    )
    parts = agent_of(config)
    state = algorithm_of(config).init(jax.random.key(0))
    rollout = {
        "obs": numbers(steps, copies, OBS),
        "action": numbers(steps, copies, 1),
        "reward": numbers(steps, copies),
        "next_obs": numbers(steps, copies, OBS),
        "terminated": RNG.random((steps, copies)) < 0.2,
        "truncated": RNG.random((steps, copies)) < 0.2,
    }
    rollout["truncated"] &= ~rollout["terminated"]
    goes_on = ~(rollout["terminated"] | rollout["truncated"])[:-1, :, None]
    following = np.where(goes_on, rollout["obs"][1:], rollout["next_obs"][:-1])
    rollout["next_obs"][:-1] = following
    transitions = Transition(
        **{key: jnp.asarray(value) for key, value in rollout.items()},
        log_prob=numbers(steps, copies),
    )
    batch = samples_of(vpg, parts, state, transitions)
    actor, *_ = vpg.improve_policy(parts, state, batch)
    critic, *_ = vpg.fit_value(parts, state, batch)

    agent = torch_vpg.VPG(OBS, 1)
    copy_into(agent.actor, state.params["actor"]["params"])
    copy_into(agent.critic, state.params["critic"]["params"])
    given = {key: torch.from_numpy(np.asarray(x)) for key, x in rollout.items()}
    done = given.pop("truncated") | given["terminated"]
    given |= {"terminated": given["terminated"].float(), "done": done.float()}
    judged = agent.judge(given)
    for name in ("advantage", "target"):
        np.testing.assert_allclose(
            judged[name].numpy(), getattr(batch, name), rtol=1e-3, atol=1e-4
        )
    agent.learn(judged)
    assert_equal(agent.actor, actor["params"], state.params["actor"]["params"])
    # Eighty steps of Adam take rounding further than one.
    for own, theirs in zip(
        weights_of(critic["params"]), agent.critic.parameters(), strict=True
    ):
        np.testing.assert_allclose(theirs.detach().numpy(), own, atol=5e-3)
