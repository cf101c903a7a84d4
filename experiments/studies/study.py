"""The frame of every study: a command, its budget, the claims, and the findings.

A study is a script in this folder with a `STUDY`, and a function from a `Budget` to
`Findings`; `main` does the rest:

    python experiments/studies/NAME.py            # at full budget; goes on where it was
    python experiments/studies/NAME.py --quick    # a minute at most, to try everything

The findings go to experiments/results/studies/NAME.json and their figures to
docs/images/studies; those of a quick run stay in its folder, runs/studies-quick/NAME.
`page.py` renders docs/results/studies.md from these files, and `studies.py` runs all
of them.

A study is split into parts (`Budget.part`), each of which returns what JSON holds. A
part that is done is not done again until its settings change or its file is deleted.
Parts that take hours are kept in experiments/results/studies/parts, so
that another machine goes on with them. Compiled programs are not kept between
processes, so that the seconds of compilation that a study prints are those of a first
time.
"""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import frame
from frame import ROOT as ROOT
from frame import hardware, options, read, words_of, write
from frame import interval_text as interval_text
from frame import printed_on as printed_on

if TYPE_CHECKING:
    from matplotlib.figure import Figure

STORE = ROOT / "experiments" / "results" / "studies"
PARTS = STORE / "parts"
IMAGES = ROOT / "docs" / "images" / "studies"
QUICK = (
    "Quick runs: fewer steps and agents, and in part smaller tasks, to see that "
    "everything works. The words beside the numbers, with their tasks, steps and "
    "agents, are those of the full budget; the numbers mean nothing."
)


class Study(NamedTuple):
    """The question of a study.

    Attributes:
        name: Name of its script, of its file and of its figures.
        title: Heading on the page.
        source: The system whose headline it is, and where that is claimed.
        question: What is measured and how, in a few sentences.
        system: Short name of the system, by which the page sorts the studies.
    """

    name: str
    title: str
    source: str
    question: str
    system: str = ""


class Words(dict[str, str]):
    """The words of a study, in which numbers are filled in."""

    def fill(self, key: str, **numbers: Any) -> str:
        """Return a paragraph with its numbers."""
        return self[key].format(**numbers)

    def row(self, key: str, **numbers: Any) -> "Row":
        """Return a claim: what, claimed, here and note stand between ` | `."""
        parts = self.fill(key, **numbers).split(" | ")
        return Row(*parts, *[""] * (4 - len(parts)))


def study_of(name: str, system: str) -> tuple[Study, Words]:
    """Return a study and its words, which stand in experiments/words/NAME.md.

    Args:
        name: See `Study`.
        system: See `Study`.
    """
    words = Words(words_of(name))
    title, source, question = (words[key] for key in ("title", "source", "question"))
    return Study(name, title, source, question, system), words


class Row(NamedTuple):
    """A claim beside what was measured here.

    Attributes:
        what: What is claimed, with its unit.
        claimed: The source's number and its hardware; "-" where it gives none.
        here: What was measured here, with seeds and an interval where there are any.
        note: Why the two differ, or what the reader should know, in a sentence.
    """

    what: str
    claimed: str
    here: str
    note: str = ""


class Picture(NamedTuple):
    """A picture: its file's name in the folder of images, and what it shows."""

    file: str
    caption: str


class Findings(NamedTuple):
    """The findings of a study.

    Attributes:
        rows: Claims beside what was measured.
        figures: Pictures, from `Budget.save`.
        text: Paragraphs in Markdown under the claims.
        printed: What printed the numbers, if it was not this run: `command`,
            `hardware`, `jax`, `date`, and the `seconds` of training, None where they
            are not known, because the command was stopped and went on.
    """

    rows: list[Row]
    figures: list[Picture]
    text: list[str] = []  # noqa: RUF012
    printed: list[dict[str, Any]] = []  # noqa: RUF012


