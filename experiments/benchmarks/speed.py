"""The speed of purerl, next to rejax 0.1.3, PureJaxRL and gymnax 1.0.1, in one run.

    experiments/benchmarks/setup_peers.sh
    python experiments/benchmarks/speed.py --rounds 5 --out results/speed

Contenders take turns, round by round, each with the machine for itself; compilation
is apart; a figure is a ratio of medians. Nothing here fails when a goal is missed: it
says so. rejax runs in its own interpreter (it needs an old gymnax), which sleeps while
another one runs, and so does PureJaxRL, which is no package: `--purejaxrl PATH/ppo.py`.
"""

from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import bench
import contenders

from purerl import envs


def pairs(
    runs: Mapping[str, list[bench.Run]],
    work: float,
    names: Mapping[str, tuple[str, str]],
    goal: bench.Goal,
    note: str,
) -> list[bench.Row]:
    """Rows of pairs that were run, by their names; the first has the goal."""
    rows = []
    for name, (who, other) in names.items():
        if other in runs:
            more = {} if rows else {"goal": goal, "note": note}
            ours, theirs = (bench.rates(runs[each], work) for each in (who, other))
            rounds = {who: ours, other: theirs}
            rows.append(
                bench.beside(
                    name, "steps/s", ours, theirs, other, rounds=rounds, **more
                )
            )
    return rows


def note_on(runs: Mapping[str, list[bench.Run]], what: str, compiled: str = "") -> str:
    """Scores, seconds of compilation and of the processors."""
    scores = ", ".join(
        f"{who} {bench.mean_score(found):.1f}" for who, found in runs.items()
    )
    return f"{what}: {scores}; {compiled}{bench.cpu_seconds(dict(runs))}"


def peers_of(
    asked: bench.Asked, stack: ExitStack, agents: int, steps: float, devices: int = 0
) -> tuple[dict[str, bench.Measure], float]:
    """Prepare rejax, PureJaxRL if it is there, and rejax over so many devices.

    Returns:
        What to time, and rejax's seconds of compilation.
    """

    def program(**request: Any) -> tuple[bench.Measure, float]:
        return bench.peer_program(stack, asked.peers, agents=agents, **request)

    numbers = contenders.ppo_numbers(steps)
    rejax, compiled = program(devices=1, ppo=numbers)
    measures = {"rejax": rejax}
    if devices:
        measures["rejax, jax.pmap"], _ = program(devices=devices, ppo=numbers)
    if asked.purejaxrl:
        total = numbers["total_timesteps"]
        own = contenders.purejaxrl_program(asked.purejaxrl, total)
        measures["PureJaxRL"], _ = program(devices=1, purejaxrl=own)
    return measures, compiled


def measure_many(asked: bench.Asked) -> list[bench.Row]:
    """Many agents: purerl.pmap against rejax by jit(vmap), and what the cores give."""
    agents = asked.agents
    config, cores = contenders.ppo_config(asked.steps_many), bench.machine()["cores"]
    lanes, ours = contenders.fastest_lanes(
        config, agents, asked.lanes, asked.lane_rounds
    )
    vmapped, own = contenders.train_ppo(config, agents)
    spread_out = cores if cores > 1 and agents % cores == 0 else 0
    with ExitStack() as stack:
        peers, other = peers_of(asked, stack, agents, asked.steps_many, spread_out)
        measures = {"pmap": ours, "vmap": vmapped, **peers}
        runs = bench.alternate(measures, asked.rounds)
    title = f"{agents} PPO agents, {config.total_timesteps} steps each"
    names = {
        f"{title}, purerl.pmap W={lanes}": ("pmap", "rejax"),
        "  the same, both jit(vmap)": ("vmap", "rejax"),
        f"  the same, rejax by jax.pmap over {cores} host devices": (
            "pmap",
            "rejax, jax.pmap",
        ),
        "  beside PureJaxRL, jit(vmap)": ("pmap", "PureJaxRL"),
    }
    compiled = f"compile: purerl {own:.1f} s, rejax {other:.1f} s, both jit(vmap); "
    note = note_on(runs, "final mean return", compiled)
    return pairs(
        runs, agents * config.total_timesteps, names, bench.Goal(True, 2.0), note
    )


def measure_one(asked: bench.Asked) -> list[bench.Row]:
    """One agent, one program, against rejax's and PureJaxRL's."""
    config = contenders.ppo_config(asked.steps_one)
    ours, own = contenders.train_ppo(config)
    with ExitStack() as stack:
        peers, other = peers_of(asked, stack, 1, asked.steps_one)
        runs = bench.alternate({"purerl": ours, **peers}, asked.rounds)
    names = {
        f"one PPO agent, {config.total_timesteps} steps": ("purerl", "rejax"),
        "  beside PureJaxRL": ("purerl", "PureJaxRL"),
    }
    compiled = f"compile: purerl {own:.1f} s, rejax {other:.1f} s; "
    note = note_on(runs, "final mean return over the rounds' agents", compiled)
    return pairs(runs, config.total_timesteps, names, bench.Goal(True, 1.2), note)


