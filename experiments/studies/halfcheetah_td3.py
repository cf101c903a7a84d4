"""TD3 with the source's settings on brax's HalfCheetah, beside the same in PyTorch.

    python experiments/studies/halfcheetah_td3.py [--quick]

It trains one agent of each stack, and one of purerl with PyTorch's initialisation, and
says how far the policy is saturated, and how far the two critics disagree. What is
measured is kept in the repository, so that a checkout only draws it.
"""

from typing import Any

import jax
import jax.numpy as jnp
import learned
import numpy as np
from measure import torch_threads
from study import Budget, Findings, Row, main, study_of

# isort: split
import pictures
from pictures import smooth, style

import purerl
from purerl import envs, presets, serialise
from purerl.acting.environment import resolve_env
from purerl.algorithms import td3

STUDY, WORDS = study_of("halfcheetah_td3", "JAX 4 Deep RL")
OURS, THEIRS = pictures.STACKS["purerl"], pictures.STACKS["PyTorch"]
# Names, and the colours and styles of lines.
STACKS = {
    "purerl": ("purerl (default initialisation)", OURS, "-"),
    "gains": ("purerl (PyTorch's initialisation)", OURS, "--"),
    "torch": ("PyTorch", THEIRS, "-"),
}
TITLES = {
    "action": "mean absolute action of the policy",
    "value": "value predicted by the first critic",
    "apart": "mean distance between the two critics",
}
# Environment steps: of the mean in the first row, and of that of a point of the curves.
LATE, WINDOW = 20_000, 10_000
# PyTorch's initial weights lie uniformly within 1/sqrt(inputs), whose standard
# deviation is 1/sqrt(3 inputs).
GAIN = float(1 / np.sqrt(3))
STEPS, LOOKS = 100_000, 10
Seen = dict[str, dict[str, list[float]]]  # By stack and name: numbers along training.
SAMPLES = 1_024


def config_of(quick: bool) -> Any:
    """Return the settings, with an evaluation at every look."""
    config = presets.load("td3-halfcheetah").replace(
        total_timesteps=STEPS, num_evaluations=LOOKS, eval_episodes=1, eval_share=1.0
    )
    if not quick:
        return config.replace(rounds_per_update=40)
    return config.replace(
        env="Pendulum-v1",
        env_kwargs={},
        reset_scheme="fresh",
        total_timesteps=2_000,
        num_evaluations=2,
        rounds_per_update=4,
        random_steps=500,
        learning_starts=200,
        hidden_sizes=(16, 16),
    )


def ours(config: Any) -> dict[str, list[float]]:
    """Train purerl's agent; return what was seen of it.

    Args:
        config: Settings, with an evaluation at every look.
    """
    parts = td3.build(config, resolve_env(config))

    def observe(state: Any) -> dict[str, jax.Array]:
        filled = state.update * config.steps_per_update
        rows = jnp.arange(SAMPLES) * filled // SAMPLES
        obs, action = state.buffer.obs[rows, 0], state.buffer.action[rows, 0]
        values = parts.critics.apply(state.params["critics"], obs, action)
        first, second = jnp.asarray(values).reshape(2, SAMPLES)
        own = parts.actor.apply(state.params["actor"], obs)
        return {
            "action": jnp.abs(jnp.asarray(own)).mean(),
            "value": first.mean(),
            "apart": jnp.abs(first - second).mean(),
        }

    train = jax.jit(purerl.make_train(config, observe=observe))
    result = train(jax.random.key(0))
    found = {name: np.asarray(x).tolist() for name, x in result.observed.items()}
    returns = np.asarray(result.metrics["episode_return"], float)
    return {
        **found,
        "env_steps": np.asarray(result.metrics["env_steps"]).tolist(),
        "returns": returns.tolist(),
    }


