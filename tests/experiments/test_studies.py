"""The studies: each runs end to end at a tiny budget, and the pages show what it left.

The frame's own tests are quick; those that run a whole study are slow.
"""

import json
import subprocess
import sys
import textwrap
from pathlib import Path

import learned
import page
import pytest
import studies
import study

from purerl.report import style

from .conftest import run_script

FOLDER = Path(__file__).parents[2] / "experiments" / "studies"
# What a study needs that is not installed with the tests.
NEEDS = {
    "doors": ["gymnasium", "torch"],
    "halfcheetah_td3": ["gymnasium", "torch"],
    "purejaxrl": ["torch"],
    "jaxrl": ["torch"],
}


def run(name, *words):
    return run_script(FOLDER / f"{name}.py", *words)


def test_every_study_can_be_started():
    """As `python experiments/studies/NAME.py` finds its modules, without training."""
    code = """
        import runpy, sys
        others, (folder, *scripts) = list(sys.path), sys.argv[1:]
        for script in scripts:
            before = set(sys.modules)
            sys.path[:] = [script.rpartition("/")[0], *others]
            runpy.run_path(script, run_name="script")
            for name in set(sys.modules) - before:
                file = getattr(sys.modules[name], "__file__", None) or ""
                if file.startswith(folder):
                    del sys.modules[name]
    """
    # What needs more than the tests install says so where it is imported.
    names = [name for name in studies.names() if name not in NEEDS]
    scripts = [FOLDER / f"{name}.py" for name in names]
    run_script("-c", textwrap.dedent(code), FOLDER.parent, *scripts)


@pytest.mark.slow
@pytest.mark.parametrize("name", studies.names())
def test_a_study_runs_end_to_end_at_a_tiny_budget(name, tmp_path):
    for module in NEEDS.get(name, ()):
        pytest.importorskip(module)
    out = tmp_path / name
    run(name, "--quick", "--out", out)
    kept = json.loads((out / f"{name}.json").read_text())
    assert kept["name"] == name and kept["quick"] and kept["rows"]
    assert f'## <a id="{name}"></a>{kept["title"]}' in page.markdown([kept])
    # Again, nothing is measured: every part is there.
    assert f"{name}: " not in run(name, "--quick", "--out", out)


TOY = study.Study("toy", "A toy", "nobody", "What is measured.", system="Toys")


def test_a_part_is_done_once_until_its_settings_change(tmp_path):
    calls = []

    def part(budget, steps):
        return budget.part("one", lambda: calls.append(1) or len(calls), steps=steps)

    budget = study.Budget(TOY, True, tmp_path)
    assert [part(budget, 5), part(budget, 5), part(budget, 6)] == [1, 1, 2]
    assert part(study.Budget(TOY, True, tmp_path), 6) == 2
    assert part(study.Budget(TOY, False, tmp_path), 6) == 3  # nothing of a quick run
    assert budget.seconds() < 1


def test_a_lasting_part_is_kept_for_other_machines(tmp_path, monkeypatch):
    monkeypatch.setattr(study, "PARTS", tmp_path / "repository")
    here = study.Budget(TOY, False, tmp_path / "here")
    assert not here.has("one", lasting=True, steps=5) and here.sittings() == ""
    assert here.part("one", lambda: [1.5], lasting=True, steps=5) == [1.5]
    elsewhere = study.Budget(TOY, False, tmp_path / "elsewhere")
    assert elsewhere.has("one", lasting=True, steps=5)
    assert elsewhere.part("one", lambda: 1 / 0, lasting=True, steps=5) == [1.5]
    assert not elsewhere.has("one", lasting=True, steps=6)
    assert elsewhere.sittings().startswith(
        "Trained by `python experiments/studies/toy.py --long` in sittings, 0 minutes "
        "in all: one in 0 minutes ("
    )
    quick = study.Budget(TOY, True, tmp_path / "elsewhere")
    assert not quick.has("one", lasting=True, steps=5)  # A quick run has its own.


def test_the_pages_show_claims_pictures_and_tables(tmp_path, monkeypatch, capsys):

    def measure(budget):
        figure = style.new_figure()
        style.finish(figure.subplots(), "Title", "x", "y")
        here = budget.part("one", lambda: "1 s")
        return study.Findings(
            [study.Row("speed | rate", "10 s", here, "Another machine.")],
            [budget.save(figure, "curve", "The curve.")],
            ["**A** paragraph of `code`, see [a site](https://example.org/x.png)."],
        )

    other = TOY._replace(name="other", title="Another", system="Others")
    for toy in (TOY, other):
        folder = tmp_path / toy.name
        words = ["toy.py", "--quick", "--out", str(folder)]
        monkeypatch.setattr(sys, "argv", words)
        study.main(toy, measure)
    written = page.markdown(page.load(tmp_path))
    for words in (
        '## <a id="toy"></a>A toy',
        "What is measured.",
        "| speed \\| rate | 10 s | 1 s |",
        "](../images/studies/toy-curve.png)",
        "*The curve.*",
        "Source: nobody.",
        "python experiments/studies/toy.py --quick",
    ):
        assert words in written
    assert written.index('## <a id="other') < written.index(
        '## <a id="toy'
    )  # by system
    # The rows of a quick run have the words, and the steps, of the full budget.
    assert " ".join(capsys.readouterr().out.split()).count(study.QUICK) == 2


