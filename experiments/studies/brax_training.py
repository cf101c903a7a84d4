"""PPO and SAC on brax's HalfCheetah, by purerl and by brax's own training.

    python experiments/studies/brax_training.py --long [--quick]

Both have the same physics, numbers and sizes of networks. Each pair of agents is kept
in the repository, so that a checkout only draws them; without `--long` no further one
is trained.
"""

import time
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import numpy as np
from scipy.stats import ttest_ind
from study import Budget, Findings, Row, interval_text, main, study_of

# isort: split
import brax_peer
import pictures
from pictures import band, style

import purerl
from purerl import serialise

STUDY, WORDS = study_of("brax_training", "brax")
STACKS = ("purerl", "brax")
SEEDS = 10
# Environment steps of the runs that are timed, a fifth of a training; and their number.
RATED = {"PPO": 204_800, "SAC": 32_000}
ROUNDS = 3
EVALUATIONS, EPISODES, LIMIT = 4, 16, 1_000
# A 64th of the notebook's environments and of its minibatches.
PPO: dict[str, Any] = {
    **brax_peer.HALFCHEETAH,
    "num_timesteps": 1_024_000,
    "num_envs": 32,
    "batch_size": 8,
    "clipping_epsilon": 0.3,
    "normalize_observations": True,
}
SAC: dict[str, Any] = {
    **brax_peer.SAC,
    "num_timesteps": 160_000,
    "min_replay_size": 10_000,
    "max_replay_size": 160_000,
}
SIZES = (128, 128)
QUICK = {
    "PPO": {
        "num_timesteps": 256,
        "num_envs": 4,
        "batch_size": 2,
        "unroll_length": 4,
        "num_minibatches": 4,
        "num_updates_per_batch": 2,
    },
    "SAC": {
        "num_timesteps": 256,
        "num_envs": 4,
        "batch_size": 8,
        "min_replay_size": 64,
        "max_replay_size": 256,
    },
}
Seen = dict[str, Any]  # Of one agent: steps and returns; brax's rate, too.


def task_of(quick: bool) -> tuple[str, str]:
    """Return the environment and the backend; to try everything one without physics."""
    return ("fast" if quick else "halfcheetah"), "spring"


def numbers_of(algorithm: str, quick: bool) -> dict[str, Any]:
    """Return the arguments that brax's training is given."""
    numbers = PPO if algorithm == "PPO" else SAC
    return numbers | (QUICK[algorithm] if quick else {})


def config_of(algorithm: str, quick: bool) -> Any:
    """Return purerl's config with brax's numbers.

    Args:
        algorithm: PPO or SAC.
        quick: Whether everything is only to be tried.
    """
    given = numbers_of(algorithm, quick)
    task, backend = task_of(quick)
    common: dict[str, Any] = {
        "env": f"brax/{task}",
        "env_kwargs": {"backend": backend},
        "hidden_sizes": (8, 8) if quick else SIZES,
        "reset_scheme": "pool",
        "reset_pool_size": given["num_envs"],
        "num_evaluations": EVALUATIONS,
        "eval_episodes": 2 if quick else EPISODES,
        "eval_share": 1.0,
        "eval_max_steps": 10 if quick else 0,
    }
    if algorithm == "SAC":
        return purerl.SACConfig(
            **common,
            **brax_peer.sac_fields(given),
            rounds_per_update=4 if quick else 100,
        )
    return purerl.PPOConfig(
        **common,
        **brax_peer.ppo_fields(given),
        total_timesteps=given["num_timesteps"],
        normalize_observations=given["normalize_observations"],
        policy_loss=purerl.losses.ClipDrift(clip_eps=given["clipping_epsilon"]),
        value_loss=purerl.losses.SquaredError(),
        optimiser=purerl.optimisers.Adam(eps=1e-8),
        max_grad_norm=None,
        normalize_rewards=False,
        activation="swish",
        state_dependent_std=True,
    )


