"""VPG, TD3, SAC and MPO beside plain PyTorch: seconds per 1,000 steps, and where.

python experiments/studies/jaxrl.py [--quick]
"""

import time
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax4rl import vpg_config, vpg_example, vpg_update
from measure import compiled, interval_text, timed, torch_threads
from study import Budget, Findings, Row, Study, Table, main

import purerl
from purerl import presets, serialise
from purerl.acting.environment import resolve_env
from purerl.algorithms import mpo, sac, td3
from purerl.report.plots import style
from purerl.report.statistics import mean_interval
from purerl.scale.devices import num_cores
from purerl.train import bind, make_train

STUDY = Study(
    name="jaxrl",
    title="VPG, TD3, SAC and MPO against PyTorch, per 1,000 training steps",
    source="jax-rl (Prior): the README's table of times of TD3, SAC and MPO, on a 2019 "
    'MacBook Pro; VPG is that of "JAX 4 Deep RL", which gives no such times',
    question="One agent in Pendulum-v1. TD3, SAC and MPO take a gradient step after "
    "every step, with batches of 256 and networks of jax-rl's sizes: the presets "
    "`td3-jaxrl`, `sac-jaxrl`, `mpo-jaxrl`, and the same in plain PyTorch "
    "(experiments/studies/torch_agents). VPG has the settings of `vpg-halfcheetah`, "
    "but one environment in place of five: 5,000 steps, then one gradient step of the "
    "policy and 80 of the critic on all of them. Two things are timed: the gradient "
    "steps alone, on a fixed batch, and the whole loop with the environment and, for "
    "off-policy algorithms, the replay buffer. PyTorch has one thread, and then one "
    "for each core; the faster counts. The stacks take turns, and the median of three "
    "rounds counts. Results are waited for, and neither compilation nor warm-up is "
    "counted. The returns of MPO with either temperature are those of the preset "
    "`mpo-pendulum`, on the same seeds.",
    headlines=(1, 2, 3),
    system="jax-rl",
)
MODULES = {"td3": td3, "sac": sac, "mpo": mpo}
TITLES = {"mpo": "MPO, temperature exact", "mpo-gradient": "MPO, by gradient"}
CASES = {"mpo": "MPO with exact temperature", "mpo-gradient": "MPO by gradient"}
# Seconds per 1,000 training steps in the source's table: JAX, PyTorch.
CLAIMED = {
    "vpg": ("-", "-"),
    "td3": ("2.35 ± 0.17", "6.93 ± 0.16"),
    "sac": ("5.57 ± 0.07", "32.37 ± 1.32"),
    "mpo": ("39.19 ± 1.09", "107.51 ± 3.56"),
    "mpo-gradient": ("38.26 ± 2.74", "-"),
}
BATCH, OBS, ACTIONS = 256, 3, 1
VPG_EPOCH = 5_000  # Environment steps between two updates of VPG.
WARM_UP = 1_000
Timer = Callable[[], float]  # Seconds per 1,000 steps, measured anew by every call.
# Steps that are timed; of VPG, epochs.
STEPS = {
    "full": {"vpg": 4, "td3": 800, "sac": 800, "mpo": 200},
    "quick": {"vpg": 1, "td3": 40},
}


def config_of(name: str) -> Any:
    """Return the preset of an algorithm, on Pendulum-v1 in one environment."""
    if name == "vpg":
        return vpg_config("Pendulum-v1").replace(num_envs=1, num_steps=VPG_EPOCH)
    algorithm = name.split("-")[0]
    config = presets.load(f"{algorithm}-jaxrl").replace(env="Pendulum-v1")
    if name == "mpo-gradient":
        return config.replace(temperature="gradient", temperature_init=1.3132617)
    return config


