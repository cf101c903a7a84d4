"""Learned policy gradient (Oh et al. 2020): evolve a rule of learning on small grids.

    python experiments/evolve_lpg.py [--out runs/evolve-lpg] [--generations 60]

A rule, an LSTM that reads rollouts backwards, is evolved together with the step size of
the agents that learn with it, on a few grids with objects (ObjectGrid-v0). Its outputs
are zero at first, so that policies stay as they are: Adam makes steps of one length of
targets of any size, so that around zero a member and its antithetic twin learn opposite
things. Then agents learn with it on grids that it never saw and on Catch, beside a
random rule, and beside A2C, PPO and A2C written as a rule with tuned step sizes.

A return is normalised by what can be computed of a grid: 0 is the return of a policy
that takes every action equally often, 1 that of the best policy.

Prints the table; writes experiments/results/evolve-lpg.json and
docs/images/evolution-lpg-*.png. The same command goes on with what was stopped, and
with more generations after them; what was judged is not trained again.
"""

import argparse
import hashlib
import io
import json
import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from results import command, hardware
from rich.console import Console
from rich.table import Table

import purerl
from purerl import envs
from purerl.atomic import write_atomic
from purerl.cli.settings import enable_compile_cache
from purerl.config import TrainConfig
from purerl.meta.fitness import FINAL_SHARE, first_known, hold
from purerl.report import plots
from purerl.report.plots import style
from purerl.report.statistics import mean_interval
from purerl.rules import ActorCriticRule, LPGRule
from purerl.serialise import to_dict

ROOT = Path(__file__).parents[1]
STORE = ROOT / "experiments" / "results" / "evolve-lpg.json"
IMAGES = ROOT / "docs" / "images"
GRID = {"env": "ObjectGrid-v0", "env_kwargs": {"observation": "vector"}}
# Grids on which the best policy is hardly better than a uniform one teach nothing.
LEAST_GAP = 0.5
RATES = np.geomspace(3e-4, 1e-1, 8)
TRAINING, HELD_OUT, TUNING = 0, 1, 2  # Streams of keys.
LANES = 32


class Tasks(NamedTuple):
    """Grids, as overrides with a leading axis, and the returns that count 0 and 1."""

    params: dict[str, np.ndarray]
    anchors: np.ndarray

    def change(self, number: int) -> dict[str, Any]:
        """Return the changes of a config that a grid makes."""
        values = {name.split(".")[1]: x[number] for name, x in self.params.items()}
        return {"env_params": {name: x.tolist() for name, x in values.items()}}


def draw_tasks(number: int, stream: int) -> Tasks:
    """Draw grids on which something can be learned; every stream has others."""
    env = envs.ObjectGrid(**GRID["env_kwargs"])
    key, draw = (
        jax.random.fold_in(jax.random.key(2020), stream),
        jax.jit(env.draw_params),
    )
    found: list[Any] = []
    anchors: list[tuple[float, float]] = []
    for count in range(100 * number):
        params = jax.device_get(draw(jax.random.fold_in(key, count)))
        pair = env.expected_return(params, "uniform"), env.expected_return(params)
        if pair[1] - pair[0] >= LEAST_GAP:
            found.append(params)
            anchors.append(pair)
        if len(found) == number:
            break
    stacked = jax.tree.map(lambda *leaves: np.stack(leaves), *found)
    named = {f"env_params.{name}": value for name, value in vars(stacked).items()}
    return Tasks(named, np.array(anchors))


def lpg_config(asked: argparse.Namespace) -> purerl.LPGConfig:
    """The agents that learn by a rule, the one of zeros at first."""
    return purerl.LPGConfig(
        **GRID,
        total_timesteps=asked.steps,
        num_envs=8,
        num_steps=20,
        hidden_sizes=(32,),
        learning_rate=asked.agent_learning_rate,
        num_evaluations=0,
        rule=make_rule(asked, "zeros"),
    )


