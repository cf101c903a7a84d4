"""The update of VPG and TD3, split into loss, gradient and Adam, beside PyTorch's.

python experiments/studies/jax4rl.py [--quick]
"""

import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from measure import compiled, one_torch_thread, timed
from study import Budget, Findings, Row, Study, Table, main

import envs
import purerl
from purerl import presets
from purerl.acting.environment import resolve_env
from purerl.algorithms import td3, vpg
from purerl.algorithms.on_policy import Batch as Rollout
from purerl.learning.branches import StepCount
from purerl.replay.batches import Batch
from purerl.report.plots import style

STUDY = Study(
    name="jax4rl",
    title="Where an update's time goes: loss, gradient, Adam",
    source='"JAX 4 Deep RL" (Glazer-Cavanagh and Aguilar-Lussier 2023), figure 6: the '
    "update of VPG and TD3 in JAX, in percent of PyTorch's",
    question="The update alone, without an environment, at the sizes of HalfCheetah "
    "(17 numbers observed, 6 actions): VPG with layers of 128-64 on 5,000 samples and "
    "80 steps of the critic; TD3 with layers of 256-256-256 on batches of 100, whose "
    "policy is improved in every second gradient step. The loss, the loss with its "
    "gradient, and a step of Adam are compiled and timed each by itself; then the "
    "whole update. Warm-up is excluded and every result is waited for.",
)
OBS, ACTIONS = 17, 6
SAMPLES, BATCH, TD3_STEPS = 5_000, 100, 50
TD3_SIZES = (256, 256, 256)


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


def _times(calls: dict[str, tuple[Any, ...]], repeats: int) -> dict[str, float]:
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
    parts = vpg.build(config, env)
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
    return parts, vpg.init(parts, keys[0]), batch


def vpg_update(parts: Any, state: Any, batch: Rollout) -> tuple[Any, Any]:
    """Take our VPG's step of the policy and all of the critic."""
    actor, *_ = vpg.improve_policy(parts, state, batch)
    critic, *_ = vpg.fit_value(parts, state, batch)
    return actor, critic


def our_vpg(repeats: int) -> dict[str, float]:
    """Time the pieces of our VPG, in milliseconds."""
    config = vpg_config(Sizes())
    parts, state, batch = vpg_example(config)
    actor, critic = state.params["actor"], state.params["critic"]

    def value_loss(critic: Any, batch: Any) -> Any:
        value: Any = parts.critic.apply(critic, batch.obs)
        return config.value_loss(value, batch.target, batch.value).mean()

    def policy_loss(actor: Any, batch: Any) -> Any:
        return vpg.policy_loss(parts, actor, batch)[0]

    adam = optax.adam(1e-3)
    moments = adam.init(critic)
    return _times(
        {
            "policy: loss": (policy_loss, actor, batch),
            "policy: loss and gradient": (
                jax.value_and_grad(policy_loss),
                actor,
                batch,
            ),
            "value: loss": (value_loss, critic, batch),
            "value: loss and gradient": (jax.value_and_grad(value_loss), critic, batch),
            "value: Adam": (adam.update, critic, moments),
            "whole update": (partial(vpg_update, parts), state, batch),
        },
        repeats,
    )


