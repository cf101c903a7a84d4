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
import palette
from measure import interval_text
from scipy.stats import ttest_ind
from study import Budget, Findings, Row, Study, Table, main

import purerl
from purerl import serialise
from purerl.report.plots import style
from purerl.report.statistics import mean_interval

STUDY = Study(
    name="brax_training",
    title="PPO and SAC on brax's HalfCheetah, beside brax's own training",
    source="brax.training of brax 0.14; no returns of this backend are published",
    question="Agents of purerl and of brax's own PPO and SAC are trained on "
    "HalfCheetah (spring) with the same numbers and sizes of networks. PPO's are from "
    "brax's training notebook with a 64th of the environments and of the minibatches, "
    "so that two cores can train it; SAC's are those of the preset "
    "`sac-halfcheetah-cpu`. The libraries take turns, seed by seed. Returns are those "
    "of the deterministic policy in episodes of 1,000 steps. A rate is of training "
    "alone, without compilation and evaluations.",
    headlines=(0, 1, 2, 3),
    system="brax",
)
STACKS = ("purerl", "brax")
SEEDS = 10
RATED = 3  # Agents of purerl that train once more without evaluations, for the rate.
EVALUATIONS, EPISODES, LIMIT = 4, 16, 1_000
# brax's training notebook (google/brax, notebooks/training.ipynb), with 2,048
# environments and minibatches of 512 sequences there.
PPO: dict[str, Any] = {
    "num_timesteps": 1_024_000,
    "num_envs": 32,
    "batch_size": 8,  # Sequences.
    "unroll_length": 20,
    "num_minibatches": 32,
    "num_updates_per_batch": 8,
    "discounting": 0.95,
    "learning_rate": 3e-4,
    "entropy_cost": 1e-3,
    "reward_scaling": 1.0,
    "clipping_epsilon": 0.3,
    "normalize_observations": True,
}
SAC: dict[str, Any] = {
    "num_timesteps": 160_000,
    "num_envs": 16,
    "grad_updates_per_step": 4,
    "batch_size": 256,
    "learning_rate": 1e-3,
    "discounting": 0.99,
    "min_replay_size": 10_000,
    "max_replay_size": 160_000,
    "reward_scaling": 1.0,
    "normalize_observations": True,
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
Seen = dict[str, Any]  # Of one agent: steps, returns, steps per second.


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
        "total_timesteps": given["num_timesteps"],
        "num_envs": given["num_envs"],
        "gamma": given["discounting"],
        "learning_rate": given["learning_rate"],
        "hidden_sizes": (8, 8) if quick else SIZES,
        "normalize_observations": given["normalize_observations"],
        "reset_scheme": "pool",
        "reset_pool_size": given["num_envs"],
        "num_evaluations": EVALUATIONS,
        "eval_episodes": 2 if quick else EPISODES,
        "eval_share": 1.0,
        "eval_max_steps": 10 if quick else 0,
    }
    if algorithm == "SAC":
        # brax's target entropy is half of the number of actions, its temperature has a
        # step size of its own, and its untrained policy fills the buffer.
        return purerl.SACConfig(
            **common,
            gradient_steps=given["grad_updates_per_step"],
            batch_size=given["batch_size"],
            buffer_size=given["max_replay_size"],
            learning_starts=given["min_replay_size"],
            random_steps=0,
            rounds_per_update=4 if quick else 100,
            entropy_per_dimension=-0.5,
            temperature_learning_rate=3e-4,
        )
    samples = given["batch_size"] * given["unroll_length"] * given["num_minibatches"]
    # brax collects the samples of an update in several short unrolls, here it is one.
    return purerl.PPOConfig(
        **common,
        num_steps=samples // given["num_envs"],
        num_epochs=given["num_updates_per_batch"],
        num_minibatches=given["num_minibatches"],
        entropy_coef=given["entropy_cost"],
        policy_loss=purerl.losses.ClipDrift(clip_eps=given["clipping_epsilon"]),
        value_loss=purerl.losses.SquaredError(),
        optimiser=purerl.optimisers.Adam(eps=1e-8),
        anneal_learning_rate=False,
        max_grad_norm=None,
        normalize_rewards=False,
        activation="swish",
        state_dependent_std=True,
    )