def ours(train: Callable[..., Any], seed: int) -> Seen:
    """Train an agent by purerl; `train` is a program of `compiled`."""
    found = train(jax.random.key(seed)).evaluation
    return {
        "steps": np.asarray(found["env_steps"]).tolist(),
        "returns": np.asarray(found["episode_return"]).mean(-1).tolist(),
    }


def compiled(config: Any) -> Any:
    """Return the training of a config as a program that is compiled when called."""
    options = purerl.compiler_options()
    return jax.jit(purerl.make_train(config), compiler_options=options)


def theirs(algorithm: str, quick: bool, seed: int, **changes: Any) -> Seen:
    """Train an agent by brax, which compiles its program anew every time.

    Args:
        algorithm: PPO or SAC.
        quick: Whether everything is only to be tried.
        seed: Its seed.
        **changes: Arguments of brax's training with other values.
    """
    given = {
        "num_evals": EVALUATIONS + 1,  # One before the first step.
        "num_eval_envs": 2 if quick else EPISODES,
        "episode_length": 10 if quick else LIMIT,
        "deterministic_eval": True,
        **numbers_of(algorithm, quick),
        **changes,
    }
    sizes = (8, 8) if quick else SIZES
    seen = brax_peer.train(task_of(quick), algorithm, sizes, seed=seed, **given)
    rates = [float(found["training/sps"]) for _, found in seen[1:]]
    return {
        "steps": [int(step) for step, _ in seen[1:]],
        "returns": [float(found["eval/episode_reward"]) for _, found in seen[1:]],
        # That of the last share of the run: the first one includes the compilation.
        "rate": rates[-1],
    }


def measure(budget: Budget) -> Findings:
    """Train what is to be trained, and put the libraries beside one another."""
    pairs = {name: pairs_of(name, budget) for name in ("PPO", "SAC")}
    rates = {name: rates_of(name, budget) for name in pairs}
    found = {name: agents for name, agents in pairs.items() if agents["purerl"]}
    rows = [row_of_returns(name, agents) for name, agents in found.items()]
    rows += [
        row_of_rates(name, rate, budget.hardware_of(f"{name}-rate"))
        for name, rate in rates.items()
        if rate
    ]
    figure = budget.save(figure_of(found), "returns", WORDS["picture returns"])
    trained = {name: len(agents["purerl"]) for name, agents in pairs.items()}
    missing = ""
    if set(trained.values()) != {SEEDS}:
        counts = ", ".join(f"{n} of {name}" for name, n in trained.items())
        missing = WORDS.fill("missing", seeds=SEEDS, counts=counts)
    text = [] if budget.quick else [missing, budget.sittings()]
    return Findings(rows, [figure], text)


def pairs_of(algorithm: str, budget: Budget) -> dict[str, list[Seen]]:
    """Return the agents of both libraries, trained in turns."""
    quick = budget.quick
    program = compiled(config_of(algorithm, quick))
    agents: dict[str, Callable[[int], Seen]] = {
        "purerl": partial(ours, program),
        "brax": partial(theirs, algorithm, quick),
    }
    found: dict[str, list[Seen]] = {stack: [] for stack in STACKS}

    def pair(seed: int) -> dict[str, Seen]:
        turns = STACKS if seed % 2 == 0 else STACKS[::-1]
        return {stack: agents[stack](seed) for stack in turns}

    for seed in range(1 if quick else SEEDS):
        make = partial(pair, seed)
        seen = measured(budget, algorithm, seed, make, config_of(algorithm, quick))
        for stack in STACKS if seen else ():
            found[stack].append(seen[stack])
    return found


def measured(
    budget: Budget, algorithm: str, name: Any, make: Callable[[], Any], config: Any
) -> dict[str, Any]:
    """Return a part that is kept in the repository, empty where it is missing.

    Args:
        budget: The study's budget, which says whether to measure it then.
        algorithm: PPO or SAC.
        name: Name of the part, behind that of the algorithm.
        make: Function that measures it.
        config: purerl's config, on which it depends.
    """
    numbers = numbers_of(algorithm, budget.quick)
    settings = {"config": serialise.to_dict(config), "brax": numbers}
    return budget.lasting(f"{algorithm}-{name}", make, **settings) or {}


