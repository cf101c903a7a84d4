"""The update of VPG and TD3, split into loss, gradient and Adam, beside PyTorch's.

python experiments/studies/jax4rl.py [--quick]
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from measure import compiled, timed, torch_threads
from study import Budget, Findings, Row, main, study_of

# isort: split
from pictures import legend_below, style

import purerl
from purerl import envs, presets
from purerl.acting.environment import resolve_env
from purerl.algorithms import policy_gradient, td3, vpg
from purerl.algorithms.off_policy import Learner
from purerl.algorithms.policy_gradient import Batch as Rollout
from purerl.learning.branches import StepCount
from purerl.replay.batches import Batch

STUDY, WORDS = study_of("jax4rl", "JAX 4 Deep RL")
OBS, ACTIONS = 17, 6
SAMPLES, BATCH, TD3_STEPS = 5_000, 100, 50
TD3_SIZES = (256, 256, 256)
VALUE_STEPS = 80
# Piece -> how often an update takes it. A loss alone is a part of the one with its
# gradient, and taken by no update.
CALLS = {
    "VPG": {
        "policy: loss and gradient": 1,
        "policy: Adam": 1,
        "value: loss and gradient": VALUE_STEPS,
        "value: Adam": VALUE_STEPS,
    },
    "TD3": {
        "critics: loss and gradient": TD3_STEPS,
        "critics: Adam": TD3_STEPS,
        "policy: loss and gradient": TD3_STEPS // 2,
        "policy: Adam": TD3_STEPS // 2,
    },
}
Calls = dict[str, tuple[Any, ...]]  # Piece -> a function and its arguments.


class Sizes(envs.Environment):
    """Nothing but the spaces of HalfCheetah: no step is ever taken in it."""

    default_params = property(lambda self: envs.EnvParams(max_steps_in_episode=1_000))

    def reset_env(self, key: Any, params: Any) -> Any:
        return jnp.zeros(OBS), envs.EnvState(time=jnp.int32(0))

    def step_env(self, key: Any, state: Any, action: Any, params: Any) -> Any:
        zero = jnp.float32(0)
        state = state.replace(time=state.time + 1)
        return jnp.zeros(OBS), state, zero, jnp.bool_(False), {}

    def action_space(self, params: Any = None) -> Any:
        return envs.spaces.Box(-1.0, 1.0, (ACTIONS,))

    def observation_space(self, params: Any = None) -> Any:
        return envs.spaces.Box(-jnp.inf, jnp.inf, (OBS,))


def our_times(calls: Calls, repeats: int) -> dict[str, float]:
    """Compile functions with their arguments; return milliseconds of a call."""
    found = {}
    for name, (function, *args) in calls.items():
        call, _ = compiled(function, *args)
        timed(call, *args)
        found[name] = 1e3 * timed(call, *args, repeats=repeats)
    return found


def vpg_config(env: Any) -> purerl.VPGConfig:
    """Return the source's best settings of VPG, in an environment."""
    config = presets.load("vpg-halfcheetah")
    assert isinstance(config, purerl.VPGConfig)
    changes: dict[str, Any] = {"env_kwargs": {}, "reset_scheme": "fresh"}
    return config.replace(env=env, num_evaluations=0, **changes)


def vpg_example(config: purerl.VPGConfig) -> tuple[Any, Any, Rollout]:
    """Return our VPG's parts and first state, and a batch of noise to learn from."""
    env = resolve_env(config)
    parts = policy_gradient.make_agent(config, env)
    keys = jax.random.split(jax.random.key(0), 5)
    (obs,) = env.observation_space(env.default_params).shape
    (actions,) = env.action_space(env.default_params).shape
    number = jax.random.normal(keys[1], (SAMPLES,))
    batch = Rollout(
        obs=jax.random.normal(keys[2], (SAMPLES, obs)),
        action=jax.random.normal(keys[3], (SAMPLES, actions)),
        log_prob=number,
        value=number,
        advantage=number,
        target=number,
    )
    return parts, purerl.make_algorithm(config).init(keys[0]), batch


def vpg_update(parts: Any, state: Any, batch: Rollout) -> tuple[Any, Any]:
    """Take our VPG's step of the policy and all of the critic."""
    actor, *_ = vpg.improve_policy(parts, state, batch)
    critic, *_ = vpg.fit_value(parts, state, batch)
    return actor, critic


def adam_step(params: Any, moments: Any) -> tuple[Any, Any]:
    """Take a step of Adam; the parameters stand for the gradient, too."""
    updates, moments = optax.adam(1e-3).update(params, moments)
    return optax.apply_updates(params, updates), moments


def adam_call(params: Any) -> tuple[Any, ...]:
    """Return a step of Adam and its arguments."""
    return adam_step, params, optax.adam(1e-3).init(params)


