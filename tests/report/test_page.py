"""Pages need nothing but themselves, and their tables sort."""

import re
import shutil
import subprocess
from html.parser import HTMLParser
from types import SimpleNamespace

import numpy as np
import pytest

from purerl.report import html, page, tables
from purerl.search import protocol as search_folder
from purerl.storage import files
from tests.helpers import slow_but
from tests.report import synthetic

VOID = {"meta", "link", "br", "img", "path", "use", "rect"}
CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """One page of each kind."""
    folder = tmp_path_factory.mktemp("pages")
    data = synthetic.grid(num_seeds=4).isel(hidden_sizes=[0, 1], entropy_coef=[0, 1])
    html.write_page(folder / "sweep.html", "Sweep", page.sweep_sections(data))
    page.page_of(RUN, folder / "run.html")
    table = html.table(("trial", "torso", "value"), TRIALS)
    html.write_page(folder / "table.html", "Table", {"Trials": table})
    return folder


RUN = synthetic.run()
RUN.evaluation["cut_episodes"][:, -1] = [2, 0, 1]
# Ranked by value, a failure last.
TRIALS = [(3, "mlp", 200.0), (0, "mlp", 10.0), (2, "mlp", 9.0), (1, "gru", np.nan)]


class Checker(HTMLParser):
    """Collects what a page would load, and whether its tags are balanced."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.loads: list[str] = []
        self.ids: list[str] = []
        self.text: list[str] = []

    def handle_starttag(self, tag, attrs):
        if tag not in VOID:
            self.open.append(tag)
        for name, value in attrs:
            if name in ("src", "href", "xlink:href", "srcset", "action", "data"):
                self.loads.append(value)
            if name == "id":
                self.ids.append(value)

    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag):
        if tag in VOID:
            return
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text.append(data)


@pytest.mark.parametrize("name", slow_but(["sweep", "run"], "run"))
def test_a_page_is_whole_and_loads_nothing(folder, name):
    text = (folder / f"{name}.html").read_text()
    checker = Checker()
    checker.feed(text)
    assert checker.open == []
    for address in checker.loads:
        assert address.startswith(("#", "data:")), address
        if address.startswith("#") and not address.startswith("#s"):
            assert address[1:] in checker.ids
    assert not re.search(r"https?://", text)
    assert "@import" not in text
    for address in re.findall(r"url\(([^)]*)\)", text):
        assert address.strip("'\"").startswith("#")
    assert text.count("<svg") >= 2
    assert "currentColor" in text  # Text of pictures follows the page's.
    assert "#24292f" not in text.split("</style>")[1]


def test_what_a_sweeps_page_says(folder):
    text = (folder / "sweep.html").read_text()
    rows = re.findall(r"<tr>(<td.*?)</tr>", text.split("Learning curves</h2>")[0])
    assert len(rows) == 20
    means = [float(re.findall(r'data-v="([^"]*)"', row)[2]) for row in rows]
    assert means == sorted(means, reverse=True)


def test_what_a_runs_page_says(folder):
    checker = Checker()
    checker.feed((folder / "run.html").read_text())
    text = " ".join(checker.text)
    assert "Run: PPO, 3 agents in CartPole-v1" in text
    assert "Finished: 20 updates, 10k environment steps each. Last evaluation" in text
    assert "3 of 18 episodes still ran after 9 steps" in text
    assert "learning_rate" in text


def test_a_run_has_the_same_table_on_its_page_and_in_the_terminal(folder):
    agents = tables.agents_of(RUN)
    text = (folder / "run.html").read_text().split("<h2>Agents</h2>")[1]
    found = re.findall(r"<tr>(<td.*?)</tr>", text.split("</section>")[0])
    shown = [re.findall(r"<td[^>]*>(.*?)</td>", row) for row in found]
    assert shown == agents[1]
    columns = [list(column.cells) for column in tables.run_table(RUN).columns]
    assert [list(row) for row in zip(*columns, strict=True)][:3] == agents[1]


def test_the_page_of_a_search_of_ones_own(tmp_path, monkeypatch):
    """Its folder says what it is; a request without fresh episodes has training's."""
    train = {
        "env_steps": np.array([[64, 128], [64, 128]]),
        "episode_return": np.array([[1.0, 2.0], [3.0, 4.0]]),
    }
    gone = np.array([False, True])
    fresh = SimpleNamespace(episode_return=np.array([7.0, 9.0]))
    outcomes = [
        SimpleNamespace(fresh=None, train=train, diverged=~gone & gone, score=None),
        SimpleNamespace(fresh=fresh, train=train, diverged=gone, score=None),
    ]
    monkeypatch.setattr(search_folder, "read_outcomes", lambda folder: outcomes)
    (tmp_path / "records").mkdir()
    stored = {"kind": "random search", "config": {"env": "X"}, "options": {"lanes": 2}}
    files.write_json(tmp_path / "manifest.json", stored)
    text = page.folder_page(tmp_path).read_text()
    assert "<h1>Search: an own search</h1>" in text
    section = text.split("<h2>Requests</h2>")[1].split("</section>")[0]
    rows = re.findall(r"<tr>(<td.*?)</tr>", section)
    shown = [re.findall(r"<td[^>]*>(.*?)</td>", row) for row in rows]
    assert shown == [["1", "7"], ["0", "4"], ["0", "2"], ["1", "-"]]


def test_large_pictures_are_images():
    from purerl.report import plots

    returns = np.random.default_rng(0).normal(size=(60, 500))
    run = plots.learning_curve(synthetic.run(returns=returns))
    text = html.figure(run, "a < b")
    assert 'src="data:image/png;base64,iVBOR' in text
    assert "<figcaption>a &lt; b</figcaption>" in text
    text = html.table(["n"], [[number] for number in range(html.MAX_ROWS + 2)])
    assert "2 further rows are not shown" in text


PROBE = """<script>
const root = document.documentElement;
const names = [...document.querySelectorAll("th")];
const head = names.find((th) => th.textContent === "value");
const column = () => [...head.closest("table").tBodies[0].rows]
  .map((row) => row.cells[0].textContent).join(",");
head.click(); root.dataset.up = column();
head.click(); root.dataset.down = column();
names.find((th) => th.textContent === "torso").click(); root.dataset.text = column();
</script></body>"""


@pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed")
def test_tables_sort_in_a_browser(folder, tmp_path):
    """No error in the script; numbers by value, failures last, text by name."""
    catch = (
        "<script>onerror = (m) => document.documentElement.dataset.error = m</script>"
    )
    text = (folder / "table.html").read_text()
    text = text.replace("<head>", "<head>" + catch).replace("</body>", PROBE)
    (tmp_path / "probe.html").write_text(text)
    command = [str(CHROMIUM), "--headless", "--no-sandbox", "--disable-gpu"]
    command += [f"--user-data-dir={tmp_path}/profile", "--dump-dom"]
    command += [(tmp_path / "probe.html").as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    root = re.search(r"<html[^>]*>", done.stdout)
    assert root is not None, done.stderr
    assert "data-error" not in root[0]
    assert 'data-up="2,0,3,1"' in root[0]
    assert 'data-down="3,0,2,1"' in root[0]
    assert 'data-text="1,3,0,2"' in root[0]