def our_update(name: str, steps: int) -> Timer:
    """Return what times our gradient steps on one batch: seconds per 1,000."""
    config = config_of(name)
    module: Any = MODULES[name.split("-")[0]]
    parts = module.build(config, resolve_env(config))
    hooks = module.make_hooks(parts)
    keys = jax.random.split(jax.random.key(0), 5)
    state = module.init(parts, keys[0])
    from purerl.algorithms.actor_critic import Learner
    from purerl.learning.branches import StepCount
    from purerl.replay.batches import Batch

    learner = Learner(state.params, state.target_params, state.opt_state)
    batch = Batch(
        obs=jax.random.normal(keys[1], (BATCH, OBS)),
        action=jax.random.uniform(keys[2], (BATCH, ACTIONS), minval=-1.0),
        reward=jax.random.normal(keys[3], (BATCH,)),
        next_obs=jax.random.normal(keys[4], (BATCH, OBS)),
        discount=jnp.full(BATCH, 0.99),
        weight=jnp.ones(BATCH),
    )

    def train(learner: Learner, batch: Batch, key: jax.Array) -> Learner:
        def one(learner: Learner, xs: tuple) -> tuple[Learner, None]:
            noise, count = xs
            return hooks.learn(learner, batch, noise, StepCount(count))[0], None

        noise = hooks.draw_learning(key, (steps,))
        counts = jnp.arange(steps, dtype=jnp.uint32)
        return jax.lax.scan(one, learner, (noise, counts))[0]

    call, _ = compiled(train, learner, batch, keys[0])
    timed(call, learner, batch, keys[0])
    return lambda: timed(call, learner, batch, keys[0]) / steps * 1_000


def our_loop(name: str, steps: int) -> Timer:
    """Return what times whole training steps, environment and replay included."""
    config = config_of(name).replace(
        total_timesteps=WARM_UP + steps, learning_starts=WARM_UP, num_evaluations=0
    )
    # The warm-up is a run that learns in its last few steps alone.
    warm_up = WARM_UP + bind(config).config.steps_per_update
    return _beyond(config, warm_up, steps)


def _beyond(config: Any, first: int, more: int) -> Timer:
    """Return what times the last steps of a run, by a run without them.

    Args:
        config: Settings of the run.
        first: Steps of the run without them.
        more: Steps that are timed.
    """
    key = jax.random.key(0)
    shorter, longer = (
        compiled(make_train(config.replace(total_timesteps=total)), key)[0]
        for total in (first, first + more)
    )
    for call in (shorter, longer):
        timed(call, key)
    return lambda: (timed(longer, key) - timed(shorter, key)) / more * 1_000


def our_vpg_update(epochs: int) -> Timer:
    """Return what times our VPG's update on one batch: seconds per 1,000 steps.

    Args:
        epochs: Not used; an update is one call.
    """
    del epochs
    parts, *args = vpg_example(config_of("vpg"))
    call, _ = compiled(partial(vpg_update, parts), *args)
    timed(call, *args)
    return lambda: timed(call, *args) / VPG_EPOCH * 1_000


def our_vpg_loop(epochs: int) -> Timer:
    """Return what times our VPG's epochs, environment included.

    Args:
        epochs: Epochs in the time that counts, after a first one.
    """
    return _beyond(config_of("vpg"), VPG_EPOCH, epochs * VPG_EPOCH)


def torch_vpg_update(epochs: int, threads: int) -> Timer:
    """Return what times PyTorch's VPG's update on one batch: per 1,000 steps.

    Args:
        epochs: Not used; see `our_vpg_update`.
        threads: Threads of PyTorch.
    """
    import torch
    from torch_agents.vpg import VPG

    del epochs
    agent, number = VPG(OBS, ACTIONS), torch.randn(VPG_EPOCH)
    batch = {
        "obs": torch.randn(VPG_EPOCH, OBS),
        "action": torch.randn(VPG_EPOCH, ACTIONS),
        "advantage": number,
        "target": number,
    }

    def once() -> float:
        torch_threads(threads)
        agent.learn(batch)
        began = time.perf_counter()
        agent.learn(batch)
        return (time.perf_counter() - began) / VPG_EPOCH * 1_000

    return once


def torch_vpg_loop(epochs: int, threads: int) -> Timer:
    """Return what times PyTorch's VPG's epochs, environment included.

    Args:
        epochs: Epochs of a run that count, after a first one.
        threads: Threads of PyTorch.
    """
    from torch_agents import vpg as torch_vpg

    def once() -> float:
        torch_threads(threads)
        agent = torch_vpg.VPG(OBS, ACTIONS)
        seconds = torch_vpg.train(agent, "Pendulum-v1", epochs, VPG_EPOCH)
        return seconds / VPG_EPOCH * 1_000

    return once