def theirs(config: Any) -> dict[str, list[float]]:
    """Train PyTorch's agent; return what was seen of it.

    Args:
        config: Settings, those of purerl's agent.
    """
    import torch
    from torch_agents import common
    from torch_agents.td3 import TD3

    torch_threads(1)
    torch.manual_seed(0)
    env: Any = envs.to_gymnasium(config.env, **config.env_kwargs)
    agent = TD3(
        int(np.prod(env.observation_space.shape)),
        int(np.prod(env.action_space.shape)),
        tuple(config.hidden_sizes),
        float(config.learning_rate),
    )
    rng, total = np.random.default_rng(1), config.total_timesteps
    names = ("action", "value", "apart", "env_steps", "returns")
    found: dict[str, list[float]] = {name: [] for name in names}
    running = 0.0

    @torch.no_grad()
    def watch(reward: float, is_end: bool, replay: Any) -> None:
        nonlocal running
        running += reward
        if is_end:
            found["env_steps"].append(replay.added)
            found["returns"].append(running)
            running = 0.0
        if replay.added % (total // config.num_evaluations):
            return
        batch = replay.sample(SAMPLES, rng)
        first, second = agent.critics(batch["obs"], batch["action"])
        found["action"].append(float(agent.actor(batch["obs"]).abs().mean()))
        found["value"].append(float(first.mean()))
        found["apart"].append(float((first - second).abs().mean()))

    starts = config.learning_starts
    sizes = (total - starts, starts, config.batch_size, config.random_steps)
    common.train(agent, env, *sizes, watch)
    return found


def measure(budget: Budget) -> Findings:
    """Train the agents, and put them beside one another."""
    plain, config = purerl.TD3Config(), config_of(budget.quick)
    gains = ("torso_gain", "actor_gain", "critic_gain")
    default = config.replace(**{name: getattr(plain, name) for name in gains})
    begun = config.replace(**dict.fromkeys(gains, GAIN))
    agents = {
        "purerl": (ours, default),
        "gains": (ours, begun),
        "torch": (theirs, default),
    }
    found = {
        stack: budget.part(
            stack, train, chosen, lasting=True, config=serialise.to_dict(chosen)
        )
        for stack, (train, chosen) in agents.items()
    }
    figure = budget.save(
        figure_of(found),
        "returns",
        "Returns of the training episodes of one agent of each kind over environment "
        f"steps. Each point is the mean over the last {WINDOW:,} steps.",
    )
    # `--long` changes nothing here.
    trained = budget.sittings().replace(".py --long`", ".py`")
    text = [] if budget.quick else [WORDS["conclusion"], trained]
    rows = rows_of(found, config.total_timesteps)
    return Findings(rows, [figure], text)


def rows_of(found: Seen, steps: int) -> list[Row]:
    """Return what was seen of the agents at the end."""
    last = {stack: {n: x[n][-1] for n in TITLES} for stack, x in found.items()}
    late = {
        stack: np.nanmean(np.array(x["returns"], float)[-len_of(x, LATE) :])
        for stack, x in found.items()
    }
    return [
        Row(
            f"mean return of the training episodes of the last {min(LATE, steps):,} of "
            f"{steps:,} steps",
            "-",
            "; ".join(f"{STACKS[k][0]} {late[k]:,.0f}" for k in STACKS),
            "There is one agent of each kind, so that the differences may be chance.",
        ),
        *(
            Row(
                f"{TITLES[name]} after {steps:,} steps",
                "-",
                "; ".join(f"{STACKS[k][0]} {last[k][name]:.3g}" for k in STACKS),
                WORDS[name],
            )
            for name in TITLES
        ),
    ]


def len_of(x: dict[str, list[float]], steps: int) -> int:
    """Return how many entries of an agent's returns lie in so many steps.

    Args:
        x: What was seen of the agent: purerl's has an entry for each update, which may
            be several episodes, PyTorch's one for each episode.
        steps: Environment steps.
    """
    at = x["env_steps"]
    return max(1, int(steps / (at[1] - at[0]))) if len(at) > 1 else 1


def figure_of(found: Seen) -> Any:
    """Draw the returns in training of all agents."""
    figure = style.new_figure(width=7.5, height=4.0)
    axes = figure.subplots()
    for stack, (name, colour, line) in STACKS.items():
        x = found[stack]
        y = smooth(x["returns"], len_of(x, WINDOW))
        axes.plot(x["env_steps"], y, line, color=colour, label=name)
    learned.finish(axes, "best", "episode return in training")
    return figure


if __name__ == "__main__":
    main(STUDY, measure)
