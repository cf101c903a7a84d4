"""The same bits before and after a change of structure.

    python -m tests.golden write before.json      # at one commit
    python -m tests.golden compare before.json    # at another, on the same machine
    python -m tests.golden compare before.json --only ppo vpg

There are tiny runs of every tool, and of every algorithm: its smallest row of
`contracts/test_algorithms.py`, its rows of the grid (defaults, variants, presets),
and with normalisation and with frozen parts. The texts of `--help`, and the
signatures and fields of everything public, are kept too.

Each tool trains a few updates at a fixed width (lanes) and segment length, and every
array that it hands back is kept as a hash. Compilers round differently on different
processors, so that a file compares commits and not machines. That is why it is a script
and no test.
"""

import argparse
import contextlib
import difflib
import hashlib
import inspect
import io
import json
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np

import purerl
from purerl.cli import COMMANDS, usage
from purerl.cli import main as cli_main
from purerl.config import field_names
from tests.contracts import test_algorithms
from tests.contracts.tools import rows
from tests.helpers import StopAfter, plain, tiny_config

Arrays = dict[str, Any]
RATES = [1e-3, 3e-3, 1e-2]
AXES = {"learning_rate": purerl.loguniform(1e-4, 1e-2)}
SMALL: dict[str, Any] = {"lanes": 2, "progress": False}
SEGMENT: dict[str, Any] = {**SMALL, "segment_updates": 3}


def run() -> Arrays:
    """Three agents in two blocks."""
    return _run(purerl.run(tiny_config(), seeds=3, **SEGMENT))


def run_with_replay() -> Arrays:
    """Agents with a buffer, random steps first, and two critics."""
    config = purerl.SACConfig(
        env="Pendulum-v1",
        total_timesteps=240,
        learning_starts=40,
        random_steps=40,
        batch_size=16,
        buffer_size=200,
        hidden_sizes=(8,),
        critic_hidden_sizes=(8,),
        num_evaluations=1,
        eval_episodes=1,
        eval_share=1.0,
    )
    return _run(purerl.run(config, seeds=2, **SEGMENT))


def run_resumed() -> Arrays:
    """A run that is stopped by Ctrl-C and goes on from its folder."""
    with tempfile.TemporaryDirectory() as folder:
        kept = {**SEGMENT, "out": folder, "seeds": 2}
        purerl.run(
            tiny_config(), trackers=[StopAfter(6)], checkpoint_seconds=0.0, **kept
        )
        return _run(purerl.run(tiny_config(), resume=True, **kept))


def sweep() -> Arrays:
    """Two programs (an axis of structure) by three step sizes by two seeds."""
    axes = {"learning_rate": RATES, "num_epochs": [1, 2]}
    found = purerl.sweep(tiny_config(), axes, seeds=2, keep_states=True, **SEGMENT)
    dataset = found.dataset
    arrays = {str(name): dataset[name].values for name in dataset.data_vars}
    point = {"learning_rate": RATES[1], "num_epochs": 2}
    return arrays | {"state": found.state(point, 1)}


def compare() -> Arrays:
    """Two variants on the same seeds, one of which is another program."""
    variants = {"short": {"gamma": 0.5}, "twice": {"num_epochs": 2}}
    found = purerl.compare(tiny_config(), variants, seeds=3, **SMALL)
    dataset = found.dataset
    return {str(name): dataset[name].values for name in dataset.data_vars}


def pbt() -> Arrays:
    """Two searches of four members."""
    found = purerl.pbt(
        tiny_config(), AXES, population=4, searches=2, ready_updates=6, **SEGMENT
    )
    return _search(found)


def halving() -> Arrays:
    """All brackets of Hyperband."""
    found = purerl.halving(
        tiny_config(), AXES, num_points=6, eta=2, min_updates=5, **SMALL
    )
    return _search(found)