class Budget:
    """The budget of a study, and the place where it keeps what it has.

    Args:
        study: The study.
        quick: Whether everything is only to be tried, in a minute at most.
        folder: Where parts, runs and quick figures are kept.
        long: Whether parts that take many hours here are measured too.

    Attributes:
        quick: See above.
        folder: See above; a study may keep checkpoints in it.
        long: See above.
        images: Folder of its figures.
        used: The parts that the study is made of, as they are kept.
        has_measured: Whether a part was done now, and not before.
    """

    def __init__(
        self,
        study: Study,
        quick: bool,
        folder: Path,
        long: bool = False,
    ) -> None:
        self.study, self.quick, self.folder, self.long = study, quick, folder, long
        self.images = folder if quick else IMAGES
        self.used: list[dict[str, Any]] = []
        self.has_measured = False

    def _path(self, name: str, lasting: bool) -> Path:
        if lasting and not self.quick:
            return PARTS / self.study.name / f"{name}.json"
        return self.folder / "parts" / f"{name}.json"

    def _asked(self, settings: dict[str, Any]) -> dict[str, Any]:
        return {"quick": self.quick, **settings}

    def has(self, name: str, *, lasting: bool = False, **settings: Any) -> bool:
        """Return whether a part was done before with the same settings.

        Args:
            name: Name of the part, unique in the study.
            lasting: Whether it is one that is kept in the repository.
            **settings: Settings that its result depends on.
        """
        kept = read(self._path(name, lasting))
        return bool(kept) and frame.is_same(kept["settings"], self._asked(settings))

    def part(
        self,
        name: str,
        make: Callable[..., Any],
        *arguments: Any,
        lasting: bool = False,
        **settings: Any,
    ) -> Any:
        """Return what `make` returned, now or when this part was done before.

        Args:
            name: Name of the part, unique in the study.
            make: Function whose result JSON can hold.
            *arguments: Its arguments.
            lasting: Whether it is kept in the repository, as what takes hours is.
            **settings: What the result depends on; other settings, another part.
        """
        path = self._path(name, lasting)
        record, is_new = frame.part(
            path,
            lambda: make(*arguments),
            self._asked(settings),
            f"{self.study.name}: {name}",
        )
        self.used.append(record)
        self.has_measured |= is_new
        return record["result"]

    def lasting(self, name: str, *given: Any, **settings: Any) -> Any:
        """Return a lasting `part`; None where it is missing, without `--long`."""
        if self.quick or self.long or self.has(name, lasting=True, **settings):
            return self.part(name, *given, lasting=True, **settings)
        return None

    def hardware_of(self, name: str) -> str:
        """Return where a lasting part was done, in words."""
        return read(self._path(name, lasting=True))["hardware"]

    def seconds(self) -> float:
        """Return how long the parts took that were used, in seconds."""
        return sum(kept["seconds"] for kept in self.used)

    def sittings(self) -> str:
        """Return a paragraph that says where and when the lasting parts were done."""
        done: dict[tuple[str, str], list[str]] = {}
        seconds = 0.0
        for path in sorted((PARTS / self.study.name).glob("*.json")):
            kept = read(path)
            seconds += kept["seconds"]
            part = f"{path.stem} in {kept['seconds'] / 60:,.0f} minutes"
            done.setdefault((kept["hardware"], kept["date"]), []).append(part)
        if not done or self.quick:
            return ""
        command = f"python experiments/studies/{self.study.name}.py --long"
        sittings = [
            f"{', '.join(parts)} ({', '.join(at)})" for at, parts in done.items()
        ]
        return (
            f"Trained by `{command}` in sittings, {seconds / 60:,.0f} minutes in all: "
            f"{'; '.join(sittings)}."
        )

    def save(self, figure: "Figure", name: str, caption: str) -> Picture:
        """Write a figure as PNG.

        Args:
            figure: From `purerl.report.plots`.
            name: What it shows in a word or two, with hyphens; the study's name is put
                before it.
            caption: What the reader sees, in a sentence.
        """
        from purerl.report import plots

        self.images.mkdir(parents=True, exist_ok=True)
        file = f"{self.study.name}-{name}.png"
        plots.save(figure, self.images / file)
        return Picture(file, caption)


def main(study: Study, measure: Callable[[Budget], Findings]) -> None:
    """Run a study from the command line: measure, print, write.

    Args:
        study: What it asks.
        measure: Function from the budget to what was found.
    """
    asked = options(
        f"{study.title}. {study.question}",
        quick=(False, "a tiny budget"),
        long=(False, "with what takes hours"),
        out=(Path, "folder of parts, runs, quick figures"),
    )
    kind = "studies-quick" if asked.quick else "studies"
    folder = asked.out or ROOT / "runs" / kind / study.name
    budget = Budget(study, asked.quick, folder, asked.long)
    findings = measure(budget)
    kept = {
        **study._asdict(),
        "command": f"python experiments/studies/{study.name}.py"
        + " --quick" * asked.quick,
        "quick": asked.quick,
        "seconds": round(budget.seconds()),
        "rows": [row._asdict() for row in findings.rows],
        "figures": [figure._asdict() for figure in findings.figures],
        "text": list(findings.text),
        "printed": findings.printed,
    }
    path = (folder if asked.quick else STORE) / f"{study.name}.json"
    kept |= when(path, asked.load_before, budget)
    write(path, kept)
    show(kept)


def when(path: Path, load: float, budget: Budget) -> dict[str, Any]:
    """Return where and when the numbers of a study were measured.

    Args:
        path: The study's file, which need not be there.
        load: Load of the machine before the study.
        budget: Its budget, which knows the parts. If none of them was measured now, the
            numbers are as old as the last of them, or as the file.
    """
    here = {"load_before": load, **hardware()}
    if budget.has_measured:
        return here
    before = max(budget.used, key=lambda kept: kept["date"], default=read(path))
    return {name: before.get(name, value) for name, value in here.items()}


def show(kept: dict[str, Any]) -> None:
    """Print a study's claims."""
    headers = ["what", "claimed", "here", "note"]
    claims = [[row[name] for name in headers] for row in kept["rows"]]
    if kept["quick"]:
        print(QUICK)
    frame.show(kept["title"], headers, claims, 160, show_lines=True)