def make_rule(asked: argparse.Namespace, init: str) -> LPGRule:
    """A rule with a random LSTM, and with random outputs or none."""
    return LPGRule.make(
        asked.hidden_size, asked.prediction_size, 8, init, temporal=asked.temporal
    )


def baselines(config: purerl.LPGConfig) -> dict[str, TrainConfig]:
    """Return hand-written rules, with the networks and environments of the others.

    A2C is the preset `a2c-cartpole`, PPO has its defaults but for the rollouts.
    """
    names = ("env", "env_kwargs", "total_timesteps", "num_envs", "hidden_sizes")
    same = {name: getattr(config, name) for name in (*names, "num_evaluations")}
    return {
        "A2C, tuned": purerl.presets.load("a2c-cartpole").replace(**same),
        "PPO, tuned": purerl.PPOConfig(num_steps=config.num_steps).replace(**same),
        "A2C as a rule, tuned": config.replace(
            rule=ActorCriticRule(low=-5.0, high=10.0)
        ),
    }


class Agents(NamedTuple):
    """Agents of one program.

    Attributes:
        config: What all of them have in common.
        settings: Overrides of each setting, of the same names.
        tasks: Grids, whose returns are normalised; None for the config's environment.
        seeds: Agents of each setting in each grid.
        stream: The stream of the agents' keys; all settings have the same ones.
    """

    config: TrainConfig
    settings: Sequence[Mapping[str, Any]]
    tasks: Tasks | None
    seeds: int
    stream: int

    @property
    def digest(self) -> str:
        """The digest that tells these agents from others."""
        found = hashlib.sha256(json.dumps(to_dict(self.config)).encode())
        rest = (list(map(dict, self.settings)), self.tasks, self.seeds, self.stream)
        for leaf in jax.tree.leaves(rest):
            found.update(np.asarray(leaf).tobytes())
        return found.hexdigest()[:20]


def curves(agents: Agents, out: Path) -> np.ndarray:
    """Training curves `[settings, tasks, seeds, updates]`, kept in a folder."""
    file = out / "curves" / f"{agents.digest}.npy"
    if not file.exists():
        buffer = io.BytesIO()
        np.save(buffer, trained(*agents))
        file.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(file, buffer.getvalue())
    return np.load(file)


def trained(
    config: TrainConfig,
    settings: Sequence[Mapping[str, Any]],
    tasks: Tasks | None,
    seeds: int,
    stream: int,
) -> np.ndarray:
    """Train, see `Agents`; return the curves `[settings, tasks, seeds, updates]`."""
    number = 1 if tasks is None else len(tasks.anchors)
    shape = (len(settings), number, seeds)
    setting, task, _ = (x.ravel() for x in np.indices(shape))
    stacked = jax.tree.map(lambda *leaves: np.stack(leaves), *map(dict, settings))
    overrides = jax.tree.map(lambda x: x[setting], stacked)
    if tasks is not None:
        overrides |= {name: value[task] for name, value in tasks.params.items()}
    one = jax.random.split(jax.random.fold_in(jax.random.key(7), stream), shape[1:])
    keys = jnp.broadcast_to(one, shape).ravel()
    train = purerl.make_train(config)

    def measured(key: jax.Array, overrides: Any) -> tuple[jax.Array, jax.Array]:
        metrics = train(key, overrides).metrics
        return metrics["episode_return"], metrics["episodes"] > 0

    found = purerl.pmap(measured, lanes=min(LANES, len(keys)))(keys, overrides)
    values, known = map(np.asarray, found)
    curve = hold(values, known, first_known(values, known)).reshape(*shape, -1)
    if tasks is None:
        return curve
    low, high = tasks.anchors[:, 0, None, None], tasks.anchors[:, 1, None, None]
    return (curve - low) / (high - low)


def tuned(
    config: TrainConfig, tasks: Tasks, out: Path
) -> tuple[dict[str, Any], list[float]]:
    """The step size with the largest area on the training grids, and all areas."""
    settings = [{"learning_rate": np.float32(rate)} for rate in RATES]
    agents = Agents(config, settings, tasks, 8, TUNING)
    areas = curves(agents, out).mean((1, 2, 3))
    return settings[int(np.argmax(areas))], areas.tolist()


