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
docs/images/evolution-lpg-*.png. The same command goes on with an evolution that was
stopped, and with more generations after them.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import frame
import jax
import jax.numpy as jnp
import numpy as np
from pictures import between, style

import purerl
from purerl import envs
from purerl.meta.fitness import FINAL_SHARE, first_known, hold
from purerl.rules import ActorCriticRule, LPGRule

GRID = {"env": "ObjectGrid-v0", "env_kwargs": {"observation": "vector"}}
# Grids on which the best policy is hardly better than a uniform one teach nothing.
LEAST_GAP = 0.5
RATES = np.geomspace(3e-4, 1e-1, 8)
TRAINING, HELD_OUT, TUNING = 0, 1, 2  # Streams of keys.
LANES = 32
CATCH = {"env": "Catch-bsuite", "env_kwargs": {}}
FORM = "{:.3f} ({:.3f} to {:.3f})"


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
    key = jax.random.fold_in(jax.random.key(2020), stream)
    draw = jax.jit(env.draw_params)
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


def lpg_config(rule: LPGRule, steps: int, learning_rate: float) -> purerl.LPGConfig:
    """The agents that learn by a rule."""
    return purerl.LPGConfig(
        **GRID,
        total_timesteps=steps,
        num_envs=8,
        num_steps=20,
        hidden_sizes=(32,),
        learning_rate=learning_rate,
        num_evaluations=0,
        rule=rule,
    )


def make_rule(asked: frame.Asked, init: str) -> LPGRule:
    """A rule with a random LSTM, and with random outputs or none."""
    return LPGRule.make(
        asked.hidden_size, asked.prediction_size, 8, init, temporal=asked.temporal
    )


def baselines(config: purerl.LPGConfig) -> dict[str, purerl.TrainConfig]:
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


def curves(
    config: purerl.TrainConfig,
    settings: Sequence[Mapping[str, Any]],
    tasks: Tasks | None,
    seeds: int,
    stream: int,
) -> np.ndarray:
    """Train in one program; return training curves `[settings, tasks, seeds, updates]`.

    Args:
        config: What all agents have in common.
        settings: Overrides of each setting, of the same names.
        tasks: Grids, whose returns are normalised; None for the config's environment.
        seeds: Agents of each setting in each grid.
        stream: The stream of the agents' keys; all settings have the same ones.
    """
    number = 1 if tasks is None else len(tasks.anchors)
    shape = (len(settings), number, seeds)
    setting, task, _ = (x.ravel() for x in np.indices(shape))
    stacked = jax.tree.map(lambda *leaves: np.stack(leaves), *map(dict, settings))
    overrides = jax.tree.map(lambda x: x[setting], stacked)
    if tasks is not None:
        overrides |= {name: value[task] for name, value in tasks.params.items()}
    key = jax.random.fold_in(jax.random.key(7), stream)
    keys = jnp.broadcast_to(jax.random.split(key, shape[1:]), shape).ravel()
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


class Entry(NamedTuple):
    """An entry that is judged: a name, a config, and overrides of it."""

    name: str
    config: purerl.TrainConfig
    values: dict[str, Any]


def judge(
    entries: Sequence[Entry],
    tasks: Tasks | None,
    seeds: int,
    changes: Mapping[str, Any],
) -> dict[str, np.ndarray]:
    """Curves `[tasks, seeds, updates]` by name; entries of one config together."""
    found: dict[str, np.ndarray] = {}
    groups: dict[int, list[Entry]] = {}
    for entry in entries:
        groups.setdefault(id(entry.config), []).append(entry)
    for group in groups.values():
        config = group[0].config.replace(**changes)
        values = [entry.values for entry in group]
        each = curves(config, values, tasks, seeds, HELD_OUT)
        found |= {entry.name: x for entry, x in zip(group, each, strict=True)}
    return {entry.name: found[entry.name] for entry in entries}


