"""The number of kernels that a GPU would run for purerl and its peers, on any machine.

    experiments/benchmarks/setup_gpu_program.sh
    .venv-gpu-program/bin/python experiments/benchmarks/gpu_program.py [ROW ...]

`--list` names every kernel. `--peers .venv-gpu-peers` adds rejax, and with `--purejaxrl
FILE`, the path of its ppo.py, PureJaxRL, with ppo_rnn.py where that lies beside it.

Every row is a preset and a number of agents that `jax.vmap` trains side by side,
without evaluations, compiled for an H200 that is not there (`gpu_kernels.py`). Nothing
runs, so the figures have no noise; seconds are those of this machine.
"""

import gpu_kernels  # isort: skip  # Before anything computes with jax.

import argparse
import json
import subprocess
from importlib.metadata import version
from pathlib import Path
from typing import Any

import jax

import purerl
from purerl import presets
from purerl.atomic import write_atomic
from purerl.contrib.hardware.work import work_of
from purerl.execution.format import with_noun
from purerl.tracing import traced_for

HERE = Path(__file__).parent
# Preset -> agents.
ROWS = {
    "ppo-cartpole": 1024,
    "vpg-cartpole": 1024,
    "pqn-cartpole": 1024,
    "dqn-cartpole": 64,
    "recurrent-ppo-cartpole": 64,
    "td3-pendulum": 64,
    "sac-pendulum": 64,
    "mpo-pendulum": 64,
    "ppo-minatar": 64,
    "ppo-halfcheetah": 1,
}
# PureJaxRL's and rejax's own settings, so that the three programs do the same work.
SAME = {"num_envs": 4, "num_steps": 128, "total_timesteps": 500_000}


def count(
    name: str, agents: int, is_packed: bool = True
) -> tuple[gpu_kernels.Program, float]:
    """Compile a preset; return also the kernels that `purerl plan --no-compile` sees.

    Args:
        name: The preset.
        agents: Agents that are trained side by side.
        is_packed: Whether loops write the outputs of a step at once, as they do on a
            GPU (`purerl.accelerator.packing`).
    """
    changes: dict[str, Any] = {"num_evaluations": 0}
    if name == "ppo-cartpole":
        changes |= SAME
    config = presets.load(name).replace(**changes)
    keys = jax.eval_shape(lambda: jax.random.split(jax.random.key(0), agents))
    with traced_for("cuda" if is_packed else "cpu"):
        train = jax.vmap(purerl.make_train(config))
        program = gpu_kernels.compile_for_gpu(train, keys)
        return program, work_of(jax.make_jaxpr(train)(keys).jaxpr).kernels


def count_devices(number: int) -> dict[str, dict[str, Any]]:
    """Count what devices wait for one another: of one agent, and of a population.

    An agent's environments are spread by `purerl.data_parallel`. Of a population every
    device trains a block by a program of its own (`purerl.pmap`), which is compiled
    here for one device.

    Args:
        number: Number of devices.

    Returns:
        Kernels and collective operations of one device's program, by name.
    """
    over = gpu_kernels.devices(number)
    config = presets.load("ppo-cartpole").replace(
        num_evaluations=0, num_envs=64 * number, num_steps=128, total_timesteps=10**7
    )
    key = jax.eval_shape(lambda: jax.random.key(0))
    with traced_for("cuda"):
        train = purerl.data_parallel(config, over)
        spread = gpu_kernels.compile_for_gpu(train, key, over=over)
    program, _ = count("ppo-cartpole", ROWS["ppo-cartpole"])
    envs = f"PPO, {config.num_envs} environments of one agent over {number} devices"
    blocks = f"{ROWS['ppo-cartpole'] * number:,} agents over {number} devices"
    return {envs: numbers(spread), f"PPO, {blocks}": numbers(program)}


def count_peer(python: Path, *words: str) -> dict[str, Any]:
    """Compile a peer's PPO in its own environment.

    Args:
        python: The interpreter of that environment.
        *words: Arguments of `gpu_peer.py`.
    """
    command = [str(python), str(HERE / "gpu_peer.py"), *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} failed:\n{done.stderr[-2000:]}")
    return json.loads(done.stdout.splitlines()[-1])


def row(name: str, agents: int, found: dict[str, Any]) -> str:
    """Return a line of the table."""
    mebi = 2**20
    share = (
        f"{found['from_shapes'] / found['kernels']:.2f}"
        if "from_shapes" in found
        else ""
    )
    return (
        f"| {name} | {agents:,} | {found['kernels']:,} | "
        f"{found['results'] / mebi:,.0f} | {found['temporaries'] / mebi:,.0f} | "
        f"{found['trace_seconds']} | {found['compile_seconds']} | {share} |"
    )


