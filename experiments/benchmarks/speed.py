"""The speed of purerl, next to rejax 0.1.3, PureJaxRL and gymnax 1.0.1, in one run.

    experiments/benchmarks/setup_peers.sh
    python experiments/benchmarks/speed.py --rounds 5 --out results/speed

Contenders take turns, round by round, each with the machine for itself; compilation
is apart; a figure is a ratio of medians. Nothing here fails when a goal is missed: it
says so. rejax runs in its own interpreter (it needs an old gymnax), which sleeps while
another one runs, and so does PureJaxRL, which is no package: `--purejaxrl PATH/ppo.py`.
"""

import argparse
import os
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from contenders import (
    STEPPED_ENVS,
    fastest_lanes,
    help_seconds,
    import_seconds,
    ppo_config,
    ppo_numbers,
    purejaxrl_program,
    step_randomly,
    train_many,
    train_one,
)
from peer import ROOT, Peer
from report import (
    Goal,
    Measure,
    Row,
    Run,
    alternate,
    compare,
    cpu_seconds,
    hardware,
    mean_score,
    rates,
    save,
    spread,
    text,
)

from purerl import envs

SECTIONS = ("many", "one", "step", "import", "eval")
Options = argparse.Namespace


def rejax_measure(
    options: Options, stack: ExitStack, agents: int, timesteps: float, devices: int = 1
) -> tuple[Measure, float]:
    """Rejax's training in a process of its own: what to time, compile seconds."""
    return peer_measure(
        options, stack, agents=agents, devices=devices, ppo=ppo_numbers(timesteps)
    )


def purejaxrl_measure(
    options: Options, stack: ExitStack, agents: int, timesteps: int
) -> tuple[Measure, float]:
    """PureJaxRL's training in a process of its own: what to time, compile seconds."""
    program = purejaxrl_program(options.purejaxrl, timesteps)
    return peer_measure(options, stack, agents=agents, devices=1, purejaxrl=program)


def peer_measure(
    options: Options, stack: ExitStack, **asked: Any
) -> tuple[Measure, float]:
    """A peer's training in a process of its own: what to time, compile seconds."""
    peer = stack.enter_context(Peer(options.peers / "bin" / "python"))
    prepared = peer.ask("prepare", **asked)

    def measure(seed: int) -> Run:
        return Run(**peer.ask("run", seed=seed))

    return measure, prepared["compile_seconds"]


def rate_row(
    name: str,
    runs: dict[str, list[Run]],
    pair: tuple[str, str],
    work: float,
    goal: Goal | None,
    note: str = "",
) -> Row:
    """Steps per second of a pair of contenders."""
    ours, theirs = (rates(runs[who], work) for who in pair)
    return Row(
        name=name,
        unit="steps/s",
        purerl=spread(ours),
        other=spread(theirs),
        other_name=pair[1],
        figure=compare(ours, theirs),
        goal=goal,
        note=note,
        rounds={pair[0]: ours, pair[1]: theirs},
    )