def our_vpg() -> Calls:
    """Return the pieces of our VPG."""
    config = vpg_config(Sizes())
    parts, state, batch = vpg_example(config)
    actor, critic = state.params["actor"], state.params["critic"]

    def value_loss(critic: Any, batch: Any) -> Any:
        value: Any = parts.critic.apply(critic, batch.obs)
        return config.value_loss(value, batch.target, batch.value).mean()

    def policy_loss(actor: Any, batch: Any) -> Any:
        return vpg.policy_loss(parts, actor, batch)[0]

    return {
        "policy: loss": (policy_loss, actor, batch),
        "policy: loss and gradient": (jax.value_and_grad(policy_loss), actor, batch),
        "policy: Adam": adam_call(actor),
        "value: loss": (value_loss, critic, batch),
        "value: loss and gradient": (jax.value_and_grad(value_loss), critic, batch),
        "value: Adam": adam_call(critic),
        "whole update": (partial(vpg_update, parts), state, batch),
    }


def random_learner(
    module: Any, config: Any, size: int, obs: int, actions: int
) -> tuple[Any, Learner, Batch, jax.Array]:
    """Return an off-policy algorithm's parts and first state, and a batch of noise.

    Args:
        module: The algorithm's module.
        config: Its config.
        size: Number of transitions.
        obs: Size of an observation.
        actions: Size of an action.

    Returns:
        Parts, state of the learner, batch, and the key that the first state is of.
    """
    parts = module.build(config, resolve_env(config))
    keys = jax.random.split(jax.random.key(0), 5)
    state = module.init(parts, keys[0])
    batch = Batch(
        obs=jax.random.normal(keys[1], (size, obs)),
        action=jax.random.uniform(keys[2], (size, actions), minval=-1.0),
        reward=jax.random.normal(keys[3], (size,)),
        next_obs=jax.random.normal(keys[4], (size, obs)),
        discount=jnp.full(size, 0.99),
        weight=jnp.ones(size),
    )
    learner = Learner(state.params, state.target_params, state.opt_state)
    return parts, learner, batch, keys[0]


def our_td3() -> Calls:
    """Return the pieces of our TD3."""
    config = purerl.TD3Config(env=Sizes(), hidden_sizes=TD3_SIZES, batch_size=BATCH)
    parts, learner, batch, _ = random_learner(td3, config, BATCH, OBS, ACTIONS)
    noise = jax.random.normal(jax.random.key(1), (TD3_STEPS, BATCH, ACTIONS))
    actor, critics = learner.params["actor"], learner.params["critics"]

    def policy_loss(actor: Any, batch: Any) -> Any:
        action: Any = parts.actor.apply(actor, batch.obs)
        return -parts.critics.apply(critics, batch.obs, action)[0].mean()

    def loss(critics: Any, batch: Any, noise: Any) -> Any:
        target = td3.td_target(parts, learner.target_params, batch, noise)
        pair: Any = parts.critics.apply(critics, batch.obs, batch.action)
        return sum(0.5 * jnp.square(q - target).mean() for q in pair)

    def update(learner: Any, noise: Any) -> Any:
        def one(learner: Any, xs: Any) -> Any:
            noise, count = xs
            return td3.learn(parts, learner, batch, noise, StepCount(count))[0], None

        counts = jnp.arange(TD3_STEPS, dtype=jnp.uint32)
        return jax.lax.scan(one, learner, (noise, counts))[0]

    gradient = jax.value_and_grad(loss)
    return {
        "critics: loss": (loss, critics, batch, noise[0]),
        "critics: loss and gradient": (gradient, critics, batch, noise[0]),
        "critics: Adam": adam_call(critics),
        "policy: loss": (policy_loss, actor, batch),
        "policy: loss and gradient": (jax.value_and_grad(policy_loss), actor, batch),
        "policy: Adam": adam_call(actor),
        "whole update": (update, learner, noise),
    }


def torch_times(calls: dict[str, Callable[[], Any]], repeats: int) -> dict[str, float]:
    """Return milliseconds of a call of each function, with one thread."""
    torch_threads(1)
    found = {}
    for name, call in calls.items():
        call()
        found[name] = 1e3 * timed(call, repeats=repeats)
    return found


def noise_for_vpg(size: int, obs: int, actions: int) -> dict[str, Any]:
    """Return a batch of noise for PyTorch's VPG."""
    import torch

    number = torch.randn(size)
    numbers = {"advantage": number, "target": number}
    seen = {"obs": torch.randn(size, obs), "action": torch.randn(size, actions)}
    return {**seen, **numbers}