def torch_agent(name: str) -> Any:
    """Return the PyTorch agent of a name."""
    from torch_agents import mpo as torch_mpo
    from torch_agents import sac as torch_sac
    from torch_agents import td3 as torch_td3

    make: dict[str, Callable[..., Any]] = {
        "td3": torch_td3.TD3,
        "sac": torch_sac.SAC,
        "mpo": torch_mpo.MPO,
        "mpo-gradient": partial(torch_mpo.MPO, is_exact=False),
    }
    return make[name](OBS, ACTIONS)


def torch_update(name: str, steps: int, threads: int) -> Timer:
    """Return what times PyTorch's gradient steps on one batch: per 1,000."""
    from torch_agents import common

    agent, batch = torch_agent(name), common.random_batch(BATCH, OBS, ACTIONS)

    def once() -> float:
        torch_threads(threads)
        agent.learn(batch)
        began = time.perf_counter()
        for _ in range(steps):
            agent.learn(batch)
        return (time.perf_counter() - began) / steps * 1_000

    return once


def torch_loop(name: str, steps: int, threads: int) -> Timer:
    """Return what times PyTorch's whole training steps: seconds per 1,000."""
    from torch_agents import common

    def once() -> float:
        torch_threads(threads)
        agent = torch_agent(name)
        seconds = common.train(agent, "Pendulum-v1", steps, WARM_UP, BATCH)
        return seconds / steps * 1_000

    return once


def in_turns(name: str, steps: int, rounds: int, threads: int) -> dict[str, float]:
    """Time both stacks, the gradient steps alone and the whole loop, in turns.

    Args:
        name: Name in `CLAIMED`.
        steps: Steps that are timed; of VPG, epochs.
        rounds: Number of turns, of which the medians are returned.
        threads: Threads of PyTorch, which is timed with one, too.
    """
    chosen = {kind: make(steps) for kind, make in timers(name, threads).items()}
    found = [{kind: once() for kind, once in chosen.items()} for _ in range(rounds)]
    return {kind: float(np.median([x[kind] for x in found])) for kind in chosen}


def timers(name: str, threads: int) -> dict[str, Callable[[int], Timer]]:
    """Return what makes the timers of an algorithm, by kind, from its steps.

    Args:
        name: Name in `CLAIMED`; VPG counts epochs in place of steps.
        threads: Threads of PyTorch, which is timed with one, too.
    """
    if name == "vpg":
        ours = our_vpg_update, our_vpg_loop
        theirs = torch_vpg_update, torch_vpg_loop
    else:
        ours = partial(our_update, name), partial(our_loop, name)
        theirs = partial(torch_update, name), partial(torch_loop, name)
    parts = ("update", "loop")
    found = {f"ours-{part}": make for part, make in zip(parts, ours, strict=True)}
    for count in sorted({1, threads}):
        for part, make in zip(parts, theirs, strict=True):
            found[f"torch-{part}-{count}"] = partial(make, threads=count)
    return found


def seconds_of(x: dict[str, float], stack: str, part: str) -> float:
    """Return the seconds of a stack, with the better number of threads.

    Args:
        x: What `timers` measured.
        stack: `ours` or `torch`.
        part: `update` or `loop`.
    """
    return min(value for kind, value in x.items() if f"{stack}-{part}" in kind)


def temperature_config(quick: bool) -> Any:
    """Return the settings with which MPO learns with either temperature."""
    config = presets.load("mpo-pendulum")
    return config.replace(total_timesteps=2_000) if quick else config


def temperatures(quick: bool) -> dict[str, list[float]]:
    """Train MPO with either temperature: deterministic returns at the end by seed."""
    config = temperature_config(quick)
    compared = purerl.compare(
        config,
        {
            "exact": {"temperature": "exact"},
            "gradient": {"temperature": "gradient"},
        },
        seeds=2 if quick else 16,
        measures=("evaluation",),
        progress=False,
    )
    scores = compared.dataset["evaluation"].isel(environment=0)
    return {
        str(name): scores.sel(setting=name).values.tolist()
        for name in scores.setting.values
    }


