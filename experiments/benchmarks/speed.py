"""The speed of purerl, next to rejax 0.1.3 and PureJaxRL, in one run.

    experiments/benchmarks/setup_peers.sh
    python experiments/benchmarks/speed.py --rounds 5 --out results/speed

Contenders take turns, round by round, each with the machine for itself; compilation
is apart; a figure is a ratio of medians. rejax runs in its own interpreter (it needs an
old gymnax), which sleeps while another one runs, and so does PureJaxRL, which is no
package: `--purejaxrl PATH/ppo.py`.
"""

from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import bench
import contenders
from same_numbers import for_purejaxrl, for_rejax


def pairs(
    runs: Mapping[str, list[bench.Run]],
    work: float,
    names: Mapping[str, tuple[str, str]],
    note: str,
) -> list[bench.Row]:
    """Rows of pairs that were run, by their names; the first has the note."""
    rows = []
    for name, (who, other) in names.items():
        if other in runs:
            more = {} if rows else {"note": note}
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
    asked: bench.Asked, stack: ExitStack, agents: int, config: Any, devices: int = 0
) -> tuple[dict[str, bench.Measure], float]:
    """Prepare rejax, PureJaxRL if it is there, and rejax over so many devices.

    Returns:
        What to time, and rejax's seconds of compilation.
    """

    def program(**request: Any) -> tuple[bench.Measure, float]:
        return bench.peer_program(stack, asked.peers, agents=agents, **request)

    numbers = for_rejax(config)
    rejax, compiled = program(devices=1, ppo=numbers)
    measures = {"rejax": rejax}
    if devices:
        measures["rejax, jax.pmap"], _ = program(devices=devices, ppo=numbers)
    if asked.purejaxrl:
        own = for_purejaxrl(config, asked.purejaxrl)
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
        peers, other = peers_of(asked, stack, agents, config, spread_out)
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
    return pairs(runs, agents * config.total_timesteps, names, note)


def measure_one(asked: bench.Asked) -> list[bench.Row]:
    """One agent, one program, against rejax's and PureJaxRL's."""
    config = contenders.ppo_config(asked.steps_one)
    ours, own = contenders.train_ppo(config)
    with ExitStack() as stack:
        peers, other = peers_of(asked, stack, 1, config)
        runs = bench.alternate({"purerl": ours, **peers}, asked.rounds)
    names = {
        f"one PPO agent, {config.total_timesteps} steps": ("purerl", "rejax"),
        "  beside PureJaxRL": ("purerl", "PureJaxRL"),
    }
    compiled = f"compile: purerl {own:.1f} s, rejax {other:.1f} s; "
    note = note_on(runs, "final mean return over the rounds' agents", compiled)
    return pairs(runs, config.total_timesteps, names, note)


SECTIONS = {"many": measure_many, "one": measure_one}


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
        peers=(bench.PEERS, "rejax's environment"),
        purejaxrl=(Path, "PureJaxRL's ppo.py, in the same environment"),
        out=(Path, "write OUT.md and OUT.json"),
    )
    bench.measure_sections(asked, SECTIONS, {"peer_rejax.py": asked.peers})


if __name__ == "__main__":
    main()