def summary(curve: np.ndarray) -> dict[str, list[float]]:
    """Area and final return `[mean, low, high]`, over grids, or seeds of one."""
    last = -(-curve.shape[-1] // round(1 / FINAL_SHARE))
    parts = {"area": curve.mean(-1), "final": curve[..., -last:].mean(-1)}
    rows = {}
    for name, values in parts.items():
        samples = values[0] if len(values) == 1 else values.mean(1)
        interval = frame.mean_interval(samples)
        rows[name] = [float(samples.mean()), float(interval.low), float(interval.high)]
    return rows


def summaries(
    entries: Sequence[Entry], asked: frame.Asked, training: Tasks | None = None
) -> dict[str, Any]:
    """Summaries by entry and place: on grids and on Catch."""
    held_out = draw_tasks(asked.held_out, HELD_OUT)
    many, places = 8 * asked.seeds, {}
    if training is not None:
        places["training grids"] = judge(entries, training, many, {})
    places["held-out grids"] = judge(entries, held_out, asked.seeds, {})
    places["Catch"] = judge(entries, None, many, CATCH)
    return {
        entry.name: {place: summary(by[entry.name]) for place, by in places.items()}
        for entry in entries
    }


def show_summaries(found: Mapping[str, Mapping[str, Any]]) -> None:
    """Print the summaries, a line per setting."""
    places, kinds = next(iter(found.values())), ("area", "final")
    columns = [(place, kind) for place in places for kind in kinds]
    rows = [
        [name, *(FORM.format(*rows[place][kind]) for place, kind in columns)]
        for name, rows in found.items()
    ]
    frame.show("", ["rule", *(f"{place}, {kind}" for place, kind in columns)], rows)


def rule_and_rate(rule: LPGRule, rate: float) -> dict[str, Any]:
    """Return the overrides of a rule and a step size."""
    return {"rule": rule, "learning_rate": np.float32(rate)}


def areas_of(
    rows: Mapping[str, Any], word: str, place: str, scale: float = 1.0
) -> tuple[np.ndarray, ...]:
    """Places, areas and their ends of the entries whose names begin with a word."""
    at = sorted(int(n.removeprefix(word)) for n in rows if n.startswith(word))
    areas = np.array([rows[f"{word}{x}"][place]["area"] for x in at])
    return np.array(at) * scale, areas[:, 0], areas[:, 1:].T


def course(found: Mapping[str, Mapping[str, Any]]) -> Any:
    """A picture of the area along the evolution, beside the tuned baselines."""
    figure = style.new_figure(8.0, 4.2)
    axes, colours = figure.subplots(), iter(style.COLOURS)
    for place in ("training grids", "held-out grids"):
        x, areas, ends = areas_of(found, "generation ", place)
        between(axes, x, areas, ends, next(colours), place, marker="o")
    for name in (name for name in found if name.endswith(", tuned")):
        value = found[name]["held-out grids"]["area"][0]
        label = f"{name}, held-out grids"
        axes.axhline(value, color=next(colours), linestyle="--", label=label)
    axes.legend(frameon=False, fontsize=9)
    words = "area (0: uniform policy, 1: optimal)"
    style.finish(axes, "The evolved rule, judged", "generation", words)
    return figure


def tuned(
    config: purerl.TrainConfig, tasks: Tasks
) -> tuple[dict[str, Any], list[float]]:
    """The step size with the largest area on the training grids, and all areas."""
    settings = [{"learning_rate": np.float32(rate)} for rate in RATES]
    areas = curves(config, settings, tasks, 8, TUNING).mean((1, 2, 3))
    return settings[int(np.argmax(areas))], areas.tolist()


def main() -> None:
    """Evolve, judge, print and write."""
    asked = frame.options(
        __doc__,
        is_cached=True,
        out=Path("runs/evolve-lpg"),
        steps=(16_000, "of an inner run"),
        grids=(4, "to train on"),
        held_out=(32, "grids to judge on"),
        seeds=(4, "of each judged grid"),
        hidden_size=8,
        prediction_size=8,
        temporal=False,
        agent_learning_rate=1e-2,
        population=64,
        generations=60,
        sigma=0.1,
        learning_rate=0.03,
        dry=(False, "keep no numbers"),
    )
    config = lpg_config(
        make_rule(asked, "zeros"), asked.steps, asked.agent_learning_rate
    )
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
    evolved_at = asked.seconds()
    by_hand = baselines(config)
    rates = {name: tuned(of, training) for name, of in by_hand.items()}
    snapshots: dict[int, Any] = {0: config, **result.snapshots()}
    snapshots[result.done] = result.learned
    entries = [
        Entry(
            f"generation {number}", config, rule_and_rate(each.rule, each.learning_rate)
        )
        for number, each in sorted(snapshots.items())
    ]
    random = rule_and_rate(make_rule(asked, "random"), 1e-2)
    entries.append(Entry("random rule", config, random))
    entries += [Entry(name, of, rates[name][0]) for name, of in by_hand.items()]
    found = summaries(entries, asked, training)
    judge_seconds = asked.seconds() - evolved_at
    show_summaries(found)
    print(f"evolved {evolved_at:.0f} s, judged {judge_seconds:.0f} s")
    if asked.dry:
        return
    described = purerl.serialise.to_dict(config)
    del described["rule"]  # hundreds of numbers
    numbers = {
        "config": described,
        "settings": {k: v for k, v in result.settings.items() if k != "environments"},
        "history": frame.history(result),
        "tuned": {
            name: {"learning_rate": float(best["learning_rate"]), "areas": areas}
            for name, (best, areas) in rates.items()
        },
        "learned_learning_rate": float(result.learned.learning_rate),
        "judged": found,
        "seconds": {
            "evolve": frame.evolve_seconds(result),
            "judge": round(judge_seconds),
        },
    }
    frame.keep("evolve-lpg", asked, numbers)
    purerl.save_part(result.rule, asked.out / "rule.npz")
    style.save(result.plot(), frame.IMAGES / "evolution-lpg-curve.png")
    style.save(course(found), frame.IMAGES / "evolution-lpg-course.png")


if __name__ == "__main__":
    main()
