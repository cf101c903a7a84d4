"""Named settings compared on held-out seeds: what they may be, bits, folders, pages."""

import re

import numpy as np
import pytest

import purerl
from purerl import losses
from purerl.cli import main
from purerl.comparison import api
from purerl.comparison.api import read_settings
from purerl.config import ConfigError
from purerl.scale.devices import make_workers
from purerl.storage import folders
from tests.comparison.small import CONFIG, FAST, SETTINGS, SLOW, SMALL
from tests.helpers import assert_same_bits

PLACE = "CartPole-v1"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("compare") / "out"


@pytest.fixture(scope="module")
def result(folder):
    return purerl.compare(CONFIG, SETTINGS, out=folder, **SMALL)


def test_settings_of_one_program_are_bit_for_bit_those_alone(result):
    alone = purerl.compare(CONFIG, {"fast": FAST}, **SMALL)
    for measure, values in alone.scores.items():
        np.testing.assert_array_equal(values[:, 0], result.scores[measure][:, 1])
    np.testing.assert_array_equal(alone.curves[PLACE][0], result.curves[PLACE][1])


def test_settings_of_other_lengths_have_their_own_steps(result):
    steps = result.steps["CartPole-v1"]
    assert steps[0, :2].tolist() == [32, 64]
    assert steps[2, :10].tolist() == list(range(64, 641, 64))
    assert np.isnan(steps[2, 10:]).all()  # half as many updates as the others
    dataset = result.dataset
    assert dataset.sizes["setting"] == 4
    assert dataset["curve"].sel(setting="wide").isnull().any()
    assert not dataset["curve"].sel(setting="slow").isnull().any()
    assert result.subject == "settings"


def test_a_loss_is_an_object_a_path_or_text(tmp_path):
    loss = losses.HuberError(5.0)
    path = purerl.save_part(loss, tmp_path / "loss.npz")
    for given in (loss, path, str(path), "HuberError(delta=5.0)"):
        (setting,) = read_settings({"hard": {"value_loss": given}})
        assert_same_bits(setting.values["value_loss"], loss)


def test_a_folder_trains_what_is_missing(result, folder, monkeypatch):
    trained = []

    def train(self, part, *rest):
        trained.append(len(part.entries))
        return original(self, part, *rest)

    original = api._Loop._train_part
    monkeypatch.setattr(api._Loop, "_train_part", train)
    purerl.compare(CONFIG, SETTINGS, out=folder, **SMALL)
    assert trained == []
    more = {**SETTINGS, "third": {"learning_rate": 0.01}}
    found = purerl.compare(CONFIG, more, out=folder, **SMALL)
    assert trained == [1]
    for measure, values in result.scores.items():
        np.testing.assert_array_equal(found.scores[measure][:, :4], values)
    loaded = purerl.load_comparison(folder)
    assert loaded.settings == tuple(more)
    assert loaded.about["settings"] == found.about["settings"]
    assert repr(loaded.rows) == repr(found.rows)
    for place, steps in found.steps.items():
        np.testing.assert_array_equal(loaded.steps[place], steps)
        np.testing.assert_array_equal(loaded.curves[place], found.curves[place])


def test_settings_of_one_program_are_kept_one_by_one(tmp_path, monkeypatch):
    """The third fails: what was trained of the same part is not trained again."""
    original, trained = api.stream, []

    def streamed(jobs, workers, reducer, *rest):
        def recorder(job):
            if 4 in job.key and not trained.count("again"):
                raise RuntimeError("no memory")
            trained.extend(job.key.tolist())
            return reducer(job)

        original(jobs, workers, recorder, *rest)

    monkeypatch.setattr(api, "stream", streamed)
    rates = {f"rate {x}": {"learning_rate": x} for x in (1e-3, 2e-3, 4e-3)}
    one = api.make_workers()[:1]
    monkeypatch.setattr(api, "make_workers", lambda: one)
    options = {"seeds": 2, "lanes": 2, "progress": False}
    with pytest.raises(RuntimeError, match="no memory"):
        purerl.compare(CONFIG, rates, out=tmp_path / "out", **options)
    assert trained == [0, 1, 2, 3]
    trained.append("again")
    found = purerl.compare(CONFIG, rates, out=tmp_path / "out", **options)
    assert trained[5:] == [0, 1]  # The rows of the one that was missing.
    whole = purerl.compare(CONFIG, rates, **options)
    for measure, values in whole.scores.items():
        np.testing.assert_array_equal(found.scores[measure], values)


def test_a_damaged_setting_is_left_out_and_trained_again(result, folder, capsys):
    more = {"slow": SLOW, "third": {"learning_rate": 0.03}}
    purerl.compare(CONFIG, more, out=folder, **SMALL)
    path = folder / "trained" / f"{folders.load(folder)['trained'][PLACE]['third']}.npz"
    path.write_bytes(path.read_bytes()[:-9])
    loaded = purerl.load_comparison(folder)
    assert loaded.settings == ("slow",) and not loaded.finished
    assert f"{path} is missing or damaged, so third" in capsys.readouterr().err
    assert purerl.compare(CONFIG, more, out=folder, **SMALL).finished


def test_a_folder_goes_on_with_its_own_options(result, folder):
    for changes, words in (
        ({"seeds": 3}, "seeds is"),
        ({"measures": ["final_return"]}, "measures is"),
        ({"lanes": 2}, "lanes is 4 there and 2 here"),
    ):
        with pytest.raises(ConfigError, match=f"another comparison: {words}"):
            purerl.compare(CONFIG, SETTINGS, out=folder, **{**SMALL, **changes})


def test_a_folder_goes_on_at_its_own_width_on_other_workers(tmp_path, monkeypatch):
    def of_workers(number, settings, out):
        workers = make_workers()[:1] * number
        monkeypatch.setattr(api, "make_workers", lambda: workers)
        out = tmp_path / out
        return purerl.compare(CONFIG, settings, seeds=4, out=out, progress=False)

    of_workers(1, {"slow": SLOW}, "parts")
    resumed = of_workers(4, {"slow": SLOW, "fast": FAST}, "parts")
    alone = of_workers(1, {"slow": SLOW, "fast": FAST}, "whole")
    for measure, scores in alone.scores.items():
        assert_same_bits(resumed.scores[measure], scores)
    with pytest.raises(ConfigError, match="lanes is 4 there and 2 here"):
        purerl.compare(CONFIG, {"slow": SLOW}, seeds=4, out=tmp_path / "whole", lanes=2)


def test_the_page_has_the_table_the_curves_and_the_settings(folder, capsys):
    result = purerl.compare(CONFIG, SETTINGS, out=folder, **SMALL)
    assert main(["report", str(folder)]) == 0
    text = (folder / "report.html").read_text()
    for words in ("<h2>Scores</h2>", "<h2>Learning curves</h2>", "<h2>Settings</h2>"):
        assert words in text
    assert text.count("<figure>") == 1
    assert not re.search(r"https?://", text)
    row = result.row(PLACE, "final_return", "fast")
    assert f'data-v="{row.mean:.1f}"' in text
    assert "Configuration of DQN" in text
    assert "hidden_sizes=[9], num_steps=32" in text