def torch_pieces(
    agent: Any, batch: Any, names: dict[str, str], whole: Callable[[], Any]
) -> dict[str, Callable[[], Any]]:
    """Return the pieces of a PyTorch agent, in an order in which gradients are there.

    Args:
        agent: The agent.
        batch: What it learns from.
        names: Piece -> name of its loss and of its optimiser in the agent.
        whole: The whole update.
    """
    from torch_agents.common import differentiate

    found: dict[str, Callable[[], Any]] = {}
    for piece, (loss, adam) in ((k, v.split()) for k, v in names.items()):
        loss_of, optimiser = getattr(agent, loss), getattr(agent, adam)
        found[f"{piece}: loss"] = partial(loss_of, batch)
        found[f"{piece}: loss and gradient"] = partial(
            lambda loss, adam: differentiate(loss(batch), adam), loss_of, optimiser
        )
        found[f"{piece}: Adam"] = optimiser.step
    return {**found, "whole update": whole}


def torch_vpg() -> dict[str, Callable[[], Any]]:
    """Return the pieces of PyTorch's VPG."""
    from torch_agents.vpg import VPG

    agent, batch = VPG(OBS, ACTIONS), noise_for_vpg(SAMPLES, OBS, ACTIONS)
    names = {"policy": "policy_loss adam_actor", "value": "value_loss adam_critic"}
    return torch_pieces(agent, batch, names, lambda: agent.learn(batch))


def torch_td3() -> dict[str, Callable[[], Any]]:
    """Return the pieces of PyTorch's TD3."""
    from torch_agents.common import random_batch
    from torch_agents.td3 import TD3

    agent, batch = TD3(OBS, ACTIONS, TD3_SIZES), random_batch(BATCH, OBS, ACTIONS)
    agent.learn(batch)
    names = {"critics": "critic_loss adam_critics", "policy": "actor_loss adam_actor"}
    whole = lambda: [agent.learn(batch) for _ in range(TD3_STEPS)]  # noqa: E731
    return torch_pieces(agent, batch, names, whole)


# Algorithm -> what returns the pieces of ours and of PyTorch's.
PIECES = {"VPG": (our_vpg, torch_vpg), "TD3": (our_td3, torch_td3)}


def measure(budget: Budget) -> Findings:
    """Measure everything, part by part."""
    repeats = 3 if budget.quick else 50

    def ours(name: str) -> Any:
        return our_times(PIECES[name][0](), repeats)

    def theirs(name: str) -> Any:
        return torch_times(PIECES[name][1](), repeats)

    found = {
        name: {
            "purerl": budget.part(f"{name}-ours", ours, name, n=repeats),
            "PyTorch": budget.part(f"{name}-torch", theirs, name, n=repeats),
        }
        for name in PIECES
    }
    caption = (
        "Milliseconds of an update. Each piece was compiled and timed on its own, and "
        "multiplied by how often an update calls it; the whole update was timed in one "
        "piece."
    )
    figures = [budget.save(figure_of(found), "split", caption)]
    rows = []
    for name, both in found.items():
        ours_, theirs_ = (both[kind]["whole update"] for kind in ("purerl", "PyTorch"))
        steps = f"{TD3_STEPS} gradient steps"
        if name == "VPG":
            steps = f"a step of the policy and {VALUE_STEPS} of the critic"
        rows.append(
            Row(
                f"{name}: the update ({steps})",
                "in percent of PyTorch's, only in a figure",
                f"{ours_:.1f} ms against {theirs_:.1f} ms: {100 * ours_ / theirs_:.0f} "
                "%",
                "purerl makes one call of a compiled program; PyTorch one Python call "
                "per operation.",
            )
        )
    texts = [WORDS[f"text {number}"] for number in (1, 2)]
    return Findings(rows, figures, texts)


def figure_of(found: dict[str, Any]) -> Any:
    """Draw milliseconds of an update, in pieces and whole, of both algorithms."""
    figure = style.new_figure(height=3.9)
    panels = figure.subplots(1, 2)
    for axes, (name, both) in zip(panels, found.items(), strict=True):
        calls = {**CALLS[name], "whole update": 1}
        places = np.arange(len(calls))
        for i, (kind, times) in enumerate(both.items()):
            values = [times[piece] * count for piece, count in calls.items()]
            where = places + (i - 0.5) * 0.4
            axes.barh(where, values, 0.38, color=style.COLOURS[i], label=kind)
            for place, value in zip(where, values, strict=True):
                words = f" {value:.2g}" if value < 10 else f" {value:.0f}"
                axes.text(value, place, words, va="center", fontsize=8, color=style.INK)
        labels = [
            f"{piece}, {count} times" if count > 1 else piece
            for piece, count in calls.items()
        ]
        axes.set_yticks(places, labels)
        axes.invert_yaxis()
        axes.margins(x=0.12)
        style.finish(axes, name, "milliseconds of an update", "")
        axes.grid(visible=False, axis="y")
    legend_below(figure, panels[0])
    return figure


if __name__ == "__main__":
    main(STUDY, measure)