def measure_steps(asked: bench.Asked) -> list[bench.Row]:
    """Random CartPole steps against gymnax 1.x, in this process."""
    import gymnax

    env = envs.make("CartPole-v1")
    measures = {
        "purerl": contenders.step_randomly(env, env.default_params),
        "gymnax": contenders.step_randomly(*gymnax.make("CartPole-v1")),
    }
    for measure in measures.values():
        measure(0)
    runs = bench.alternate(measures, asked.rounds)
    names = {
        f"CartPole steps, {contenders.STEPPED_ENVS} environments": ("purerl", "gymnax")
    }
    note = note_on(runs, "mean length of random episodes")
    return pairs(
        runs,
        contenders.STEPPED_ENVS * contenders.STEPS,
        names,
        bench.Goal(True, 1.0),
        note,
    )


def measure_imports(asked: bench.Asked) -> list[bench.Row]:
    """`import purerl` against `import jax`, and `purerl --help`."""
    measures = {
        "purerl": contenders.import_seconds("purerl"),
        "jax": contenders.import_seconds("jax"),
        "help": contenders.help_seconds(),
    }
    for measure in measures.values():  # The first ones fill the disk's cache.
        measure(0)
    runs = bench.alternate(measures, asked.rounds)
    ours, jax_alone, helped = (bench.seconds_of(runs[who]) for who in measures)
    name, goal = "import purerl / import jax", bench.Goal(False, 1.5)
    more = {"figure": bench.compare(ours, jax_alone), "goal": goal}
    rounds = {"purerl": ours, "jax": jax_alone}
    helps, slowest = bench.spread(helped), bench.Goal(False, 3.0)
    return [
        bench.beside(name, "s", ours, jax_alone, "import jax", rounds=rounds, **more),
        bench.Row("purerl --help, seconds", "s", helps, None, "", helps, slowest),
    ]


def measure_evaluation(asked: bench.Asked) -> list[bench.Row]:
    """The share of a run's time that the evaluation inside it takes."""
    from purerl.train import bind

    rows = []
    agents, lanes = asked.eval_agents, asked.eval_lanes
    for count, timesteps in ((None, asked.steps_one), (agents, asked.eval_steps)):
        plain = contenders.ppo_config(timesteps)
        default = plain.replace(num_evaluations=asked.num_evaluations)
        width = None if count is None else lanes
        built = {
            who: contenders.train_ppo(config, count, width)[0]
            for who, config in {"with": default, "without": plain}.items()
        }
        runs = bench.alternate(built, asked.rounds)
        seconds = {who: bench.seconds_of(found) for who, found in runs.items()}
        ratio = bench.compare(seconds["without"], seconds["with"])
        how = "one agent" if count is None else f"{count} agents, purerl.pmap W={lanes}"
        # What `eval_share` leaves of them.
        evaluations = len(bind(default).plan.evaluate_after)
        row = bench.beside(
            f"evaluation's share of the time, {how}",
            "s",
            seconds["with"],
            seconds["without"],
            "without",
            figure=bench.Spread(1 - ratio.median, 1 - ratio.high, 1 - ratio.low),
            goal=bench.Goal(False, default.eval_share),
            note=f"{evaluations} evaluations of {default.eval_episodes} episodes",
            rounds=seconds,
        )
        rows.append(row)
    return rows


SECTIONS = {
    "many": measure_many,
    "one": measure_one,
    "step": measure_steps,
    "import": measure_imports,
    "eval": measure_evaluation,
}


def main() -> None:
    """Measure the sections that were asked for and print one table."""
    asked = bench.options(
        __doc__,
        rounds=(5, "turns of every contender"),
        only=(list(SECTIONS), SECTIONS, "sections"),
        lanes=([4, 8, 16], "widths to try"),
        lane_rounds=(2, "turns of every width"),
        agents=64,
        steps_many=(1e5, "steps of each of many agents"),
        steps_one=(5e5, "steps of the single agent"),
        eval_agents=(16, "agents of `eval`"),
        eval_steps=(2e5, "steps of each of them"),
        eval_lanes=(8, "their width"),
        num_evaluations=(10, "wanted in `eval`"),
        peers=(bench.PEERS, "rejax's environment"),
        purejaxrl=(Path, "PureJaxRL's ppo.py, in the same environment"),
        out=(Path, "write OUT.md and OUT.json"),
    )
    has_peers = bool({"many", "one"} & set(asked.only))
    peers = {"peer_rejax.py": asked.peers} if has_peers else {}
    bench.measure_sections(asked, SECTIONS, peers)


if __name__ == "__main__":
    main()
