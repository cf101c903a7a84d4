"""The notebooks run from nothing, and what they hold and the site shows is in order."""

import os
import re

import pytest
import rich

from tests.docs.pages import NOTEBOOKS, ROOT, load

# In place of the numbers of its first code cell.
EVOLVED = "3-evolve-a-loss"
SMALL = "STEPS, POPULATION, GENERATIONS, SEEDS = 2_048, 4, 2, 2"
PLACE = ROOT / "examples" / "notebooks"
NAMES = [path.stem for path in NOTEBOOKS]


def read(name):
    """A notebook and its cells of code."""
    nbformat = pytest.importorskip("nbformat")
    notebook = nbformat.read(PLACE / f"{name}.ipynb", as_version=4)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert code[0].metadata.tags == ["parameters"]
    return notebook, code


def execute(name, tmp_path):
    """Run a notebook in a process of its own; returns what it printed."""
    nbclient = pytest.importorskip("nbclient")
    notebook, code = read(name)
    for cell in code:
        cell.outputs = []
    resources = {"metadata": {"path": str(tmp_path)}}
    client = nbclient.NotebookClient(
        notebook, timeout=1_200, kernel_name="python3", resources=resources
    )
    env = os.environ | {"PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "default"}
    client.execute(env=env)
    outputs = [output for cell in code for output in cell.outputs]
    return "".join(output.get("text", "") for output in outputs)


@pytest.mark.filterwarnings("default")
def test_a_notebook_runs_with_small_numbers(monkeypatch, capsys):
    """In this process; the slow test runs them all in processes of Jupyter."""
    monkeypatch.setattr(rich, "_console", None)  # as it is set for notebooks alone
    cells = [cell.source.replace("%matplotlib inline", "") for cell in read(EVOLVED)[1]]
    namespace = {}
    for cell in (SMALL, *cells[1:]):
        exec(cell, namespace)
    assert "MLPValueLoss of" in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("name", NAMES)
def test_a_notebook_runs_whole(name, tmp_path):
    said = execute(name, tmp_path)
    if name == "1-seeds-and-sweeps":
        assert "range of 8)" in said and "256 seeds: mean" in said
    if name == "2-own-environment-and-loss":
        # No ferry is better than shortest ways, and all are far better than a drift.
        found = [float(x) for x in re.findall(r"current 0.00: (-\d+\.\d+)", said)]
        best = float(re.findall(r"without a current: (-\d+\.\d+)", said)[0])
        assert -25 * 0.5 + 5 < found[0] < best + 0.3


def test_the_site_shows_a_notebook_with_its_pictures():
    hook = load(ROOT / "docs" / "hooks" / "notebooks.py")
    for path in NOTEBOOKS:
        text, pictures = hook.page_of(path)
        assert text.startswith("# ") and ".ipynb)" not in text
        shown = re.findall(r"!\[\]\((.+)\)", text)
        assert [f"notebooks/{name}" for name in shown] == list(pictures)
        assert all(data.startswith(b"\x89PNG") for data in pictures.values())
        assert "\x1b" not in text
    tutorial = (ROOT / "docs" / "tutorial.md").read_text()
    places = [place for path in NOTEBOOKS for place in hook.page_of(path)[1]]
    assert set(re.findall(r"\((notebooks/.+\.png)\)", tutorial)) <= set(places)