def learning_row(returns: dict[str, list[float]]) -> Row:
    """Return the row on what MPO learns with either temperature."""
    exact, gradient = (np.array(returns[name]) for name in ("exact", "gradient"))
    return Row(
        "MPO's return on Pendulum-v1, temperature exact against by gradient",
        "-",
        f"exact {interval_text(exact)}, by gradient {interval_text(gradient)}; exact "
        f"minus gradient by seed {interval_text(exact - gradient)}; {len(exact)} seeds",
        f"{verdict(exact - gradient)} These are returns of the deterministic policy "
        "after 50,000 steps; the source shows no such comparison.",
    )


def verdict(differences: np.ndarray) -> str:
    """Return the sentence on whether the seeds tell the two temperatures apart.

    Args:
        differences: Exact minus gradient, by seed.
    """
    found = mean_interval(differences)
    if found.low <= 0 <= found.high:
        return "These seeds do not tell the two apart: the interval contains zero."
    better = "exact" if found.low > 0 else "by gradient"
    return f"The temperature {better} is better: the interval excludes zero."


def measure(budget: Budget) -> Findings:
    """Measure everything, part by part."""
    # More threads than idle cores wait for one another, so a quick run has one.
    rounds, threads = (1, 1) if budget.quick else (3, num_cores())
    names = ["vpg", "td3"] if budget.quick else list(CLAIMED)
    found: dict[str, dict[str, float]] = {}
    for name in names:
        steps = STEPS["quick" if budget.quick else "full"][name.split("-")[0]]
        found[name] = budget.part(
            name,
            lambda n=name, s=steps: in_turns(n, s, rounds, threads),
            steps=steps,
            rounds=rounds,
            threads=threads,
            config=serialise.to_dict(config_of(name)),
        )
    learned = budget.part(
        "temperatures",
        lambda: temperatures(budget.quick),
        config=serialise.to_dict(temperature_config(budget.quick)),
    )
    figure = budget.save(figure_of(found), "times", CAPTION)
    rows = [time_row(name, x) for name, x in found.items()]
    rows.append(learning_row(learned))
    table = Table(
        "Gradient steps alone, seconds per 1,000",
        ["algorithm", "purerl", "PyTorch", "ratio"],
        [
            [
                TITLES.get(name, name.upper()),
                digits(seconds_of(x, "ours", "update")),
                digits(seconds_of(x, "torch", "update")),
                f"{seconds_of(x, 'torch', 'update') / x['ours-update']:.1f}",
            ]
            for name, x in found.items()
        ],
    )
    tables = [table, threads_table(found, threads)]
    return Findings(rows, [figure], tables, [text_of(found)])


def threads_table(found: dict[str, dict[str, float]], threads: int) -> Table:
    """Return PyTorch's seconds by its number of threads.

    Args:
        found: What `timers` measured, by algorithm.
        threads: The larger number.
    """
    kinds = [
        (part, count) for part in ("update", "loop") for count in sorted({1, threads})
    ]
    words = {"update": "gradient steps alone", "loop": "whole loop"}
    return Table(
        "PyTorch by its number of threads, seconds per 1,000",
        ["algorithm", *(f"{words[part]}, {count}" for part, count in kinds)],
        [
            [
                TITLES.get(name, name.upper()),
                *(digits(x[f"torch-{part}-{count}"]) for part, count in kinds),
            ]
            for name, x in found.items()
        ],
    )


def digits(number: float) -> str:
    """Return a number with three significant digits, zeros at its end included."""
    return f"{number:#.3g}".rstrip(".")


def time_row(name: str, x: dict[str, float]) -> Row:
    """Return the row on the time of an algorithm.

    Args:
        name: Name in `CLAIMED`.
        x: What `timers` measured.
    """
    claims = CLAIMED[name]
    ours, theirs = (seconds_of(x, stack, "loop") for stack in ("ours", "torch"))
    return Row(
        f"{TITLES.get(name, name.upper())}: seconds per 1,000 steps",
        "-" if claims == ("-", "-") else f"JAX {claims[0]}, PyTorch {claims[1]}",
        f"purerl {digits(ours)}, PyTorch {digits(theirs)}: "
        f"{theirs / ours:.1f} times as fast",
        note_of(name, ours, theirs),
    )