def our_td3(repeats: int) -> dict[str, float]:
    """Time the pieces of our TD3, in milliseconds."""
    config = purerl.TD3Config(env=Sizes(), hidden_sizes=TD3_SIZES, batch_size=BATCH)
    parts = td3.build(config, resolve_env(config))
    keys = jax.random.split(jax.random.key(0), 6)
    state = td3.init(parts, keys[0])
    batch = Batch(
        obs=jax.random.normal(keys[1], (BATCH, OBS)),
        action=jax.random.uniform(keys[2], (BATCH, ACTIONS), minval=-1.0),
        reward=jax.random.normal(keys[3], (BATCH,)),
        next_obs=jax.random.normal(keys[4], (BATCH, OBS)),
        discount=jnp.full(BATCH, 0.99),
        weight=jnp.ones(BATCH),
    )
    noise = jax.random.normal(keys[5], (TD3_STEPS, BATCH, ACTIONS))
    actor, critics = state.params["actor"], state.params["critics"]

    def policy_loss(actor: Any, batch: Any) -> Any:
        action: Any = parts.actor.apply(actor, batch.obs)
        return -parts.critics.apply(critics, batch.obs, action)[0].mean()

    def loss(critics: Any, batch: Any, noise: Any) -> Any:
        target = td3.td_target(parts, state.target_params, batch, noise)
        pair: Any = parts.critics.apply(critics, batch.obs, batch.action)
        return sum(0.5 * jnp.square(q - target).mean() for q in pair)

    def update(learner: Any, noise: Any) -> Any:
        def one(learner: Any, xs: Any) -> Any:
            noise, count = xs
            return td3.learn(parts, learner, batch, noise, StepCount(count))[0], None

        counts = jnp.arange(TD3_STEPS, dtype=jnp.uint32)
        return jax.lax.scan(one, learner, (noise, counts))[0]

    from purerl.algorithms.actor_critic import Learner

    learner = Learner(state.params, state.target_params, state.opt_state)
    adam = optax.adam(1e-3)
    moments = adam.init(critics)
    return _times(
        {
            "critics: loss": (loss, critics, batch, noise[0]),
            "critics: loss and gradient": (
                jax.value_and_grad(loss),
                critics,
                batch,
                noise[0],
            ),
            "critics: Adam": (adam.update, critics, moments),
            "policy: loss": (policy_loss, actor, batch),
            "policy: loss and gradient": (
                jax.value_and_grad(policy_loss),
                actor,
                batch,
            ),
            "whole update": (update, learner, noise),
        },
        repeats,
    )


def _torch_times(calls: dict[str, Callable[[], Any]], repeats: int) -> dict[str, float]:
    found = {}
    for name, call in calls.items():
        call()
        seconds = []
        for _ in range(repeats):
            began = time.perf_counter()
            call()
            seconds.append(time.perf_counter() - began)
        found[name] = 1e3 * float(np.median(seconds))
    return found


def torch_vpg(repeats: int) -> dict[str, float]:
    """Time the pieces of PyTorch's VPG, in milliseconds."""
    import torch
    from torch_agents.vpg import VPG

    one_torch_thread()
    agent = VPG(OBS, ACTIONS)
    number = torch.randn(SAMPLES)
    batch = {
        "obs": torch.randn(SAMPLES, OBS),
        "action": torch.randn(SAMPLES, ACTIONS),
        "advantage": number,
        "target": number,
    }
    return _torch_times(
        {
            "policy: loss": lambda: agent.policy_loss(batch),
            "policy: loss and gradient": lambda: agent.policy_loss(batch).backward(),
            "value: loss": lambda: agent.value_loss(batch),
            "value: loss and gradient": lambda: agent.value_loss(batch).backward(),
            "value: Adam": agent.adam_critic.step,
            "whole update": lambda: agent.learn(batch),
        },
        repeats,
    )


def torch_td3(repeats: int) -> dict[str, float]:
    """Time the pieces of PyTorch's TD3, in milliseconds."""
    from torch_agents.common import random_batch
    from torch_agents.td3 import TD3

    one_torch_thread()
    agent, batch = TD3(OBS, ACTIONS, TD3_SIZES), random_batch(BATCH, OBS, ACTIONS)
    agent.learn(batch)
    return _torch_times(
        {
            "critics: loss": lambda: agent.critic_loss(batch),
            "critics: loss and gradient": lambda: agent.critic_loss(batch).backward(),
            "critics: Adam": agent.adam_critics.step,
            "policy: loss": lambda: agent.actor_loss(batch),
            "policy: loss and gradient": lambda: agent.actor_loss(batch).backward(),
            "whole update": lambda: [agent.learn(batch) for _ in range(TD3_STEPS)],
        },
        repeats,
    )