class Entry(NamedTuple):
    """An entry that is judged: a name, a config, and overrides of it."""

    name: str
    config: TrainConfig
    values: dict[str, Any]


def judge(
    entries: Sequence[Entry],
    tasks: Tasks | None,
    seeds: int,
    changes: Mapping[str, Any],
    out: Path,
) -> dict[str, np.ndarray]:
    """Curves `[tasks, seeds, updates]` by name; entries of one config together."""
    found: dict[str, np.ndarray] = {}
    groups: dict[int, list[Entry]] = {}
    for entry in entries:
        groups.setdefault(id(entry.config), []).append(entry)
    for group in groups.values():
        config = group[0].config.replace(**changes)
        values = [entry.values for entry in group]
        each = curves(Agents(config, values, tasks, seeds, HELD_OUT), out)
        found |= {entry.name: x for entry, x in zip(group, each, strict=True)}
    return {entry.name: found[entry.name] for entry in entries}


def summary(curve: np.ndarray) -> dict[str, list[float]]:
    """Area and final return `[mean, low, high]`, over grids, or seeds of one."""
    last = -(-curve.shape[-1] // round(1 / FINAL_SHARE))
    parts = {"area": curve.mean(-1), "final": curve[..., -last:].mean(-1)}
    rows = {}
    for name, values in parts.items():
        samples = values[0] if len(values) == 1 else values.mean(1)
        interval = mean_interval(samples)
        rows[name] = [float(samples.mean()), float(interval.low), float(interval.high)]
    return rows


def table(found: Mapping[str, Mapping[str, Any]]) -> Table:
    """The summaries, a line per setting."""
    places = list(next(iter(found.values())))
    columns = [f"{place}, {part}" for place in places for part in ("area", "final")]
    shown = Table("rule", *columns)
    for name, rows in found.items():
        cells = [
            "{:.3f} ({:.3f} to {:.3f})".format(*rows[place][part])
            for place in places
            for part in ("area", "final")
        ]
        shown.add_row(name, *cells)
    return shown


def course(found: Mapping[str, Mapping[str, Any]]) -> Any:
    """A picture of the area along the evolution, beside the tuned baselines."""
    figure = style.new_figure(8.0, 4.2)
    axes = figure.subplots()
    steps = {
        int(name.split()[1]): rows
        for name, rows in found.items()
        if name.startswith("generation")
    }
    for number, place in enumerate(("training grids", "held-out grids")):
        rows = np.array([steps[g][place]["area"] for g in sorted(steps)])
        colour = style.COLOURS[number]
        axes.fill_between(
            sorted(steps), *rows[:, 1:].T, color=colour, alpha=style.FAINT, linewidth=0
        )
        axes.plot(sorted(steps), rows[:, 0], color=colour, marker="o", label=place)
    by_hand = [name for name in found if name.endswith(", tuned")]
    for number, name in enumerate(by_hand):
        value = found[name]["held-out grids"]["area"][0]
        axes.axhline(
            value,
            color=style.COLOURS[number + 2],
            linestyle="--",
            label=f"{name}, held-out grids",
        )
    axes.legend(frameon=False, fontsize=9)
    words = "area (0: uniform policy, 1: optimal)"
    style.finish(axes, "The evolved rule, judged", "generation", words)
    return figure


def main() -> None:
    """Evolve, judge, print and write."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, default=Path("runs/evolve-lpg"))
    parser.add_argument("--steps", type=int, default=16_000, help="of an inner run")
    parser.add_argument("--grids", type=int, default=4, help="to train on")
    parser.add_argument("--held-out", type=int, default=32, help="grids to judge on")
    parser.add_argument("--seeds", type=int, default=4, help="of each judged grid")
    parser.add_argument("--hidden-size", type=int, default=8)
    parser.add_argument("--prediction-size", type=int, default=8)
    parser.add_argument("--temporal", action="store_true")
    parser.add_argument("--agent-learning-rate", type=float, default=1e-2)
    parser.add_argument("--population", type=int, default=64)
    parser.add_argument("--generations", type=int, default=60)
    parser.add_argument("--sigma", type=float, default=0.1)
    parser.add_argument("--learning-rate", type=float, default=0.03)
    parser.add_argument("--dry", action="store_true", help="keep no numbers")
    asked = parser.parse_args()
    enable_compile_cache()
    config = lpg_config(asked)
    load, began = os.getloadavg()[0], time.perf_counter()
    training = draw_tasks(asked.grids, TRAINING)
    result = purerl.evolve(
        config,
        "rule,learning_rate",
        strategy=purerl.OpenES(
            sigma=asked.sigma, learning_rate=asked.learning_rate, beta1=0.9
        ),
        population=asked.population,
        generations=asked.generations,
        environments=[{**GRID, **training.change(k)} for k in range(asked.grids)],
        baselines=training.anchors.tolist(),
        snapshot_every=10,
        out=asked.out / "evolution",
    )
    evolved_at = time.perf_counter()
    found, settled = judged(config, result, training, asked)
    Console(width=150, highlight=False).print(table(found))
    judged_at = time.perf_counter()
    print(f"evolved {evolved_at - began:.0f} s, judged {judged_at - evolved_at:.0f} s")
    if asked.dry:
        return
    described = to_dict(config)
    del described["rule"]  # hundreds of numbers
    numbers = {
        "command": command(parser, asked),
        "config": described,
        "settings": {k: v for k, v in result.settings.items() if k != "environments"},
        "history": {
            name: result.history[name].tolist() for name in ("mean", "best", "std")
        },
        "tuned": settled,
        "learned_learning_rate": float(result.learned.learning_rate),
        "judged": found,
        "seconds": {
            "evolve": round(float(result.history["seconds"].sum())),
            "judge": round(judged_at - evolved_at),
        },
        "load_before": round(load, 2),
        **hardware(),
    }
    write_atomic(STORE, json.dumps(numbers, indent=1) + "\n")
    purerl.save_part(result.rule, asked.out / "rule.npz")
    plots.save(result.plot(), IMAGES / "evolution-lpg-curve.png")
    plots.save(course(found), IMAGES / "evolution-lpg-course.png")


def judged(
    config: purerl.LPGConfig,
    result: purerl.EvolutionResult,
    training: Tasks,
    asked: argparse.Namespace,
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Summaries by setting and place, and what was tuned."""
    by_hand = baselines(config)
    rates = {name: tuned(of, training, asked.out) for name, of in by_hand.items()}
    snapshots: dict[int, Any] = {0: config, **result.snapshots()}
    snapshots[result.done] = result.learned
    entries = [
        Entry(
            f"generation {number}",
            config,
            {"rule": each.rule, "learning_rate": np.float32(each.learning_rate)},
        )
        for number, each in sorted(snapshots.items())
    ]
    random = {"rule": make_rule(asked, "random"), "learning_rate": np.float32(1e-2)}
    entries.append(Entry("random rule", config, random))
    entries += [Entry(name, of, rates[name][0]) for name, of in by_hand.items()]
    held_out = draw_tasks(asked.held_out, HELD_OUT)
    catch = {"env": "Catch-bsuite", "env_kwargs": {}}
    many = 8 * asked.seeds
    places: dict[str, dict[str, np.ndarray]] = {
        "training grids": judge(entries, training, many, {}, asked.out),
        "held-out grids": judge(entries, held_out, asked.seeds, {}, asked.out),
        "Catch": judge(entries, None, many, catch, asked.out),
    }
    found = {
        entry.name: {place: summary(by[entry.name]) for place, by in places.items()}
        for entry in entries
    }
    settled = {
        name: {"learning_rate": float(best["learning_rate"]), "areas": areas}
        for name, (best, areas) in rates.items()
    }
    return found, settled


if __name__ == "__main__":
    main()
