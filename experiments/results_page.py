"""The page docs/results.md, from the numbers that are kept."""

from typing import Any, NamedTuple

import frame
import numpy as np
from results import ROWS, Row

from purerl.report.statistics import heading_of, text_of

WORDS = frame.words_of("results")
HEADERS = ["result", "steps x seeds", "evaluation", "published", "ours", "goal", "time"]
MEASURES = {
    "training_curve": "area",
    "final_return": "final",
    "evaluation": "evaluation",
}
ALONG = "Along the evolution; differences are from generation 0:"
CURVE = (
    "The evolution: the mean of the members with their standard deviation in the band, "
    "and the best member"
)
LINES = (
    "Learning curves on held-out seeds: the mean of the seeds, and in the band its 95% "
    "interval"
)


class Study(NamedTuple):
    """An experiment with losses.

    Attributes:
        title: Its heading.
        tables: Names of its tables in its file, and what stands above each.
        pictures: Files in docs/images, and what they show.
    """

    title: str
    tables: dict[str, str]
    pictures: dict[str, str]


STUDIES = {
    "evolve-value-loss": Study(
        "A value loss evolved on CartPole-v1",
        {
            "generations": ALONG,
            "judged": "Beside hand-written losses, and in two environments that it was "
            "not evolved in; differences are from the learned loss:",
        },
        {
            "evolution-value-loss-curve.png": CURVE,
            "evolution-value-loss.png": "The learned loss beside the squared error",
            "evolution-value-loss-transfer.png": LINES,
        },
    ),
    "evolve-drift": Study(
        "A drift evolved from none",
        {
            "generations": ALONG,
            "judged": "Beside hand-written drifts, and in two environments that it was "
            "not evolved in; differences are from the learned drift:",
        },
        {
            "evolution-drift-curve.png": CURVE,
            "evolution-drift.png": "The learned drift beside those of PPO and DPO",
            "evolution-drift-transfer.png": LINES,
        },
    ),
    "compare-drifts": Study(
        "DPO's drift beside PPO's",
        {"rows": ""},
        {"drifts-dpo-ppo.png": LINES.replace(" on held-out seeds", "")},
    ),
}
RULE_PICTURES = {
    "evolution-lpg-curve.png": CURVE,
    "evolution-lpg-course.png": "The rule along the evolution, judged: on the training "
    "grids with their range in the band, on held-out grids with the 95% interval",
}


def render() -> str:
    """Return the page."""
    found = {name: frame.read(frame.RESULTS / f"{name}.json") for name in ROWS}
    there = {name: row for name, row in ROWS.items() if found[name]}
    table = frame.markdown(
        HEADERS, [cells(n, row, found[n]) for n, row in there.items()]
    )
    lines = [
        frame.raw_words("results")["introduction"],
        "",
        *table,
        "",
        "## Row by row",
    ]
    for name, row in there.items():
        lines += ["", *section(name, row, found[name])]
    missing = {name: row for name, row in ROWS.items() if not found[name]}
    if missing:
        lines += ["", "## Rows that were not run", ""]
        reasons = [_missing(name, row) for name, row in missing.items()]
        lines += frame.markdown(["row", "why", "published"], reasons)
    return "\n".join([*lines, *losses(), *rules()]) + "\n"


def cells(name: str, row: Row, numbers: dict[str, Any]) -> list[str]:
    """Return the row of the first table."""
    goal = "-"
    if row.goal is not None:
        is_met = numbers["mean"] >= row.goal
        if row.preset == "dqn-cartpole-20k":
            is_met = sum(x >= row.goal for x in numbers["per_seed"]) >= 8
        goal = f">= {row.goal:g}: {'met' if is_met else '**missed**'}"
    seeds, mean = numbers["seeds"], numbers["mean"]
    of = f" of {row.seeds}" if seeds < row.seeds else ""
    digits = 0 if abs(mean) >= 1000 else 1 if abs(mean) >= 10 else 2
    evaluation = f"{mean:,.{digits}f} (one seed)"
    if len(numbers["per_seed"]) > 1:
        evaluation = (
            f"{mean:,.{digits}f} ({frame.ends_text(numbers['per_seed'], digits)})"
        )
    return [
        f"[{row.title}](#{name})",
        f"{numbers['steps']:,} x {seeds}{of}",
        evaluation,
        row.anchor.words.split(", ")[0] if row.anchor else "-",
        _verdict(row, numbers),
        goal,
        _seconds(numbers),
    ]


def _seconds(numbers: dict[str, Any]) -> str:
    """Return the time of training, if it was done in one sitting."""
    found = numbers["train_seconds"]
    return "in sittings" if found is None else f"{found:,.0f} s"