class Ours:
    """purerl's agents of one config; a program is compiled when it is first needed.

    Args:
        config: The config, with its evaluations.
    """

    def __init__(self, config: Any) -> None:
        self._config = config
        options = purerl.compiler_options()
        make = partial(jax.jit, compiler_options=options)
        self._evaluated = make(purerl.make_train(config))
        self._alone = make(purerl.make_train(config.replace(num_evaluations=0)))
        self._compiled: Any = None

    def __call__(self, seed: int) -> Seen:
        """Train an agent, and one of the first ones again without evaluations.

        Args:
            seed: Its seed.
        """
        key = jax.random.key(seed)
        found = self._evaluated(key).evaluation
        seen = {
            "steps": np.asarray(found["env_steps"]).tolist(),
            "returns": np.asarray(found["episode_return"]).mean(-1).tolist(),
        }
        return seen | ({"rate": self._rate(key)} if seed < RATED else {})

    def _rate(self, key: jax.Array) -> float:
        if self._compiled is None:
            self._compiled = self._alone.lower(key).compile()
        began = time.perf_counter()
        jax.block_until_ready(self._compiled(key))
        return self._config.total_timesteps / (time.perf_counter() - began)


def theirs(algorithm: str, quick: bool, seed: int) -> Seen:
    """Train an agent by brax, which compiles its program anew every time.

    Args:
        algorithm: PPO or SAC.
        quick: Whether everything is only to be tried.
        seed: Its seed.
    """
    import brax.envs
    from brax.training.agents.ppo import networks as ppo_networks
    from brax.training.agents.ppo.train import train as train_ppo
    from brax.training.agents.sac import networks as sac_networks
    from brax.training.agents.sac.train import train as train_sac
    from brax_jax import patch_jax

    patch_jax()
    sizes = (8, 8) if quick else SIZES
    if algorithm == "PPO":
        train: Callable[..., Any] = train_ppo
        networks: Any = partial(
            ppo_networks.make_ppo_networks,
            policy_hidden_layer_sizes=sizes,
            value_hidden_layer_sizes=sizes,
        )
    else:
        train = train_sac
        networks = partial(sac_networks.make_sac_networks, hidden_layer_sizes=sizes)
    task, backend = task_of(quick)
    seen: list[tuple[int, dict[str, Any]]] = []
    train(
        environment=brax.envs.get_environment(task, backend=backend),
        episode_length=10 if quick else LIMIT,
        seed=seed,
        num_evals=EVALUATIONS + 1,  # One before the first step.
        num_eval_envs=2 if quick else EPISODES,
        deterministic_eval=True,
        network_factory=networks,
        progress_fn=lambda step, found: seen.append((step, jax.device_get(found))),
        **numbers_of(algorithm, quick),
    )
    rates = [float(found["training/sps"]) for _, found in seen[1:]]
    return {
        "steps": [int(step) for step, _ in seen[1:]],
        "returns": [float(found["eval/episode_reward"]) for _, found in seen[1:]],
        # The first share of a run includes the compilation.
        "rate": float(np.median(rates[1:])),
    }


def measure(budget: Budget) -> Findings:
    """Train what is to be trained, and put the libraries beside one another."""
    found: dict[str, dict[str, list[Seen]]] = {}
    for algorithm in ("PPO", "SAC"):
        found[algorithm] = pairs_of(algorithm, budget)
    rows = [row for name in found for row in rows_of(name, found[name])]
    figure = budget.save(
        figure_of(found),
        "returns",
        "Return of the deterministic policy on brax's HalfCheetah (spring) over "
        "environment steps. Lines are means of the agents, bands their 95% interval or "
        "range, and thin lines single agents.",
    )
    text = [] if budget.quick else [budget.sittings()]
    tables = [table_of(name, found[name]) for name in found]
    return Findings(rows, [figure], tables, text)