def train_schedules() -> Arrays:
    """A schedule of three pieces and a constant one."""
    pieces = tuple({"learning_rate": rate} for rate in RATES)
    found = purerl.train_schedules(
        tiny_config(),
        [
            purerl.ConfigSchedule((0, 6, 12), pieces),
            purerl.ConfigSchedule((0,), pieces[:1]),
        ],
        seeds=2,
        lanes=2,
    )
    return {"score": found.score, "train": found.train, "state": found.state}


def evolve() -> Arrays:
    """A loss, for two generations."""
    config = tiny_config(policy_loss=purerl.losses.DPODrift())
    found = purerl.evolve(config, ["policy_loss"], population=4, **_GENERATIONS)
    return _evolution(found)


def evolve_in_two_environments() -> Arrays:
    """A hyperparameter, with baselines that are measured."""
    config = tiny_config()
    found = purerl.evolve(
        config,
        ["learning_rate"],
        environments=[{"env": "CartPole-v1"}, {"gamma": 0.9}],
        baselines=[20.0, 25.0],
        population=4,
        **_GENERATIONS,
    )
    return _evolution(found)


_GENERATIONS: dict[str, Any] = {"generations": 2, "rollouts": 2, **SEGMENT}


def tune() -> Arrays:
    """Two batches of trials, with rungs at which some are stopped."""
    found = purerl.tune(
        tiny_config(),
        AXES,
        trials=6,
        seeds=2,
        batch=3,
        reports=4,
        holdout_seeds=2,
        **SMALL,
    )
    rows = [
        (row.number, row.state, row.score, row.params, row.seed_scores, row.curve)
        for row in found.rows
    ]
    holdout = found.holdout
    assert holdout is not None
    return {
        "rows": np.frombuffer(repr(rows).encode(), np.uint8),
        "holdout": [holdout.best.scores, holdout.default.scores],
    }


TOOLS: tuple[Callable[[], Arrays], ...] = (
    run,
    run_with_replay,
    run_resumed,
    sweep,
    compare,
    pbt,
    halving,
    train_schedules,
    evolve,
    evolve_in_two_environments,
    tune,
)


def _run(found: Any) -> Arrays:
    return {
        "state": found.state,
        "metrics": found.metrics,
        "evaluation": found.evaluation,
    }


def _evolution(found: Any) -> Arrays:
    history = dict(found.history)
    del history["seconds"]
    return {"history": history, "vector": found.vector}


def _search(found: Any) -> Arrays:
    dataset, best = found.dataset, found.best()
    arrays = {str(name): dataset[name].values for name in dataset.data_vars}
    return arrays | {"best": {"score": np.float64(best.score), "state": best.state}}


def hashes(arrays: Arrays) -> dict[str, str]:
    """A hash of the type, the shape and the bytes of every array."""

    def hashed(leaf: Any) -> str:
        if isinstance(leaf, str):
            return leaf
        values = np.ascontiguousarray(leaf)
        if values.dtype == object:  # texts among the coordinates
            values = np.array(values.astype(str))
        head = f"{values.dtype} {values.shape} ".encode()
        return hashlib.sha256(head + values.tobytes()).hexdigest()[:16]

    leaves = jax.tree_util.tree_leaves_with_path(jax.tree.map(_as_array, arrays))
    return {jax.tree_util.keystr(path): hashed(leaf) for path, leaf in leaves}


def _as_array(leaf: Any) -> Any:
    if isinstance(leaf, str):
        return leaf
    return plain(leaf) if hasattr(leaf, "dtype") else np.asarray(leaf)