def _verdict(row: Row, numbers: dict[str, Any]) -> str:
    """On which side of the published number ours lies, if they can be compared."""
    if row.anchor is None or row.anchor.value is None:
        return "-"
    value = row.anchor.value
    found = frame.mean_interval(np.array(numbers["per_seed"]))
    is_known = found.kind == "interval" or found.low == found.high
    low, high = (found.low, found.high) if is_known else (numbers["mean"],) * 2
    if low > value:
        return "above" if is_known else "mean above"
    if high < value:
        return "**below**" if is_known else "**mean below**"
    return "holds it"


def section(name: str, row: Row, numbers: dict[str, Any]) -> list[str]:
    """Return the section of a row: its source, its config and its course."""
    changes = ", ".join(f"{k}={v}" for k, v in (row.changes or {}).items())
    seeds = ", ".join(f"{x:,g}" for x in numbers["per_seed"])
    course = ", ".join(
        f"{value:,.4g} at {steps / 1000:,.0f}k"
        for steps, value in zip(numbers["curve_steps"], numbers["curve"], strict=True)
    )
    preset = f"preset `{row.preset}`" + (f" with {changes}" if changes else "")
    facts = {
        "Published": row.anchor and f"{row.anchor.words}. Source: {row.anchor.source}.",
        "Note": row.note and f"{row.note}.",
        "Config": f"{preset}.",
        "Seeds": f"{seeds}."
        + " The others are not trained yet." * (numbers["seeds"] < row.seeds),
        "Course": f"{course}." if len(numbers["curve"]) > 1 else "",
        "Printed by": f"`{numbers['command']}`: training {_seconds(numbers)}, "
        f"compilation {numbers['compile_seconds']:,} s; {frame.printed_on(numbers)}.",
    }
    heading = f'### <a id="{name}"></a>{row.title} (`{name}`)'
    return [heading, ""] + [f"* {key}: {text}" for key, text in facts.items() if text]


def _missing(name: str, row: Row) -> list[str]:
    why = row.not_run or "no numbers yet"
    published = f"{row.anchor.words}; {row.anchor.source}" if row.anchor else "-"
    return [f"`{name}`: {row.title}", why, published]


def pictures(files: dict[str, str]) -> list[str]:
    """Return the lines of pictures with what they show."""
    return [
        line
        for file, text in files.items()
        for line in ("", f"![{text}](images/{file})", "", f"*{text}.*")
    ]


def printed_by(numbers: dict[str, Any]) -> str:
    """Return the line on the command of some numbers, its seconds and its machine."""
    seconds = numbers["seconds"]
    times = f"{seconds:,} s" if not isinstance(seconds, dict) else ""
    times = times or ", ".join(f"{name} {value:,} s" for name, value in seconds.items())
    return f"`{numbers['command']}`: {times}; {frame.printed_on(numbers)}."


def fitness(numbers: dict[str, Any], digits: int) -> str:
    """Return the sentence on the course of an evolution."""
    first, *_, last = means = numbers["history"]["mean"]
    return (
        f"The population's mean fitness went from {first:.{digits}f} in the first to "
        f"{last:.{digits}f} in the last of {len(means)} generations."
    )


def losses() -> list[str]:
    """Return the section on losses, with the experiments whose numbers are there."""
    lines = ["", "## Losses, evolved and hand-written", "", WORDS["losses"]]
    for name, study in STUDIES.items():
        numbers = frame.read(frame.RESULTS / f"{name}.json")
        if not numbers:
            continue
        lines += ["", f"### {study.title}", "", WORDS[name]]
        if "tuned" in numbers:
            lines.append(f"Tuned: {'; '.join(numbers['tuned'].values())}.")
        if "history" in numbers:
            lines.append(fitness(numbers, 1))
        for key, heading in study.tables.items():
            lines += ["", *([heading, ""] if heading else []), *_table(numbers[key])]
        lines += [*pictures(study.pictures), "", "", printed_by(numbers)]
        lines += _other_settings(name, numbers)
    return lines


