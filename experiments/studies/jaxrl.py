"""VPG, TD3, SAC and MPO beside plain PyTorch: seconds per 1,000 steps, and where.

python experiments/studies/jaxrl.py [--quick]
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from measure import compiled, timed, torch_threads
from study import Budget, Findings, Row, interval_text, main, study_of

# isort: split
from frame import cores, mean_interval
from pictures import legend_below, style

import purerl
from purerl import presets, serialise
from purerl.acting.environment import resolve_env
from purerl.algorithms import mpo, policy_gradient, sac, td3, vpg
from purerl.algorithms.off_policy import Learner
from purerl.algorithms.policy_gradient import Batch as Rollout
from purerl.learning.branches import StepCount
from purerl.replay.batches import Batch
from purerl.train import bind, make_algorithm, make_train

STUDY, WORDS = study_of("jaxrl", "jax-rl")
TITLES = {"mpo": "MPO, temperature exact", "mpo-gradient": "MPO, by gradient"}
# Seconds per 1,000 training steps in the source's table: JAX, PyTorch.
CLAIMED = {
    "vpg": ("-", "-"),
    "td3": ("2.35 ± 0.17", "6.93 ± 0.16"),
    "sac": ("5.57 ± 0.07", "32.37 ± 1.32"),
    "mpo": ("39.19 ± 1.09", "107.51 ± 3.56"),
    "mpo-gradient": ("38.26 ± 2.74", "-"),
}
# Steps that are timed; of VPG, epochs.
STEPS = {
    "full": {"vpg": 4, "td3": 800, "sac": 800, "mpo": 200},
    "quick": {"vpg": 1, "td3": 40},
}


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
        {name: {"temperature": name} for name in ("exact", "gradient")},
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
    ends = {name: np.array(scores) for name, scores in returns.items()}
    ends["gap"] = ends["exact"] - ends["gradient"]
    found, verdict = mean_interval(ends["gap"]), WORDS["not apart"]
    if not found.low <= 0 <= found.high:
        better = "exact" if found.low > 0 else "by gradient"
        verdict = WORDS.fill("apart", better=better)
    numbers = {name: interval_text(values) for name, values in ends.items()}
    seeds = len(ends["gap"])
    return WORDS.row("temperatures", verdict=verdict, seeds=seeds, **numbers)


def measure(budget: Budget) -> Findings:
    """Measure everything, part by part."""
    # More threads than idle cores wait for one another, so a quick run has one.
    rounds, threads = (1, 1) if budget.quick else (3, cores())
    names = ["vpg", "td3"] if budget.quick else list(CLAIMED)
    found: dict[str, dict[str, float]] = {}
    for name in names:
        steps = STEPS["quick" if budget.quick else "full"][name.split("-")[0]]
        given: dict[str, Any] = {"steps": steps, "rounds": rounds, "threads": threads}
        config = serialise.to_dict(config_of(name))
        make = partial(in_turns, name, **given)
        found[name] = budget.part(name, make, **given, config=config)
    config = serialise.to_dict(temperature_config(budget.quick))
    learned = budget.part("temperatures", temperatures, budget.quick, config=config)
    figure = budget.save(figure_of(found), "times", WORDS["caption"])
    rows = [time_row(name, x) for name, x in found.items()]
    rows.append(learning_row(learned))
    return Findings(rows, [figure], [WORDS["text"]])


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
    claim = f"JAX {claims[0]}, PyTorch {claims[1]}"
    ours, theirs = (seconds_of(x, stack, "loop") for stack in ("ours", "torch"))
    return WORDS.row(
        "time",
        title=TITLES.get(name, name.upper()),
        claim="-" if claims == ("-", "-") else claim,
        ours=digits(ours),
        theirs=digits(theirs),
        ratio=theirs / ours,
        note=note_of(name, ours, theirs),
    )


def note_of(name: str, ours: float, theirs: float) -> str:
    """Return what a reader should know of a time: absolute times of two machines.

    Args:
        name: Name in `CLAIMED`.
        ours: Seconds per 1,000 steps of purerl.
        theirs: Those of PyTorch here.
    """
    first, second = (claim.split(" ")[0] for claim in CLAIMED[name])
    if first == "-":
        return ""
    note = WORDS.fill("ours", ours=ours / float(first))
    if second != "-":
        ratio = float(second) / float(first)
        words = WORDS.fill("theirs", theirs=theirs / float(second), ratio=ratio)
        note += f" {words}"
    return f"{WORDS['td3']} {note}." if name == "td3" else f"{note}."


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
    legend_below(figure, axes)
    style.finish(axes, "", "", "seconds per 1,000 steps")
    return figure


MODULES = {"td3": td3, "sac": sac, "mpo": mpo}
BATCH, OBS, ACTIONS = 256, 3, 1
VPG_EPOCH = 5_000  # Environment steps between two updates of VPG.
WARM_UP = 1_000
Timer = Callable[[], float]  # Seconds per 1,000 steps, measured anew by every call.


def config_of(name: str) -> Any:
    """Return the preset of an algorithm, on Pendulum-v1 in one environment."""
    if name == "vpg":
        changes: dict[str, Any] = {"env_kwargs": {}, "reset_scheme": "fresh"}
        changes |= {"env": "Pendulum-v1", "num_envs": 1, "num_steps": VPG_EPOCH}
        return presets.load("vpg-halfcheetah").replace(num_evaluations=0, **changes)
    algorithm = name.split("-")[0]
    config = presets.load(f"{algorithm}-jaxrl").replace(env="Pendulum-v1")
    if name == "mpo-gradient":
        return config.replace(temperature="gradient", temperature_init=1.3132617)
    return config


def our_update(name: str, steps: int) -> Timer:
    """Return what times our gradient steps on one batch of noise: seconds per 1,000."""
    module: Any = MODULES[name.split("-")[0]]
    config = config_of(name)
    parts = module.build(config, resolve_env(config))
    keys = jax.random.split(jax.random.key(0), 5)
    state = module.init(parts, keys[0])
    learner = Learner(state.params, state.target_params, state.opt_state)
    batch = Batch(
        obs=jax.random.normal(keys[1], (BATCH, OBS)),
        action=jax.random.uniform(keys[2], (BATCH, ACTIONS), minval=-1.0),
        reward=jax.random.normal(keys[3], (BATCH,)),
        next_obs=jax.random.normal(keys[4], (BATCH, OBS)),
        discount=jnp.full(BATCH, 0.99),
        weight=jnp.ones(BATCH),
    )
    hooks = module.make_hooks(parts)

    def train(learner: Any, batch: Any, key: jax.Array) -> Any:
        def one(learner: Any, xs: tuple) -> tuple[Any, None]:
            noise, count = xs
            return hooks.learn(learner, batch, noise, StepCount(count))[0], None

        noise = hooks.draw_noise(key, (steps,))
        counts = jnp.arange(steps, dtype=jnp.uint32)
        return jax.lax.scan(one, learner, (noise, counts))[0]

    return _alone(train, (learner, batch, keys[0]), steps)


def _alone(function: Callable[..., Any], arguments: tuple, steps: int) -> Timer:
    """Return what times a compiled call that stands for some steps."""
    call, _ = compiled(function, *arguments)
    timed(call, *arguments)
    return lambda: timed(call, *arguments) / steps * 1_000


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
    """Return what times our VPG's update on one batch of noise, that of one epoch."""
    del epochs
    config = config_of("vpg")
    parts = policy_gradient.make_agent(config, resolve_env(config))
    keys = jax.random.split(jax.random.key(0), 5)
    number = jax.random.normal(keys[1], (VPG_EPOCH,))
    batch = Rollout(
        obs=jax.random.normal(keys[2], (VPG_EPOCH, OBS)),
        action=jax.random.normal(keys[3], (VPG_EPOCH, ACTIONS)),
        log_prob=number,
        value=number,
        advantage=number,
        target=number,
    )

    def update(state: Any, batch: Rollout) -> tuple[Any, Any]:
        actor, *_ = vpg.improve_policy(parts, state, batch)
        critic, *_ = vpg.fit_value(parts, state, batch)
        return actor, critic

    state = make_algorithm(config).init(keys[0])
    return _alone(update, (state, batch), VPG_EPOCH)