def profile(folder: Path) -> None:
    """Write pages that show where Python spends an update's time.

    Args:
        folder: Where `profile-purerl.html` and `profile-pytorch.html` go.
    """
    from pyinstrument import Profiler

    for name, measure in (("purerl", our_td3), ("pytorch", torch_td3)):
        with Profiler() as profiler:
            measure(20)
        folder.mkdir(parents=True, exist_ok=True)
        profiler.write_html(folder / f"profile-{name}.html")


def measure(budget: Budget) -> Findings:
    """Measure everything, part by part."""
    repeats = 3 if budget.quick else 50
    found = {
        name: {
            "purerl": budget.part(f"{name}-ours", lambda f=ours: f(repeats), n=repeats),
            "PyTorch": budget.part(
                f"{name}-torch", lambda f=theirs: f(repeats), n=repeats
            ),
        }
        for name, ours, theirs in (
            ("VPG", our_vpg, torch_vpg),
            ("TD3", our_td3, torch_td3),
        )
    }
    budget.part("profiles", lambda: profile(budget.folder), n=repeats)
    figure = budget.save(
        figure_of(found),
        "split",
        "Milliseconds of each piece of an update, compiled and timed by itself.",
    )
    rows = []
    for name, both in found.items():
        ours, theirs = (both[kind]["whole update"] for kind in ("purerl", "PyTorch"))
        steps = (
            "a step of the policy and 80 of the critic"
            if name == "VPG"
            else f"{TD3_STEPS} gradient steps"
        )
        rows.append(
            Row(
                f"{name}: the update ({steps})",
                "in percent of PyTorch's, only in a figure",
                f"{ours:.1f} ms against {theirs:.1f} ms: {100 * ours / theirs:.0f} %",
                "One call of one program, against one call of Python per operation.",
            )
        )
    table = Table(
        "Milliseconds of each piece",
        ["algorithm", "piece", "purerl", "PyTorch", "percent"],
        [
            [name, piece, f"{ms:.2f}", f"{theirs:.2f}", f"{100 * ms / theirs:.0f}"]
            for name, both in found.items()
            for piece, ms in both["purerl"].items()
            for theirs in [both["PyTorch"][piece]]
        ],
    )
    text = [
        "The study also writes two profile pages of Python's time into its folder in "
        "runs, profile-purerl.html and profile-pytorch.html. Purerl's shows tracing, "
        "compiling and then one wait, PyTorch's its operations one by one. "
        "The source profiled TD3 without waiting for results, and its profiler was "
        "switched off after about one step."
    ]
    return Findings(rows, [figure], [table], text)


def figure_of(found: dict[str, Any]) -> Any:
    """Draw the pieces of both algorithms."""
    figure = style.new_figure(height=4.2)
    panels = figure.subplots(1, 2, width_ratios=(6, 6))
    for axes, (name, both) in zip(panels, found.items(), strict=True):
        pieces = list(both["purerl"])
        places = np.arange(len(pieces))
        for i, (kind, times) in enumerate(both.items()):
            values = [times[piece] for piece in pieces]
            where = places + (i - 0.5) * 0.4
            axes.bar(where, values, 0.38, color=style.COLOURS[i], label=kind)
            for place, value in zip(where, values, strict=True):
                words = f"{value:.2g}" if value < 10 else f"{value:.0f}"
                axes.text(place, value, words, ha="center", va="bottom", fontsize=7)
        labels = [p.replace(": ", ":\n").replace(" and ", "\nand ") for p in pieces]
        axes.set_xticks(places, labels)
        axes.set_yscale("log")
        style.finish(axes, name, "", "")
        axes.tick_params(axis="x", labelsize=7.5)
    panels[0].set_ylabel("milliseconds")
    panels[0].legend(frameon=False, loc="upper left")
    return figure


if __name__ == "__main__":
    main(STUDY, measure)