def measure_many(options: Options) -> list[Row]:
    """Many agents: purerl.pmap against rejax by jit(vmap), and what the cores give."""
    agents, timesteps = options.agents, options.steps_many
    config = ppo_config(timesteps)
    cores = hardware()["cores"]
    lanes, ours, _ = fastest_lanes(config, agents, options.lanes, options.lane_rounds)
    vmapped, our_compile = train_many(config, agents, None)
    with ExitStack() as stack:
        theirs, their_compile = rejax_measure(options, stack, agents, timesteps)
        measures = {"pmap": ours, "rejax": theirs, "vmap": vmapped}
        if cores > 1 and agents % cores == 0:
            spread_out, _ = rejax_measure(options, stack, agents, timesteps, cores)
            measures["rejax, jax.pmap"] = spread_out
        if options.purejaxrl:
            measures["PureJaxRL"], _ = purejaxrl_measure(
                options, stack, agents, config.total_timesteps
            )
        runs = alternate(measures, options.rounds)

    work = agents * config.total_timesteps
    scores = ", ".join(f"{who} {mean_score(runs[who]):.0f}" for who in runs)
    note = (
        f"final mean return: {scores}; compile: purerl {our_compile:.1f} s, rejax "
        f"{their_compile:.1f} s, both jit(vmap); {cpu_seconds(runs)}"
    )
    title = f"{agents} PPO agents, {config.total_timesteps} steps each"
    rows = [
        rate_row(
            f"{title}, purerl.pmap W={lanes}",
            runs,
            ("pmap", "rejax"),
            work,
            Goal(True, 2.0),
            note,
        ),
        rate_row("  the same, both jit(vmap)", runs, ("vmap", "rejax"), work, None),
    ]
    if "rejax, jax.pmap" in runs:
        pair = ("pmap", "rejax, jax.pmap")
        name = f"  the same, rejax by jax.pmap over {cores} host devices"
        rows.append(rate_row(name, runs, pair, work, None))
    if options.purejaxrl:
        pair = ("pmap", "PureJaxRL")
        rows.append(rate_row("  beside PureJaxRL, jit(vmap)", runs, pair, work, None))
    return rows


def measure_one(options: Options) -> list[Row]:
    """One agent, one program, against rejax's and PureJaxRL's."""
    config = ppo_config(options.steps_one)
    ours, our_compile = train_one(config)
    with ExitStack() as stack:
        theirs, their_compile = rejax_measure(options, stack, 1, options.steps_one)
        measures = {"purerl": ours, "rejax": theirs}
        if options.purejaxrl:
            measures["PureJaxRL"], _ = purejaxrl_measure(
                options, stack, 1, config.total_timesteps
            )
        runs = alternate(measures, options.rounds)
    scores = ", ".join(f"{who} {mean_score(runs[who]):.0f}" for who in runs)
    note = (
        f"final mean return over the rounds' agents: {scores}; compile: purerl "
        f"{our_compile:.1f} s, rejax {their_compile:.1f} s; {cpu_seconds(runs)}"
    )
    name = f"one PPO agent, {config.total_timesteps} steps"
    work = config.total_timesteps
    goal = Goal(True, 1.2)
    rows = [rate_row(name, runs, ("purerl", "rejax"), work, goal, note)]
    if options.purejaxrl:
        pair = ("purerl", "PureJaxRL")
        rows.append(rate_row("  beside PureJaxRL", runs, pair, work, None))
    return rows


def measure_steps(options: Options) -> list[Row]:
    """Random CartPole steps against gymnax 1.x, in this process."""
    import gymnax
    from contenders import STEPS

    env = envs.make("CartPole-v1")
    peer, peer_params = gymnax.make("CartPole-v1")
    measures = {
        "purerl": step_randomly(env, env.default_params),
        "gymnax": step_randomly(peer, peer_params),
    }
    for measure in measures.values():
        measure(0)
    runs = alternate(measures, options.rounds)
    lengths = ", ".join(f"{who} {mean_score(runs[who]):.1f}" for who in runs)
    return [
        rate_row(
            f"CartPole steps, {STEPPED_ENVS} environments",
            runs,
            ("purerl", "gymnax"),
            STEPPED_ENVS * STEPS,
            Goal(True, 1.0),
            f"mean length of random episodes: {lengths}; {cpu_seconds(runs)}",
        )
    ]


def measure_imports(options: Options) -> list[Row]:
    """`import purerl` against `import jax`, and `purerl --help`."""
    measures = {
        "purerl": import_seconds("purerl"),
        "import jax": import_seconds("jax"),
        "help": help_seconds(),
    }
    for measure in measures.values():  # The first ones fill the disk's cache.
        measure(0)
    runs = alternate(measures, options.rounds)
    seconds = {who: [run.seconds for run in runs[who]] for who in runs}
    ours, jax_alone, helped = (seconds[who] for who in measures)
    return [
        Row(
            name="import purerl / import jax",
            unit="s",
            purerl=spread(ours),
            other=spread(jax_alone),
            other_name="import jax",
            figure=compare(ours, jax_alone),
            goal=Goal(False, 1.5),
            rounds={"purerl": ours, "jax": jax_alone},
        ),
        Row(
            name="purerl --help, seconds",
            unit="s",
            purerl=spread(helped),
            other=None,
            other_name="",
            figure=spread(helped),
            goal=Goal(False, 3.0),
            rounds={"help": helped},
        ),
    ]