def test_what_is_only_drawn_again_was_measured_before(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["toy.py", "--quick", "--out", str(tmp_path)])
    path, part = tmp_path / "toy.json", tmp_path / "parts" / "one.json"
    parts = {"one": lambda: "1 s"}

    def measure(budget):
        found = [budget.part(name, make) for name, make in parts.items()]
        return study.Findings([study.Row("speed", "-", ", ".join(found))], [])

    def again():
        study.main(TOY, measure)
        kept = json.loads(path.read_text())
        return kept["date"], kept["load_before"]

    today, _ = again()
    old = {"date": "2020-02-02", "load_before": 7.5}
    part.write_text(json.dumps({**json.loads(part.read_text()), **old}))
    path.unlink()  # As of a study that was killed before it wrote its file.
    assert again() == ("2020-02-02", 7.5)
    parts["two"] = lambda: "2 s"
    assert again()[0] == today


def test_a_failed_study_is_named_and_the_others_still_run(monkeypatch, capsys):
    ran, flags = [], []

    def call(command, **_):
        ran.append(Path(command[1]).stem)
        flags.append(command[2:])
        return subprocess.CompletedProcess(command, int(ran[-1] == "jym"))

    monkeypatch.setattr(studies.subprocess, "run", call)
    monkeypatch.setattr(studies.page, "write", lambda: "a page")
    words = ["studies.py", "--long", "--only", "jym", "doors"]
    monkeypatch.setattr(sys, "argv", words)
    assert studies.main() == 1
    assert ran == ["jym", "doors"] and flags == [["--long"]] * 2
    out, err = capsys.readouterr()
    assert "a page" in out and err == "failed: jym\n"


def test_rows_of_a_study_are_trained_where_hours_are_no_matter(tmp_path, monkeypatch):
    commands = []
    monkeypatch.setattr(
        learned.subprocess, "run", lambda command, **_: commands.append(command[1:])
    )
    there = {"mpo-jaxrl": {"per_seed": [1.0] * 10}, "td3-jaxrl": {"per_seed": [1.0]}}
    monkeypatch.setattr(learned, "load", there.get)
    for long, quick in ((False, False), (True, True), (True, False)):
        budget = study.Budget(TOY, quick, tmp_path, long)
        learned.complete(budget, ["td3-jaxrl", "sac-jaxrl", "mpo-jaxrl"])
    assert [command[1:] for command in commands] == [
        ["td3-jaxrl", "--at-once", "1"],
        ["sac-jaxrl", "--at-once", "1"],
    ]
    assert Path(commands[0][0]) == study.ROOT / "experiments" / "results.py"


def test_a_row_that_was_not_run_is_said_so(tmp_path, monkeypatch):
    """Studies of learning results show the rows that are there, and name the others."""
    import halfcheetah

    row = {"curve_steps": [5, 10], "curve": [1.0, 2.0], "per_seed": [1.0, 3.0] * 5}
    there = {"vpg-halfcheetah": row}
    monkeypatch.setattr(learned, "load", there.get)
    monkeypatch.setattr(study, "IMAGES", tmp_path)
    found = halfcheetah.measure(study.Budget(TOY, False, tmp_path))
    vpg, wide, td3, _ = found.rows
    assert (wide.here, wide.note) == ("not measured", "Not run yet.")
    assert (
        vpg.here.startswith("2 (1 to 3")
        and vpg.note == halfcheetah.WORDS["other physics"]
    )
    assert td3.here == "not measured" and "hours of two cores" in td3.note
    assert (tmp_path / found.figures[0].file).exists()
    # A quick run is no part of the learning results.
    quick = {"curve_steps": [5], "curve": [1.0], "per_seed": [1.0]}
    assert learned.what_is_missing("td3-halfcheetah", quick) == ""
    row = {"per_seed": [1.0, 3.0], "command": "python experiments/results.py ROW"}
    said = learned.what_is_missing("td3-halfcheetah", row)
    assert said.startswith("2 of 10 agents are trained so far; `python experiments")
    assert learned.note_of("td3-halfcheetah", row, "A note.") == f"{said} A note."