def configs() -> dict[str, purerl.TrainConfig]:
    """Small configs of every algorithm, by a name that begins with the algorithm's."""
    found: dict[str, purerl.TrainConfig] = {}
    for name in test_algorithms.SMALL:
        found[f"{name}:small"] = test_algorithms.small(name)
    for name in ("ppo", "recurrent_ppo", "vpg", "lpg", "pqn", "recurrent_pqn", "sac"):
        whitened = {"normalize_observations": True, "normalize_rewards": True}
        fields = field_names(test_algorithms.small(name))
        whitened = {name: on for name, on in whitened.items() if name in fields}
        found[f"{name}:normalised"] = test_algorithms.small(name, **whitened)
    frozen = {
        "ppo": "critic",
        "recurrent_ppo": "core",
        "vpg": "critic",
        "dqn": "torso",
        "recurrent_dqn": "core",
        "pqn": "torso",
        "recurrent_pqn": "core",
        "sac": "actor",
        "td3": "actor",
    }
    for name, part in frozen.items():
        found[f"{name}:frozen"] = test_algorithms.small(name, frozen=(part,))
    grid = {**rows.defaults(), **rows.variants(), **rows.published()}
    for name, config in grid.items():
        found[f"{name}:grid"] = rows.make_row(name, config).config
    return found


def trained(config: purerl.TrainConfig) -> Arrays:
    """One agent's whole run."""
    result = jax.jit(purerl.make_train(config))(jax.random.key(0))
    state = result.state
    return {
        "params": getattr(state, "params", ()),
        "opt_state": getattr(state, "opt_state", ()),
        "obs": state.envs.obs,
        "metrics": result.metrics,
        "evaluation": result.evaluation,
    }


def texts() -> Arrays:
    """`--help` of every command, and signatures and fields of the public names."""
    found = {"help": usage()}
    for command in COMMANDS:
        out = io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.suppress(SystemExit):
            cli_main([command, "--help"])
        found[f"help {command}"] = out.getvalue()
    for name in sorted(purerl.__all__):
        thing = getattr(purerl, name)
        found[name] = _signature(thing) if callable(thing) else ""
    return found


def _signature(thing: Any) -> str:
    """Parameters or fields, and the members that a class has of its own."""
    with contextlib.suppress(TypeError, ValueError):
        members = sorted(name for name in vars(thing) if not name.startswith("_"))
        return f"{inspect.signature(thing)} {members if inspect.isclass(thing) else ''}"
    return repr(type(thing))


def main(args: list[str] | None = None) -> int:
    """Write or compare; the exit status is 1 where something differs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("action", choices=("write", "compare"))
    parser.add_argument("file", type=Path)
    parser.add_argument("--only", nargs="+", help="names, or beginnings of names")
    asked = parser.parse_args(args)
    everything: dict[str, Callable[[], Arrays]] = {"texts": texts}
    everything |= {tool.__name__: tool for tool in TOOLS}
    everything |= {name: partial(trained, config) for name, config in configs().items()}
    found = {}
    for name, make in everything.items():
        if asked.only is None or name.startswith(tuple(asked.only)):
            found[name] = hashes(make())
            print(f"{name}: {len(found[name])} arrays", flush=True)
            jax.clear_caches()
    if asked.action == "write":
        asked.file.write_text(json.dumps(found, indent=1))
        return 0
    differ = _compare(json.loads(asked.file.read_text()), found)
    print("\n".join(differ) or "all arrays are equal, bit for bit")
    return int(bool(differ))


def _compare(
    before: dict[str, dict[str, str]], after: dict[str, dict[str, str]]
) -> list[str]:
    """What differs, in words."""
    differ = []
    for tool, arrays in after.items():
        known = before.get(tool, {})
        for name in sorted({*arrays, *known}):
            if arrays.get(name) != known.get(name):
                one, other = known.get(name, "absent"), arrays.get(name, "absent")
                differ.append(f"{tool} {name}: {_changed(one, other)}")
    return differ


def _changed(one: str, other: str) -> str:
    """Two hashes, or the lines in which two texts differ."""
    if "\n" not in one + other:
        return f"{one} -> {other}"
    lines = difflib.unified_diff(one.splitlines(), other.splitlines(), n=0, lineterm="")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