def _other_settings(name: str, own: dict[str, Any]) -> list[str]:
    """Return a table of the settings of an evolution that were tried."""
    others = sorted(frame.RESULTS.glob(f"{name}-*.json"))
    if not others:
        return []
    environments = list(dict.fromkeys(row["environment"] for row in own["judged"]))
    environments = [e for e in environments if _area(own, e, "learned")]
    first, *rest = environments
    rows = []
    for numbers in (own, *map(frame.read, others)):
        means = numbers["history"]["mean"]
        tuned = _area(numbers, first, "squared tuned")
        areas = [_interval(_area(numbers, e, "learned"), "mean") for e in environments]
        rows.append(
            [
                f"`{numbers['command'].removeprefix('python experiments/')}`",
                f"{means[0]:.1f}, {means[-1]:.1f}",
                areas[0],
                _interval(tuned, "difference"),
                *areas[1:],
                f"{numbers['seconds']['evolve']:,} s",
            ]
        )
    heads = ["command", "population, first and last", first, "tuned squared error"]
    table = frame.markdown([*heads, *rest, "evolution"], rows)
    return ["", WORDS["other settings"].format(first=first), "", *table]


def _area(numbers: dict[str, Any], environment: str, loss: str) -> dict[str, Any]:
    """The row of a loss's area in an environment; empty where there is none."""
    for row in numbers["judged"]:
        place = (row["environment"], _name(row), row["measure"])
        if place == (environment, loss, "training_curve") and not frame.is_nan(
            row["mean"]
        ):
            return row
    return {}


def _table(rows: list[dict[str, Any]]) -> list[str]:
    """Return the table of losses; all environments together have no common unit."""
    kinds = ("mean", "difference", "better")
    return frame.markdown(
        ["environment", "measure", "loss", "mean", "difference", "P(better)"],
        [
            [
                row["environment"],
                MEASURES[row["measure"]],
                _name(row),
                *(_interval(row, kind) for kind in kinds),
            ]
            for row in rows
            if not frame.is_nan(row["mean"])
        ],
    )


def _name(row: dict[str, Any]) -> str:
    """The loss of a row; rows that were kept before had it by that word."""
    return row["setting"] if "setting" in row else row["loss"]


def _interval(row: dict[str, Any], name: str) -> str:
    values = [row[name], row[f"{name}_low"], row[f"{name}_high"]]
    if any(frame.is_nan(value) for value in values):
        return ""
    largest = max(abs(value) for value in values)
    digits = 3 if largest < 2 else 2 if largest < 20 else 1 if largest < 1000 else 0
    sign = "+" if name == "difference" else ""
    text = f"{values[0]:{sign},.{digits}f}"
    ends = text_of(values[1], values[2], heading_of(row["seeds"]), digits, sign=sign)
    return f"{text} ({ends})"


def rules() -> list[str]:
    """Return the sections on rules of learning; none where there are no numbers."""
    numbers = frame.read(frame.RESULTS / "evolve-lpg.json")
    if not numbers:
        return []
    settings = numbers["settings"]
    words = WORDS["rule"].format(
        population=settings["population"],
        grids=len(settings["baselines"]),
        steps=numbers["config"]["total_timesteps"],
    )
    rates = ", ".join(
        f"{name.removesuffix(', tuned')} {found['learning_rate']:.2g}"
        for name, found in numbers["tuned"].items()
    )
    lines = [
        "",
        '## <a id="evolve-lpg"></a>A rule of learning, evolved on grids',
        "",
        words,
        f"Step sizes of the baselines were tuned on the training grids: {rates}; the "
        f"evolved one is {numbers['learned_learning_rate']:.2g}.",
        fitness(numbers, 2),
        "",
        *_rule_table(numbers["judged"]),
        *pictures(RULE_PICTURES),
        "",
        printed_by(numbers),
        "",
        '## <a id="learn-lpg"></a>A rule of learning, learned by meta-gradients',
        "",
        WORDS["learned rules"],
        "",
        "![Areas of the learned rules over meta-training](images/learn-lpg.png)",
        "",
        "*Areas of the learned rules over meta-training, on held-out grids with the "
        "95% interval in the band.*",
    ]
    for name in ("learn-lpg", "learn-lpg-temporal", "learn-lpg-annealed"):
        if numbers := frame.read(frame.RESULTS / f"{name}.json"):
            rows = {n: x for n, x in numbers["judged"].items() if n.startswith("step")}
            seconds = sum(numbers["course"]["seconds"])
            lines += ["", *_rule_table(rows), ""]
            lines.append(
                f"`{numbers['command']}`: learned in {seconds:,.0f} s, compilation "
                f"included; {frame.printed_on(numbers)}."
            )
    return lines


def _rule_table(judged: dict[str, Any]) -> list[str]:
    kinds = ("area", "final")
    columns = [(place, kind) for place in next(iter(judged.values())) for kind in kinds]
    form = "{:.2f} ({:.2f} to {:.2f})"
    return frame.markdown(
        ["rule", *(f"{place}: {kind}" for place, kind in columns)],
        [
            [name, *(form.format(*rows[place][kind]) for place, kind in columns)]
            for name, rows in judged.items()
        ],
    )