def measure_evaluation(options: Options) -> list[Row]:
    """The share of a run's time that the evaluation inside it takes."""
    rows = []
    agents, lanes = options.eval_agents, options.eval_lanes
    for count, timesteps in ((1, options.steps_one), (agents, options.eval_steps)):
        plain = ppo_config(timesteps)
        default = plain.replace(num_evaluations=options.num_evaluations)
        built = {
            who: (train_one(c) if count == 1 else train_many(c, count, lanes))[0]
            for who, c in {"with": default, "without": plain}.items()
        }
        runs = alternate(built, options.rounds)
        seconds = {who: [run.seconds for run in runs[who]] for who in runs}
        ratio = compare(seconds["without"], seconds["with"])
        how = "one agent" if count == 1 else f"{count} agents, purerl.pmap W={lanes}"
        rows.append(
            Row(
                name=f"evaluation's share of the time, {how}",
                unit="s",
                purerl=spread(seconds["with"]),
                other=spread(seconds["without"]),
                other_name="without",
                figure=type(ratio)(1 - ratio.median, 1 - ratio.high, 1 - ratio.low),
                goal=Goal(False, default.eval_share),
                note=f"{evaluations(default)} evaluations of "
                f"{default.eval_episodes} episodes",
                rounds=seconds,
            )
        )
    return rows


def evaluations(config: Any) -> int:
    """Return the number of a run's evaluations that `eval_share` leaves."""
    from purerl.train import bind

    return len(bind(config).plan.evaluate_after)


def parse(arguments: list[str] | None = None) -> Options:
    """Command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--rounds", type=int, default=5, help="turns of every contender")
    add("--only", nargs="+", choices=SECTIONS, default=SECTIONS, help="sections")
    add("--lanes", type=int, nargs="+", default=[4, 8, 16], help="widths to try")
    add("--lane-rounds", type=int, default=2, help="turns of every width")
    add("--agents", type=int, default=64)
    add("--steps-many", type=float, default=1e5, help="steps of each of many agents")
    add("--steps-one", type=float, default=5e5, help="steps of the single agent")
    add("--eval-agents", type=int, default=16, help="agents of `eval`")
    add("--eval-steps", type=float, default=2e5, help="steps of each of them")
    add("--eval-lanes", type=int, default=8, help="their width")
    add("--num-evaluations", type=int, default=10, help="wanted in `eval`")
    add("--peers", type=Path, default=ROOT / ".venv-peers", help="rejax's environment")
    add("--purejaxrl", type=Path, help="PureJaxRL's ppo.py, in the same environment")
    add("--out", type=Path, help="write OUT.md and OUT.json")
    return parser.parse_args(arguments)


def main() -> None:
    """Measure the sections that were asked for and print one table."""
    options = parse()
    facts = hardware() | {"rounds": options.rounds}
    if {"many", "one"} & set(options.only):
        with Peer(options.peers / "bin" / "python") as peer:
            found = peer.ask("versions")
        shim = " with jax.tree_map = jax.tree.map" if found.pop("shimmed") else ""
        listed = ", ".join(f"{name} {version}" for name, version in found.items())
        facts["peer_versions"] = listed + shim
    sections: dict[str, Callable[[Options], list[Row]]] = {
        "many": measure_many,
        "one": measure_one,
        "step": measure_steps,
        "import": measure_imports,
        "eval": measure_evaluation,
    }
    rows: list[Row] = []
    for name in options.only:
        print(f"measuring {name} ...", flush=True)
        rows += sections[name](options)
    facts["load_after"] = round(os.getloadavg()[0], 2)
    print("\n" + text(rows, facts))
    if options.out:
        save(options.out, rows, facts)


if __name__ == "__main__":
    main()