def our_vpg_loop(epochs: int) -> Timer:
    """Return what times our VPG's epochs after a first one, environment included."""
    return _beyond(config_of("vpg"), VPG_EPOCH, epochs * VPG_EPOCH)


def torch_agent(name: str) -> Any:
    """Return the PyTorch agent of a name."""
    from torch_agents import mpo, sac, td3, vpg

    make: dict[str, Callable[..., Any]] = {
        "vpg": vpg.VPG,
        "td3": td3.TD3,
        "sac": sac.SAC,
        "mpo": mpo.MPO,
        "mpo-gradient": partial(mpo.MPO, is_exact=False),
    }
    return make[name](OBS, ACTIONS)


def torch_update(name: str, steps: int, threads: int) -> Timer:
    """Return what times PyTorch's gradient steps on one batch, or VPG's one update."""
    import torch
    from torch_agents import common

    agent = torch_agent(name)
    batch, calls = common.random_batch(BATCH, OBS, ACTIONS), steps
    if name == "vpg":
        number, calls, steps = torch.randn(VPG_EPOCH), 1, VPG_EPOCH
        batch = {"advantage": number, "target": number}
        batch |= {"obs": torch.randn(steps, OBS), "action": torch.randn(steps, ACTIONS)}

    def once() -> float:
        torch_threads(threads)
        agent.learn(batch)
        return timed(lambda: [agent.learn(batch) for _ in range(calls)]) / steps * 1_000

    return once


def torch_loop(name: str, steps: int, threads: int) -> Timer:
    """Return what times PyTorch's whole training steps; of VPG, epochs."""
    from torch_agents import common, vpg

    def once() -> float:
        torch_threads(threads)
        agent, env = torch_agent(name), "Pendulum-v1"
        if name == "vpg":
            return vpg.train(agent, env, steps, VPG_EPOCH) / VPG_EPOCH * 1_000
        return common.train(agent, env, steps, WARM_UP, BATCH) / steps * 1_000

    return once


def in_turns(name: str, steps: int, rounds: int, threads: int) -> dict[str, float]:
    """Time both stacks, the gradient steps alone and the whole loop, in turns.

    Args:
        name: Name of the algorithm, such as `mpo-gradient`.
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
        name: Name of the algorithm, such as `mpo-gradient`; of `vpg` the timers take
            epochs in place of steps.
        threads: Threads of PyTorch, which is timed with one, too.
    """
    update, loop = partial(our_update, name), partial(our_loop, name)
    if name == "vpg":
        update, loop = our_vpg_update, our_vpg_loop
    found: dict[str, Callable[[int], Timer]] = {"ours-update": update}
    found["ours-loop"] = loop
    for count in sorted({1, threads}):
        for part, make in (("update", torch_update), ("loop", torch_loop)):
            found[f"torch-{part}-{count}"] = partial(make, name, threads=count)
    return found


if __name__ == "__main__":
    main(STUDY, measure)