def label_of(name: str, agents: int) -> str:
    """Return the name of a row in the file, which says other numbers of agents.

    Args:
        name: The preset.
        agents: Agents that are trained side by side.
    """
    if agents == ROWS[name]:
        return name
    return f"{name}, {with_noun(agents, 'agent')}"


def numbers(program: gpu_kernels.Program) -> dict[str, Any]:
    """Return what is kept of a program, as plain values."""
    kept = program._asdict()
    loop = kept.pop("loop")
    return {"kernels": loop.total(), **kept, "loops": gpu_kernels.lines(loop)}


def keep(file: Path | None, found: dict[str, dict[str, Any]]) -> None:
    """Write what was counted, beside the rows that the file has from before.

    Args:
        file: JSON file, if one was asked for.
        found: Numbers of each program.
    """
    if file is None:
        return
    kept = json.loads(file.read_text()) if file.exists() else {}
    mine = {name: {**each, "jax": version("jax")} for name, each in found.items()}
    write_atomic(file, json.dumps(kept | mine, indent=1) + "\n")


def peers_of(options: argparse.Namespace) -> dict[str, tuple[str, list[str]]]:
    """Return what is counted of peers: the preset beside it, and words for `gpu_peer`.

    Args:
        options: Options of the command line; of the rows asked for, or of all.
    """
    if not options.peers:
        return {}
    rows = options.rows or ROWS
    found = {}
    if "ppo-cartpole" in rows:
        found["rejax"] = "ppo-cartpole", ["rejax"]
        if options.purejaxrl:
            words = ["purejaxrl", str(options.purejaxrl)]
            found["PureJaxRL"] = "ppo-cartpole", words
    rnn = options.purejaxrl and options.purejaxrl.with_name("ppo_rnn.py")
    if "recurrent-ppo-cartpole" in rows and rnn and rnn.exists():
        words = ["purejaxrl", str(rnn)]
        found["PureJaxRL, recurrent PPO"] = "recurrent-ppo-cartpole", words
    for preset in ("pqn-cartpole", "dqn-cartpole", "td3-pendulum", "sac-pendulum"):
        name = preset.split("-")[0]
        if preset in rows:
            found[f"rejax, {name.upper()}"] = preset, [f"rejax-{name}"]
    return found


HEADER = """\
| program | agents | kernels in all | results, MiB | temporaries, MiB | trace, s | \
compile, s | from shapes, share of these |
|---|---|---|---|---|---|---|---|"""


def main() -> None:
    """Count what was asked for; print the table, and write it as JSON."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("rows", nargs="*", metavar="ROW", help=", ".join(ROWS))
    parser.add_argument("--agents", type=int, help="in place of the row's own number")
    parser.add_argument(
        "--unpacked", action="store_true", help="every output with a write of its own"
    )
    parser.add_argument("--devices", type=int, help="also count over so many devices")
    parser.add_argument("--list", action="store_true", help="name every kernel")
    parser.add_argument("--peers", type=Path, help="environment with rejax")
    parser.add_argument("--purejaxrl", type=Path, help="PureJaxRL's ppo.py")
    parser.add_argument("--out", type=Path, help="JSON file to write")
    options = parser.parse_args()
    if unknown := set(options.rows) - set(ROWS):
        parser.error(f"no row {', '.join(sorted(unknown))}; rows: {', '.join(ROWS)}")
    found: dict[str, dict[str, Any]] = {}
    print(f"jax {version('jax')}, compiled for an H200 that is not here\n")
    print(HEADER)
    for name in options.rows or ROWS:
        agents = options.agents or ROWS[name]
        program, from_shapes = count(name, agents, not options.unpacked)
        label = label_of(name, agents)
        kept = {"agents": agents, **numbers(program), "from_shapes": from_shapes}
        found[label] = kept
        print(row(name, agents, kept), flush=True)
        keep(options.out, found)
        if options.list:
            print("\n".join(gpu_kernels.lines(program.loop, is_listed=True)))
    for name, (preset, words) in peers_of(options).items():
        agents = options.agents or ROWS[preset]
        own = count_peer(options.peers / "bin" / "python", str(agents), *words)
        label = name + label_of(preset, agents).removeprefix(preset)
        found[label] = {"agents": agents, **own}
        print(row(name, agents, found[label]), flush=True)
        keep(options.out, found)
    if options.devices:
        spread = count_devices(options.devices)
        print("\n| program of one device | kernels | collectives |\n|---|---|---|")
        for name, each in spread.items():
            print(f"| {name} | {each['kernels']:,} | {each['collectives']:,} |")
        found |= spread
        keep(options.out, found)
    for name, each in found.items():
        print(f"\n{name}\n" + "\n".join(each["loops"]))


if __name__ == "__main__":
    main()
