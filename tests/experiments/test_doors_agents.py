"""DQN of the study "doors": one gradient step in three stacks, targets, replay, scores.

`loop` and `flax_dqn` are compared with closed forms; PyTorch's learner where it is
installed.
"""

import itertools

import numpy as np
import pytest
from doors_agents import config as settings
from doors_agents import loop

from purerl.envs.doors import MOVES, Doors

RNG = np.random.default_rng(0)
CONFIG = settings.make_config(quick=True).replace(
    hidden_sizes=(4,), batch_size=6, target_update_interval=2, max_grad_norm=0.5
)


def batch(seed=0, size=6):
    rng = np.random.default_rng(seed)
    return loop.Batch(
        obs=rng.normal(size=(size, 225)).astype(np.float32),
        action=rng.integers(0, 5, size),
        reward=rng.normal(size=size).astype(np.float32),
        next_obs=rng.normal(size=(size, 225)).astype(np.float32),
        terminated=(rng.random(size) < 0.5).astype(np.float32),
    )


def forward(weights, obs):
    (w1, b1), (w2, b2) = weights
    return np.maximum(obs @ w1 + b1, 0) @ w2 + b2


def reference(weights, batches, config):
    """DQN's steps in NumPy with gradients by hand, in double precision."""
    weights = [[np.float64(x) for x in layer] for layer in weights]
    target = [list(layer) for layer in weights]
    first = [[np.zeros_like(x) for x in layer] for layer in weights]
    second = [[np.zeros_like(x) for x in layer] for layer in weights]
    for step, (obs, action, reward, next_obs, terminated) in enumerate(batches, 1):
        n = len(action)
        future = forward(target, next_obs).max(-1)
        goal = reward + config.gamma * (1 - terminated) * future
        (w1, b1), (w2, _) = weights
        hidden = np.maximum(obs @ w1 + b1, 0)
        error = np.zeros((n, 5))
        rows = np.arange(n)
        error[rows, action] = (forward(weights, obs)[rows, action] - goal) / n
        back = (error @ w2.T) * (hidden > 0)
        grads = [[obs.T @ back, back.sum(0)], [hidden.T @ error, error.sum(0)]]
        norm = np.sqrt(sum((g**2).sum() for layer in grads for g in layer))
        assert norm > config.max_grad_norm  # else clipping is not tried
        for i, layer in enumerate(grads):
            for j, grad in enumerate(layer):
                grad = grad * config.max_grad_norm / norm
                first[i][j] = 0.9 * first[i][j] + 0.1 * grad
                second[i][j] = 0.999 * second[i][j] + 0.001 * grad**2
                mean = first[i][j] / (1 - 0.9**step)
                size = np.sqrt(second[i][j] / (1 - 0.999**step))
                move = config.learning_rate * mean / (size + config.optimiser.eps)
                weights[i][j] = weights[i][j] - move
        if step % config.target_update_interval == 0:
            target = [list(layer) for layer in weights]
    return weights


def flax_learner():
    from doors_agents.flax_dqn import FlaxLearner

    learner = FlaxLearner(CONFIG, 0)

    def weights():
        layers = learner.state.params["params"]
        return [
            [np.asarray(layers[f"Dense_{i}"][name]) for name in ("kernel", "bias")]
            for i in range(2)
        ]

    return learner, weights


def torch_learner():
    pytest.importorskip("torch")
    from doors_agents.torch_dqn import TorchLearner

    learner = TorchLearner(CONFIG, 0)

    def weights():
        layers = [learner.network[0], learner.network[2]]
        return [
            [x.weight.detach().numpy().T.copy(), x.bias.detach().numpy().copy()]
            for x in layers
        ]

    return learner, weights


@pytest.mark.parametrize("make", [flax_learner, torch_learner])
@pytest.mark.slow(optimised=False)
def test_gradient_steps_equal_those_derived_by_hand(make):
    learner, weights = make()
    before = weights()
    # Orthogonal rows or columns with the gains of purerl's networks, biases 0.
    np.testing.assert_allclose(before[0][0].T @ before[0][0], 2 * np.eye(4), atol=1e-5)
    np.testing.assert_allclose(before[1][0] @ before[1][0].T, np.eye(4), atol=1e-5)
    assert not before[0][1].any() and not before[1][1].any()
    batches = [batch(seed) for seed in range(5)]
    # Adam divides by the size of the gradient, so that rounding shows where it is 0.
    wanted = reference(before, batches, CONFIG)
    for one in batches:
        learner.learn(one)
    for found, expected, old in zip(weights(), wanted, before, strict=True):
        for a, b, c in zip(found, expected, old, strict=True):
            np.testing.assert_allclose(a, b, atol=2e-6)
            assert abs(a - c).max() > 1e-3  # five steps of 5e-4
    obs = batch(9).obs
    chosen = forward(wanted, obs).argmax(-1)
    np.testing.assert_array_equal(learner.greedy(obs), chosen)