def rates_of(algorithm: str, budget: Budget) -> dict[str, list[float]]:
    """Return the steps per second of both libraries, measured in turns."""
    quick = budget.quick
    numbers, config = numbers_of(algorithm, quick), config_of(algorithm, quick)
    steps = numbers["num_timesteps"] if quick else RATED[algorithm]
    config = config.replace(total_timesteps=steps, num_evaluations=0)
    # Its share that is timed is the second of two.
    brax = partial(theirs, algorithm, quick, num_timesteps=steps, num_evals=3)

    def make() -> dict[str, list[float]]:
        program = compiled(config).lower(jax.random.key(0)).compile()
        rates: dict[str, list[float]] = {stack: [] for stack in STACKS}
        for seed in range(1 if quick else ROUNDS):
            began = time.perf_counter()
            jax.block_until_ready(program(jax.random.key(seed)))
            rates["purerl"].append(steps / (time.perf_counter() - began))
            rates["brax"].append(brax(seed)["rate"])
        return rates

    return measured(budget, algorithm, "rate", make, config)


def row_of_returns(algorithm: str, found: dict[str, list[Seen]]) -> Row:
    """Return the returns of both libraries at the end.

    Args:
        algorithm: PPO or SAC.
        found: The agents of each library.
    """
    steps = found["purerl"][0]["steps"][-1]
    last = {stack: [x["returns"][-1] for x in found[stack]] for stack in STACKS}
    each = (f"{stack} {interval_text(last[stack], 0)}" for stack in STACKS)
    here, note = "; ".join(each), difference_of(last["purerl"], last["brax"])
    numbers = {"steps": steps, "agents": len(last["purerl"])}
    return WORDS.row("returns", algorithm=algorithm, here=here, note=note, **numbers)


def row_of_rates(algorithm: str, rates: dict[str, list[float]], hardware: str) -> Row:
    """Return the steps per second of both libraries.

    Args:
        algorithm: PPO or SAC.
        rates: Steps per second of every round.
        hardware: The machine on which they were measured, in words.
    """
    middle: dict[str, Any] = {stack: float(np.median(rates[stack])) for stack in STACKS}
    ratios = [a / b for a, b in zip(rates["purerl"], rates["brax"], strict=True)]
    return WORDS.row(
        "rates",
        algorithm=algorithm,
        ratio=middle["purerl"] / middle["brax"],
        rounds=len(ratios),
        low=min(ratios),
        high=max(ratios),
        hardware=hardware,
        **middle,
    )


def difference_of(ours: list[float], others: list[float]) -> str:
    """Return how far the means of two libraries are apart, in words.

    Args:
        ours: Returns of purerl's agents.
        others: Returns of brax's agents.
    """
    mean = f"purerl's less brax's: {np.mean(ours) - np.mean(others):,.0f}"
    if len(ours) < 2:
        return f"{mean}."
    found = ttest_ind(ours, others, equal_var=False).confidence_interval(0.95)
    return f"{mean} (95% interval by Welch's t: {found.low:,.0f} to {found.high:,.0f})."


def figure_of(found: dict[str, dict[str, list[Seen]]]) -> Any:
    """Draw the returns of all agents, a panel for each algorithm."""
    figure = style.new_figure(width=9.5, height=4.0)
    panels = figure.subplots(1, len(found), squeeze=False)[0]
    for axes, (algorithm, stacks) in zip(panels, found.items(), strict=True):
        for stack in STACKS:
            returns = np.array([x["returns"] for x in stacks[stack]])
            steps, colour = stacks[stack][0]["steps"], pictures.STACKS[stack]
            axes.plot(steps, returns.T, color=colour, alpha=0.2, linewidth=0.8)
            band(axes, steps, returns, colour, stack)
        style.finish(axes, algorithm, "environment steps", "episode return")
        style.step_axis(axes)
        axes.yaxis.set_major_formatter("{x:,.0f}")
    panels[0].legend(frameon=False)
    return figure


if __name__ == "__main__":
    main(STUDY, measure)
