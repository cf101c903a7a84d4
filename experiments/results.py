"""The learning results: train a row, keep its numbers, render docs/results.

    python experiments/results.py dqn-cartpole pqn-doors   # train these rows
    python experiments/results.py --all                    # every row, hours on a CPU
    python experiments/results.py td3-jaxrl --at-once 1    # seed by seed, over days
    python experiments/results.py                          # only render the pages

A row is a preset and a number of seeds, 0, 1, 2, ... Its numbers go to
experiments/results/ROW.json with the hardware and the versions that printed them, and
pages are rendered from these files. Nothing here fails when a goal is missed: it says
so. A row that was stopped or killed goes on where it was with the same command, from
the checkpoints in its folder under --out. With --at-once the file is written after
every few seeds, and those that are in it are not trained again.
"""

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import frame
import numpy as np
import yaml

import purerl
from purerl import TrainConfig, presets, serialise
from purerl.report.statistics import heading_of, text_of

Numbers = dict[str, Any]


class Anchor(NamedTuple):
    """A published number of the same task.

    Attributes:
        words: the number, and at which step, over how many seeds and on what, as far as
            its source says so.
        source: who published it, and where.
        value: the number; None where it is of another task, scale or budget, so that
            ours cannot be above or below it.
    """

    words: str
    source: str
    value: float | None = None


class Row(NamedTuple):
    """One learning result.

    Attributes:
        title: Algorithm and task.
        preset: Name of the preset that the config begins with.
        goal: Least mean evaluation; None for a curve that is only to rise.
        anchor: Number that others published; None where nothing was found.
        note: Sentence that a reader should know.
        changes: Fields that differ from the preset.
        seeds: Number of agents.
        not_run: Reason why it is not trained with all rows, if so.
        search: Fields and the values of which the best is trained: what has the highest
            mean evaluation over the seeds 100, 101, ..., as many as `SEARCH_SEEDS`.
        queue: Place in the queue for a GPU (`gpu_queue.py`); 0 for none.
    """

    title: str
    preset: str
    goal: float | None = None
    anchor: Anchor | None = None
    note: str = ""
    changes: dict[str, Any] | None = None
    seeds: int = 10
    not_run: str = ""
    search: dict[str, Any] | None = None
    queue: int = 0


def read_rows() -> dict[str, Row]:
    """Return the rows of results_rows.yaml, by name."""
    rows = yaml.safe_load((frame.EXPERIMENTS / "results_rows.yaml").read_text())
    for name, row in rows.items():
        row.setdefault("preset", name)
        if "anchor" in row:
            row["anchor"] = Anchor(**row["anchor"])
        changes = row.get("changes", {})
        for field, value in changes.items():
            changes[field] = tuple(value) if isinstance(value, list) else value
    return {name: Row(**row) for name, row in rows.items()}


ROWS = read_rows()
TOY = "RESULTS_TOY"  # A variable: train next to nothing, and keep no numbers.
SEARCH_SEEDS = range(100, 104)  # Not among those that are reported.


def search(row: Row, out: Path) -> Numbers:
    """Sweep the fields that a row searches; what was found, nothing without a search.

    Args:
        row: The row.
        out: Folder of the row's runs.
    """
    if not row.search:
        return {}
    found = purerl.sweep(
        config_of(row), row.search, seeds=list(SEARCH_SEEDS), out=out / "search"
    )
    scores = found.scores().values.reshape(len(found.design.points), -1)
    means = [round(float(x), 2) for x in scores.mean(1)]
    return {
        "points": [dict(point) for point in found.design.points],
        "means": means,
        "seeds": list(SEARCH_SEEDS),
        "chosen": dict(found.best().point),
    }


