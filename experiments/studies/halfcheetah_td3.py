"""TD3 with the source's settings on brax's HalfCheetah, beside the same in PyTorch.

    python experiments/studies/halfcheetah_td3.py [--quick]

It trains one agent of each stack, and one of purerl with PyTorch's initialisation, and
says how far the policy is saturated, and how far the two critics disagree. What is
measured is kept in the repository, so that a checkout only draws it; `--fresh` trains
it again.
"""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import palette
from measure import one_torch_thread, smooth
from study import Budget, Findings, Row, Study, Table, main

import purerl
from purerl import envs, presets, serialise
from purerl.acting.environment import resolve_env
from purerl.algorithms import td3
from purerl.report.plots import style

STUDY = Study(
    name="halfcheetah_td3",
    title="TD3 with the source's settings on brax's HalfCheetah, beside PyTorch's",
    source='"JAX 4 Deep RL" (Glazer-Cavanagh and Aguilar-Lussier 2023): 5,000 ± 300 on '
    "MuJoCo's HalfCheetah-v2 after 1,200,000 steps, three seeds",
    question="Three TD3 agents with the source's settings are compared: one with "
    "purerl's default initialisation (orthogonal, with gains of sqrt(2) and a policy "
    "near zero); one whose initial weights have the standard deviation of PyTorch's "
    "(`torso_gain`, `actor_gain` and `critic_gain` of 1/sqrt(3); in the first layer, "
    "which has few inputs, a quarter of that standard deviation), as in the preset "
    "`td3-halfcheetah`; and one in plain PyTorch "
    "(experiments/studies/torch_agents/td3.py). All have the same physics, brax's "
    "HalfCheetah (spring), which the PyTorch agent steps as a Gymnasium environment. "
    "Three numbers are measured on 1,024 steps from the replay buffer: the mean "
    "absolute action of the policy, which is at most 1; the value that the first "
    "critic predicts; and the mean distance between the two critics.",
    system="JAX 4 Deep RL",
)
STACKS = {
    "purerl": "purerl (default initialisation)",
    "gains": "purerl (PyTorch's initialisation)",
    "torch": "PyTorch",
}
LINES = {
    "purerl": (palette.STACKS["purerl"], "-"),
    "gains": (palette.STACKS["purerl"], "--"),
    "torch": (palette.STACKS["PyTorch"], "-"),
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
        "looks": np.asarray(result.evaluation["env_steps"]).tolist(),
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

    one_torch_thread()
    torch.manual_seed(0)
    env: Any = envs.to_gymnasium(config.env, **config.env_kwargs)
    agent = TD3(
        int(np.prod(env.observation_space.shape)),
        int(np.prod(env.action_space.shape)),
        tuple(config.hidden_sizes),
        float(config.learning_rate),
    )
    rng, total = np.random.default_rng(1), config.total_timesteps
    names = ("looks", "action", "value", "apart", "env_steps", "returns")
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
        found["looks"].append(replay.added)
        found["action"].append(float(agent.actor(batch["obs"]).abs().mean()))
        found["value"].append(float(first.mean()))
        found["apart"].append(float((first - second).abs().mean()))

    common.train(
        agent,
        env,
        total - config.learning_starts,
        config.learning_starts,
        config.batch_size,
        config.random_steps,
        watch,
    )
    return found


def measure(budget: Budget) -> Findings:
    """Train the agents, and put them beside one another."""
    plain, config = purerl.TD3Config(), config_of(budget.quick)
    default = config.replace(
        torso_gain=plain.torso_gain,
        actor_gain=plain.actor_gain,
        critic_gain=plain.critic_gain,
    )
    begun = config.replace(torso_gain=GAIN, actor_gain=GAIN, critic_gain=GAIN)
    agents = {
        "purerl": (ours, default),
        "gains": (ours, begun),
        "torch": (theirs, default),
    }
    found = {
        stack: budget.part(
            stack,
            partial(train, settings),
            lasting=True,
            config=serialise.to_dict(settings),
        )
        for stack, (train, settings) in agents.items()
    }
    figure = budget.save(
        figure_of(found),
        "returns",
        "Returns of the training episodes of one agent of each kind over environment "
        f"steps. Each point is the mean over the last {WINDOW:,} steps.",
    )
    # `--long` changes nothing here.
    trained = budget.sittings().replace(".py --long`", ".py`")
    text = [] if budget.quick else [CONCLUSION, trained]
    rows = rows_of(found, config.total_timesteps)
    return Findings(rows, [figure], [table_of(found)], text)


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
            "; ".join(f"{STACKS[stack]} {late[stack]:,.0f}" for stack in STACKS),
            "There is one agent of each kind, so that the differences may be chance.",
        ),
        *(
            Row(
                f"{TITLES[name]} after {steps:,} steps",
                "-",
                "; ".join(f"{STACKS[k]} {last[k][name]:.3g}" for k in STACKS),
                NOTES[name],
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


def table_of(found: Seen) -> Table:
    """Return what was seen of the agents along training."""
    return Table(
        "Along training",
        ["steps", *(f"{t}, {s}" for t in SHORT.values() for s in STACKS.values())],
        [
            [
                f"{int(at):,}",
                *(
                    f"{found[stack][name][i]:.3g}"
                    for name in TITLES
                    for stack in STACKS
                ),
            ]
            for i, at in enumerate(found["purerl"]["looks"])
        ],
    )


CONCLUSION = (
    "With purerl's default initialisation the policy is saturated for the first 40,000 "
    "steps: its mean absolute action is 0.995 or more. After 100,000 steps its return "
    "has caught up. With PyTorch's initialisation the agents of both libraries improve "
    "from about 20,000 steps on; because of these steps the preset uses PyTorch's "
    "initialisation. One agent of each kind is a hint and no proof."
)
TITLES = {
    "action": "mean absolute action of the policy",
    "value": "value predicted by the first critic",
    "apart": "mean distance between the two critics",
}
SHORT = {"action": "action", "value": "value", "apart": "distance"}
NOTES = {
    "action": "At 1 every action is saturated: the derivative of tanh is zero there, "
    "so that the policy can hardly learn.",
    "value": "With a discount of 0.99, a return of 500 in 1,000 steps corresponds to a "
    "value of about 50.",
    "apart": "Targets use the lower critic, so half this distance is subtracted at "
    "every step, which adds up to about a hundred times that with a discount of 0.99.",
}


def figure_of(found: Seen) -> Any:
    """Draw the returns in training of all agents."""
    figure = style.new_figure(width=7.5, height=4.0)
    axes = figure.subplots()
    for stack, name in STACKS.items():
        x, (colour, line) = found[stack], LINES[stack]
        y = smooth(np.array(x["returns"], float), len_of(x, WINDOW))
        axes.plot(x["env_steps"], y, line, color=colour, label=name)
    axes.legend(frameon=False)
    style.finish(axes, "", "environment steps", "episode return in training")
    style.step_axis(axes)
    axes.yaxis.set_major_formatter("{x:,.0f}")
    return figure


if __name__ == "__main__":
    main(STUDY, measure)