def test_replay_keeps_the_last_and_samples_all_of_them():
    replay = loop.Replay(4, 225)
    for number in range(6):
        one = batch(number, 1)
        replay.add(one._replace(reward=np.float32([number])))
        seen = set(replay.sample(RNG, 200).reward)
        assert seen == set(range(max(0, number - 3), number + 1))
    drawn = replay.sample(RNG, 8)
    for i, number in enumerate(drawn.reward):
        np.testing.assert_array_equal(drawn.obs[i], batch(int(number), 1).obs[0])


class Recorder:
    """A learner that always walks up and keeps what it is given."""

    def __init__(self):
        self.batches = []

    def greedy(self, obs):
        return np.full(len(obs), 4)

    def learn(self, batch):
        self.batches.append(batch)


def cell(obs, kind):
    return np.argwhere(obs.reshape(15, 15) == kind)


def test_the_loop_stores_what_a_step_led_to_and_learns_when_it_is_due(monkeypatch):
    recorder, kept = Recorder(), []
    add = loop.Replay.add
    monkeypatch.setattr(
        loop.Replay, "add", lambda self, b: (kept.append(b), add(self, b))
    )
    config = CONFIG.replace(
        total_timesteps=4 * 200,
        num_envs=4,
        learning_starts=40,
        epsilon_end=0.0,
        epsilon_steps=1.0,
        gradient_steps=3,
        rounds_per_update=50,
        batch_size=2,
    )
    course = loop.train(recorder, config, seed=1)
    # Rounds 10, 11, ... of 200 learn: the one that ends the 40 steps is the tenth.
    assert len(recorder.batches) == 3 * 191
    assert all(len(b.action) == 2 for b in recorder.batches)
    assert course.env_steps == [200, 400, 600, 800]
    actions = np.array([b.action for b in kept])
    assert set(actions[:10].ravel()) == set(range(5)) and (actions[10:] == 4).all()
    ended = 0
    for before, after in itertools.pairwise(kept):
        for lane in range(4):
            obs, last = before.obs[lane], before.next_obs[lane]
            (agent,), goal = cell(obs, 1), cell(obs, 3)
            moved = agent + MOVES[before.action[lane]]
            (there,) = cell(last, 1)
            assert (there == moved).all() or (there == agent).all()
            # Also in the step that ends an episode the goal has not moved.
            if not before.terminated[lane]:
                np.testing.assert_array_equal(goal, cell(last, 3))
            else:
                np.testing.assert_array_equal(there, goal[0])
            ended += not (after.obs[lane] == last).all()
    assert ended >= 12  # 4 lanes, 200 steps, at most 60 of each episode


def test_scores_of_the_shortest_path_and_of_standing_still():
    doors = Doors().doors

    def shortest(obs):
        actions = []
        for one in obs:
            goals = cell(one, 3)
            if not len(goals):  # done: what is played there does not count
                actions.append(0)
                continue
            (row, column), goal = cell(one, 1)[0], goals[0][1]
            below = row > 7
            best = min(doors, key=lambda d: abs(column - d) + abs(d - goal))
            aim = best if below else goal
            if row == 7 or column == aim:
                actions.append(4)
            else:
                actions.append(1 if aim > column else 3)
        return np.array(actions)

    best = loop.score(shortest)
    optimum = Doors().optimum()
    assert best.episode_return == pytest.approx(optimum.episode_return.mean(), rel=1e-6)
    assert best.episode_length == pytest.approx(optimum.length.mean())
    assert best.solved == 1.0 and best.stepwise == pytest.approx(0.776, abs=5e-4)
    still = loop.score(lambda obs: np.zeros(len(obs), int))
    assert still == (0.0, 60.0, 0.0)