def train(
    name: str, row: Row, seeds: Sequence[int], lanes: int | None, out: Path
) -> dict[str, Any] | None:
    """Train agents of a row; the numbers that are kept, None where it was stopped.

    Args:
        name: Name of the row.
        row: The row.
        seeds: Seeds of the agents.
        lanes: Agents that one block holds.
        out: Folder of the run.
    """
    load = os.getloadavg()[0]
    searched = search(row, out)
    config = config_of(row).replace(**searched.get("chosen", {}))
    out = out / "chosen" if searched else out
    result = purerl.run(config, seeds=list(seeds), lanes=lanes, out=out, resume="auto")
    if not result.finished:
        return None
    steps = int(result.metrics["env_steps"][0, -1])
    is_one_sitting = result.train_steps >= steps * len(seeds)
    width = f" --lanes {lanes}" if lanes else ""
    final = result.evaluation["episode_return"][:, -1].mean(-1)
    curve = np.nanmean(result.evaluation["episode_return"], axis=(0, 2))
    per_seed = [round(float(x), 2) for x in final]
    returns = result.metrics["episode_return"]
    late = np.nanmean(returns[:, -max(1, returns.shape[1] // 20) :], axis=1)
    kept = frame.read(frame.RESULTS / f"{name}.json")
    if not result.train_steps and kept and kept["per_seed"] == per_seed:
        return kept  # The run had finished: its times are those of that day.
    return {
        "row": name,
        "command": f"python experiments/results.py {name}{width}",
        "steps": steps,
        "seeds": len(seeds),
        "mean": float(final.mean()),
        "per_seed": per_seed,
        "training_per_seed": [round(float(x), 2) for x in late],
        **({"search": searched} if searched else {}),
        "curve_steps": result.evaluation["env_steps"][0].tolist(),
        "curve": [round(float(x), 2) for x in curve],
        "compile_seconds": round(result.compile_seconds, 1),
        # What a run that was killed had spent before is not known.
        "train_seconds": round(result.train_seconds, 1) if is_one_sitting else None,
        "load_before": round(load, 2),
        **frame.hardware(),
    }


def config_of(row: Row) -> TrainConfig:
    """Return the config of a row's agents."""
    config = presets.load(row.preset).replace(**(row.changes or {}))
    # The least that trains and is evaluated, for a look at whether a row runs.
    toy = {"total_timesteps": 25_000}
    toy |= {"num_evaluations": 1, "eval_max_steps": 20}
    return config.replace(**toy) if TOY in os.environ else config


def train_in_batches(
    name: str, row: Row, at_once: int, out: Path
) -> Iterator[dict[str, Any]]:
    """Train the seeds of a row that its file has not; write and yield its numbers.

    Args:
        name: Name of the row.
        row: The row.
        at_once: Number of seeds of a batch, which is its lane width.
        out: Folder of the runs of the row.
    """
    path = frame.RESULTS / f"{name}.json"
    config = frame.as_kept(serialise.to_dict(config_of(row)))
    batches = read_batches(path, config, at_once)
    done = {seed for batch in batches for seed in batch["which"]}
    left = [seed for seed in range(row.seeds) if seed not in done]
    for which in (left[i : i + at_once] for i in range(0, len(left), at_once)):
        part = train(name, row, which, at_once, out / f"seed-{which[0]}")
        if part is None:
            return
        part["command"] = f"python experiments/results.py {name} --at-once {at_once}"
        part |= {"which": which, "at_once": at_once, "config": config}
        batches.append(part)
        numbers = together(batches)
        frame.write(path, numbers, indent=2)
        yield numbers


def read_batches(path: Path, config: Numbers, at_once: int) -> list[Numbers]:
    """Return the batches of a row's file, none where there is no file.

    Raises:
        SystemExit: the row was trained at once, with another config or another width.
    """
    numbers = frame.read(path)
    if numbers and "batches" not in numbers:
        raise SystemExit(
            f"{path.name} has all {numbers['seeds']} seeds, trained at once; leave "
            "--at-once out, or delete the file to begin anew."
        )
    for batch in numbers.get("batches", []):
        is_same = frame.is_same({"config": batch["config"]}, {"config": config})
        if not is_same or batch["at_once"] != at_once:
            raise SystemExit(
                f"the batch of seeds {batch['which']} had other settings or another "
                f"--at-once ({batch['at_once']}); go on with those, or delete the file "
                "to begin anew."
            )
    return numbers.get("batches", [])


def together(batches: Sequence[Numbers]) -> Numbers:
    """Return the numbers of all batches as those of one row, with the batches.

    Args:
        batches: Numbers of the batches, one at least.
    """
    ordered = sorted(batches, key=lambda batch: batch["which"])
    first, counts = ordered[0], [len(batch["which"]) for batch in ordered]
    per_seed = [score for batch in ordered for score in batch["per_seed"]]
    curve = np.average([batch["curve"] for batch in ordered], axis=0, weights=counts)
    times = [batch["train_seconds"] for batch in ordered]
    dates = sorted({batch["date"] for batch in ordered})
    numbers = {
        **first,
        "seeds": len(per_seed),
        "mean": float(np.mean(per_seed)),
        "per_seed": per_seed,
        "curve": [round(float(x), 2) for x in curve],
        "compile_seconds": round(sum(b["compile_seconds"] for b in ordered), 1),
        "train_seconds": None if None in times else round(sum(times), 1),
        "load_before": max(batch["load_before"] for batch in ordered),
        **{name: _named(ordered, name) for name in ("hardware", "python", "jax")},
        "date": " to ".join(dict.fromkeys((dates[0], dates[-1]))),
        "batches": ordered,
    }
    return {k: v for k, v in numbers.items() if k not in ("which", "at_once", "config")}


def _named(batches: Sequence[Numbers], name: str) -> str:
    """Return what the batches have under a name, each once."""
    return " and ".join(dict.fromkeys(batch[name] for batch in batches))


def main() -> None:
    """Train the rows that were asked for, then render the pages."""
    asked = frame.options(
        __doc__,
        rows=frame.Words(ROWS),
        all=(False, "train every row"),
        lanes=(int, "agents that one block holds"),
        at_once=(int, "seeds after which the row's numbers are kept"),
        out=(frame.ROOT / "runs" / "results", "where the rows' runs are kept"),
    )
    every = [name for name, row in ROWS.items() if not row.not_run]
    for name in every if asked.all else asked.rows:
        row, out = ROWS[name], asked.out / name
        if TOY in os.environ:
            out = asked.out / "toy" / name
        if asked.at_once:
            found = train_in_batches(name, row, asked.at_once, out)
        else:
            found = [train(name, row, range(row.seeds), asked.lanes, out)]
        for numbers in found:
            if numbers is None:
                return
            if not asked.at_once and TOY not in os.environ:
                frame.write(frame.RESULTS / f"{name}.json", numbers, indent=2)
            line = cells(name, row, numbers)
            print("\n".join(frame.markdown(HEADERS, [line])), flush=True)
    if TOY not in os.environ:
        write()


PAGES = frame.ROOT / "docs" / "results"
HEADERS = ["result", "row", "steps x seeds", "evaluation", "published"]
# Headings of the learning results, and what the titles of their rows contain.
GROUPS = {
    "CartPole": "CartPole-v1",
    "Doors": "Doors-v0",
    "Pendulum": "Pendulum-v1",
    "Cart-pole swing-up": "CartpoleSwingup",
    "brax": "brax",
    "MinAtar": "MinAtar",
    "Other tasks": "",
}
# The columns of a table of losses: environment, measure and heading.
LOSSES = {
    "evolve-value-loss": [
        ("CartPole-v1", "training_curve", "CartPole-v1, area"),
        ("Acrobot-v1", "training_curve", "Acrobot-v1, area"),
        ("Catch-bsuite", "training_curve", "Catch-bsuite, area"),
    ],
    "compare-drifts": [
        ("Pendulum-v1", "evaluation", "Pendulum-v1, evaluation"),
        ("CartpoleSwingup-v0", "evaluation", "CartpoleSwingup-v0, evaluation"),
    ],
}
LOSSES["evolve-drift"] = LOSSES["evolve-value-loss"]
RULES = ("learn-lpg", "learn-lpg-temporal", "learn-lpg-annealed")


def write() -> None:
    """Write both pages."""
    for name, text in (("learning", learning()), ("learning-to-learn", learned())):
        frame.write_atomic(PAGES / f"{name}.md", text)


def learning() -> str:
    """Return the page of the learning results."""
    found = {name: frame.read(frame.RESULTS / f"{name}.json") for name in ROWS}
    there = {name: numbers for name, numbers in found.items() if numbers}
    words = frame.raw_words("results")
    lines = [words["introduction"]]
    left = dict(there)
    for heading, task in GROUPS.items():
        names = [name for name in left if task in ROWS[name].title]
        rows = [cells(name, ROWS[name], left.pop(name)) for name in names]
        lines += ["", f"## {heading}", "", *frame.markdown(HEADERS, rows)]
    missed = [f"`{n}`" for n, x in there.items() if is_missed(ROWS[n], x)]
    missing = ", ".join(f"`{name}`" for name in ROWS if name not in there)
    lines += ["", "## How to read the tables", "", words["reading"]]
    if missed:
        lines += ["", f"The goals of these rows are missed: {', '.join(missed)}."]
    if missing:
        lines += ["", words["missing"].format(rows=missing)]
    lines += ["", *folded("Notes on single rows", notes(there))]
    lines += ["", *folded("Sources of the published numbers", sources(there))]
    lines += ["", *folded("Commands and machines", machines(there))]
    return "\n".join(lines) + "\n"


def cells(name: str, row: Row, numbers: dict[str, Any]) -> list[str]:
    """Return a row of the tables of learning results."""
    seeds, mean = numbers["seeds"], numbers["mean"]
    of = f" of {row.seeds}" if seeds < row.seeds else ""
    digits = 0 if abs(mean) >= 1000 else 1 if abs(mean) >= 10 else 2
    evaluation = f"{mean:,.{digits}f} (one seed)"
    if len(numbers["per_seed"]) > 1:
        evaluation = (
            f"{mean:,.{digits}f} ({frame.ends_text(numbers['per_seed'], digits)})"
        )
    return [
        re.sub(rf", ({'|'.join(filter(None, GROUPS.values()))})(-v\d)?", "", row.title),
        f'<a id="{name}"></a>`{name}`',
        f"{numbers['steps']:,} x {seeds}{of}",
        evaluation,
        _published(row, numbers) if row.anchor else "-",
    ]


def is_missed(row: Row, numbers: dict[str, Any]) -> bool:
    """Return whether a row has a goal and does not reach it."""
    if row.goal is None:
        return False
    if row.preset == "dqn-cartpole-20k":
        return sum(x >= row.goal for x in numbers["per_seed"]) < 8
    return numbers["mean"] < row.goal


def _published(row: Row, numbers: dict[str, Any]) -> str:
    """The published number, and where ours lies, if the two can be compared."""
    assert row.anchor is not None
    number, value = row.anchor.words.split(", ")[0], row.anchor.value
    if value is None:
        return number
    found = frame.mean_interval(np.array(numbers["per_seed"]))
    is_known = found.kind == "interval" or found.low == found.high
    low, high = (found.low, found.high) if is_known else (numbers["mean"],) * 2
    if low > value:
        return f"{number} ({'above' if is_known else 'mean above'})"
    if high < value:
        return f"{number} (**{'below' if is_known else 'mean below'}**)"
    return number


def folded(title: str, lines: Iterable[str]) -> list[str]:
    """Return a note that is closed until a reader opens it."""
    return [f'??? note "{title}"', "", *(f"    {line}".rstrip() for line in lines)]


def grouped(pairs: Iterable[tuple[str, str]]) -> list[str]:
    """Return a point of a list for each key, with all that belongs to it."""
    found: dict[str, list[str]] = {}
    for key, text in pairs:
        found.setdefault(key, []).append(text)
    return [f"* {key}: {', '.join(texts)}." for key, texts in found.items()]


def notes(there: dict[str, Any]) -> list[str]:
    """Return what a reader should know of single rows."""
    found: dict[str, list[str]] = {}
    for name in there:
        if ROWS[name].note:
            found.setdefault(ROWS[name].note, []).append(f"`{name}`")
    return [f"* {', '.join(names)}: {note}." for note, names in found.items()]


def sources(there: dict[str, Any]) -> list[str]:
    """Return who published the numbers of the tables, and over which steps."""
    found: dict[tuple[str, str], list[str]] = {}
    for name in there:
        if anchor := ROWS[name].anchor:
            _, _, details = anchor.words.partition(", ")
            found.setdefault((anchor.source, details), []).append(f"`{name}`")
    return grouped(
        (source, ", ".join(names) + f" ({details})" * bool(details))
        for (source, details), names in found.items()
    )


def machines(there: dict[str, Any]) -> list[str]:
    """Return where and when the rows were printed, and by which command."""
    pairs = []
    for name, numbers in there.items():
        at = ("hardware", "jax", "python", "date")
        machine, jax, python, date = (numbers[key] for key in at)
        plain = f"python experiments/results.py {name}"
        flags = numbers["command"].removeprefix(plain).strip()
        where = f"{machine}, jax {jax}, Python {python}, {date}"
        pairs.append((where, f"`{name}{' ' + flags if flags else ''}`"))
    first = "The command is `python experiments/results.py` and what stands here:"
    return [first, "", *grouped(pairs)]


def learned() -> str:
    """Return the page of what was evolved and learned."""
    words = frame.raw_words("learned")
    tables = {f"table {name}": losses(name) for name in LOSSES}
    tables["table evolve-lpg"] = rules(
        frame.read(frame.RESULTS / "evolve-lpg.json")["judged"],
        ["generation 0", "generation 60", "random rule"],
    )
    tables["table learn-lpg"] = learned_rules()
    text = "\n\n".join(words.values())
    for name, lines in tables.items():
        text = text.replace(f"{{{name}}}", "\n".join(lines))
    for name in [*LOSSES, "evolve-lpg", *RULES]:
        numbers = frame.read(frame.RESULTS / f"{name}.json")
        text = text.replace(f"{{printed {name}}}", printed_by(numbers))
    return text + "\n"


def printed_by(numbers: dict[str, Any]) -> str:
    """Return the command of some numbers, its seconds and its machine."""
    seconds: Any = numbers.get("seconds") or round(sum(numbers["course"]["seconds"]))
    times = f"{seconds:,} s" if not isinstance(seconds, dict) else ""
    times = times or ", ".join(f"{name} {value:,} s" for name, value in seconds.items())
    return f"`{numbers['command']}`: {times}; {frame.printed_on(numbers)}"


def losses(name: str) -> list[str]:
    """Return a table of losses by environment and measure."""
    kept = frame.read(frame.RESULTS / f"{name}.json")
    found: dict[tuple[str, ...], Any] = {
        (row["environment"], row["measure"], _name(row)): row
        for row in kept.get("judged") or kept["rows"]
    }
    columns = LOSSES[name]
    rows = [
        [loss, *(_interval(found[*place, loss]) for *place, _ in columns)]
        for loss in dict.fromkeys(loss for *_, loss in found)
    ]
    return frame.markdown(["loss", *(heading for *_, heading in columns)], rows)


def _name(row: dict[str, Any]) -> str:
    """The loss of a row; rows that were kept before had it by that word."""
    return row["setting"] if "setting" in row else row["loss"]


def _interval(row: dict[str, Any]) -> str:
    values = [row["mean"], row["mean_low"], row["mean_high"]]
    largest = max(abs(value) for value in values)
    digits = 3 if largest < 2 else 2 if largest < 20 else 1 if largest < 1000 else 0
    ends = text_of(values[1], values[2], heading_of(row["seeds"]), digits)
    return f"{values[0]:,.{digits}f} ({ends})"


def rules(judged: dict[str, Any], names: Iterable[str]) -> list[str]:
    """Return a table of rules of learning: some of them, and the tuned baselines."""
    tuned = [name for name in judged if name.endswith("tuned")]
    columns = [(p, k) for p in ("held-out grids", "Catch") for k in ("area", "final")]
    return frame.markdown(
        ["rule", *(f"{place}: {kind}" for place, kind in columns)],
        [
            [name, *(_ends(judged[name][place][kind]) for place, kind in columns)]
            for name in (*names, *tuned)
        ],
    )


def _ends(found: Any) -> str:
    return "{:.2f} ({:.2f} to {:.2f})".format(*found)


def learned_rules() -> list[str]:
    """Return a table of rules that meta-gradients learned: the best step, the last."""
    rows = []
    for name in RULES:
        kept = frame.read(frame.RESULTS / f"{name}.json")
        steps = {n: x for n, x in kept["judged"].items() if n.startswith("step")}
        areas = {n: x["held-out grids"]["area"] for n, x in steps.items()}
        best = max(areas, key=lambda step: areas[step][0])
        last = list(steps)[-1]
        catch = _ends(steps[last]["Catch"]["area"])
        shown = [f"{_ends(areas[best])} at {best}", f"{_ends(areas[last])} at {last}"]
        rows.append([f"`{name}`", *shown, catch])
    heads = ["rule", "held-out grids, area: highest", "last", "Catch, area: last"]
    return frame.markdown(heads, rows)


if __name__ == "__main__":
    main()