def note_of(name: str, ours: float, theirs: float) -> str:
    """Return what a reader should know of a time: absolute times of two machines.

    Args:
        name: Name in `CLAIMED`.
        ours: Seconds per 1,000 steps of purerl.
        theirs: Those of PyTorch here.
    """
    jax_claim, torch_claim = (claim.split(" ")[0] for claim in CLAIMED[name])
    if jax_claim == "-":
        return ""
    words = (
        f"purerl takes {ours / float(jax_claim):.1f} times as long as the source's JAX"
    )
    if torch_claim != "-":
        factor = float(torch_claim) / float(jax_claim)
        words += (
            f" and our PyTorch {theirs / float(torch_claim):.1f} times as long as the "
            f"source's PyTorch. In the source, JAX is {factor:.1f} times as fast as "
            "PyTorch"
        )
    note = f"The machines differ: {words}."
    if name == "td3":
        note = (
            "The source steps its environment on the host and calls compiled updates; "
            f"here the whole loop is one program. {note}"
        )
    return note


CAPTION = (
    "Seconds per 1,000 training steps of one agent on a CPU, on a logarithmic axis. "
    "Filled marks include environment and replay, hollow ones are the gradient steps "
    "alone. The stacks took turns, and marks are medians of three rounds."
)


def text_of(found: dict[str, dict[str, float]]) -> str:
    """Return the paragraph under the table.

    Args:
        found: What `timers` measured, by algorithm.
    """
    above = [
        f"{CASES.get(name, name.upper())} of {stack}"
        for name, x in found.items()
        for kind, stack in (("ours", "purerl"), ("torch", "PyTorch"))
        if seconds_of(x, kind, "update") > seconds_of(x, kind, "loop")
    ]
    text = (
        "purerl takes as many threads as XLA does; PyTorch's times are those of one "
        "thread or of one for each core, whichever is faster. PyTorch's MPO solves "
        "for the temperature with SciPy's SLSQP, as the source does; purerl's exact "
        "temperature comes from Newton's method inside the program. The gradient steps "
        "alone are timed in a program of their own on random numbers, and the loop is "
        "the difference of two runs, so that the part can take longer than the whole."
    )
    return text + _cases(above)


def _cases(above: list[str]) -> str:
    """Return the sentence on where the part takes longer than the whole."""
    if len(above) < 2:
        return "".join(f" {case} is such a case." for case in above)
    return f" {', '.join(above[:-1])} and {above[-1]} are such cases."


def figure_of(found: dict[str, dict[str, float]]) -> Any:
    """Draw the loop and the update of both as marks, per algorithm."""
    figure = style.new_figure(height=4.4)
    axes = figure.subplots()
    places = np.arange(len(found))
    for i, (kind, name) in enumerate((("ours", "purerl"), ("torch", "PyTorch"))):
        shift, colour = (i - 0.5) * 0.44, style.COLOURS[i]
        for part, dodge, face, words in (
            ("loop", -0.07, colour, "with environment and replay"),
            ("update", 0.07, "none", "gradient steps alone"),
        ):
            values = [seconds_of(x, kind, part) for x in found.values()]
            axes.plot(
                places + shift + dodge,
                values,
                linestyle="none",
                marker=style.MARKERS[i],
                markersize=8,
                color=colour,
                markerfacecolor=face,
                label=f"{name}, {words}",
            )
            for place, value in zip(places, values, strict=True):
                # Marks of almost equal times stand side by side, so that numbers beside
                # them would meet.
                is_whole = part == "loop"
                axes.annotate(
                    f"{value:.3g}",
                    (place + shift + dodge, value),
                    (0, 8 if is_whole else -8),
                    textcoords="offset points",
                    ha="center",
                    va="bottom" if is_whole else "top",
                    fontsize=9,
                    color=style.INK,
                )
    titles = {"mpo": "MPO\nexact", "mpo-gradient": "MPO\nby gradient"}
    axes.set_xticks(places, [titles.get(name, name.upper()) for name in found])
    axes.set_xlim(-0.6, len(found) - 0.4)
    axes.margins(y=0.12)
    style.log_axis(axes, "y")
    look = {"loc": "outside lower center", "ncols": 2, "frameon": False}
    figure.legend(labelcolor=style.INK, **look)
    style.finish(axes, "", "", "seconds per 1,000 steps")
    return figure


if __name__ == "__main__":
    main(STUDY, measure)