def pairs_of(algorithm: str, budget: Budget) -> dict[str, list[Seen]]:
    """Return the agents of both libraries, trained in turns.

    Args:
        algorithm: PPO or SAC.
        budget: The study's budget.
    """
    quick = budget.quick
    config, numbers = config_of(algorithm, quick), numbers_of(algorithm, quick)
    settings = {"config": serialise.to_dict(config), "brax": numbers}
    ours = Ours(config)
    agents: dict[str, Callable[[int], Seen]] = {
        "purerl": ours,
        "brax": partial(theirs, algorithm, quick),
    }
    found: dict[str, list[Seen]] = {stack: [] for stack in STACKS}

    def pair(seed: int) -> dict[str, Seen]:
        turns = STACKS if seed % 2 == 0 else STACKS[::-1]
        return {stack: agents[stack](seed) for stack in turns}

    for seed in range(1 if quick else SEEDS):
        name = f"{algorithm}-{seed}"
        asked: dict[str, Any] = {"lasting": True, **settings}
        if not (quick or budget.long or budget.has(name, **asked)):
            continue
        seen = budget.part(name, partial(pair, seed), **asked)
        for stack in STACKS:
            found[stack].append(seen[stack])
    return found


def rows_of(algorithm: str, found: dict[str, list[Seen]]) -> list[Row]:
    """Return the returns at the end and the rates of both libraries.

    Args:
        algorithm: PPO or SAC.
        found: The agents of each library.
    """
    steps = found["purerl"][0]["steps"][-1]
    last = {stack: [x["returns"][-1] for x in found[stack]] for stack in STACKS}
    rates = {
        stack: [x["rate"] for x in found[stack] if "rate" in x] for stack in STACKS
    }
    middle = {stack: float(np.median(rates[stack])) for stack in STACKS}
    return [
        Row(
            f"{algorithm}, {steps:,} steps: return at the end",
            "-",
            "; ".join(f"{stack} {interval_text(last[stack], 0)}" for stack in STACKS)
            + f"; {len(last['purerl'])} agents each",
            difference_of(last["purerl"], last["brax"]),
        ),
        Row(
            f"{algorithm}: steps per second of one agent",
            "-",
            f"purerl {middle['purerl']:,.0f}, brax {middle['brax']:,.0f}: "
            f"{middle['purerl'] / middle['brax']:.2f} times as fast",
            f"Medians of {len(rates['purerl'])} and {len(rates['brax'])} runs, which "
            f"had {spread_of(rates['purerl'])} and {spread_of(rates['brax'])}.",
        ),
    ]


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


def spread_of(rates: list[float]) -> str:
    """Return the lowest and the highest rate, in words."""
    return f"{min(rates):,.0f} to {max(rates):,.0f}"


def table_of(algorithm: str, found: dict[str, list[Seen]]) -> Table:
    """Return the mean returns along training, and every agent's at the end.

    Args:
        algorithm: PPO or SAC.
        found: The agents of each library.
    """
    rows = []
    for stack in STACKS:
        means = np.mean([x["returns"] for x in found[stack]], axis=0)
        each = ", ".join(f"{x['returns'][-1]:,.0f}" for x in found[stack])
        rows.append([stack, *(f"{value:,.0f}" for value in means), each])
    steps = [f"{step:,}" for step in found["purerl"][0]["steps"]]
    return Table(
        f"{algorithm}, mean return after so many steps",
        ["library", *steps, "agents at the end"],
        rows,
    )


def figure_of(found: dict[str, dict[str, list[Seen]]]) -> Any:
    """Draw the returns of all agents, a panel for each algorithm."""
    figure = style.new_figure(width=9.5, height=4.0)
    panels = figure.subplots(1, len(found))
    for axes, (algorithm, stacks) in zip(panels, found.items(), strict=True):
        for stack in STACKS:
            returns = np.array([x["returns"] for x in stacks[stack]])
            steps = stacks[stack][0]["steps"]
            colour = palette.STACKS[stack]
            for one in returns:
                axes.plot(steps, one, color=colour, alpha=0.2, linewidth=0.8)
            spans = [mean_interval(column) for column in returns.T]
            low, high = ([getattr(x, end) for x in spans] for end in ("low", "high"))
            axes.fill_between(steps, low, high, color=colour, alpha=0.15, linewidth=0)
            axes.plot(steps, returns.mean(0), color=colour, label=stack)
        style.finish(axes, algorithm, "environment steps", "episode return")
        style.step_axis(axes)
        axes.yaxis.set_major_formatter("{x:,.0f}")
    panels[0].legend(frameon=False)
    return figure


if __name__ == "__main__":
    main(STUDY, measure)
