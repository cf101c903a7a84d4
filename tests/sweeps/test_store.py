"""A folder that is read again, without training: chunks are written by hand."""

import tempfile

import flax.struct
import jax
import numpy as np
import pytest

import purerl
from purerl import serialise
from purerl.losses import LOSSES, ClipDrift, MLPValueLoss
from purerl.report.sweep_data import read_scores
from purerl.space.axes import expand
from purerl.storage import folders
from purerl.sweeps import store
from purerl.sweeps.groups import member_id, written
from tests.helpers import tiny_config


def write_sweep(folder, axis, values, chunks=True, more=()):
    """A sweep of one axis and one seed; the n-th member's return is n.

    `more` are further arrays of each member.
    """
    points = [written({axis: value}) for value in values]
    spec = {
        **{"kind": "sweep", "format": store.FORMAT, "design": "grid"},
        **{"config": serialise.to_dict(tiny_config()), "seeds": [0], "groups": {}},
        **{"axes": [axis], "shape": [len(points)], "points": points},
        **folders.made_with(),
    }
    store.open_folder(folder, spec, extend=False)
    for number, value in enumerate(values if chunks else ()):
        arrays = {
            "train/env_steps": np.array([[640]]),
            "train/episode_return": np.float32([[number]]),
            "train/episode_length": np.float32([[number]]),
            "diverged_at": np.array([-1]),
            "state/w": np.full((1, 2), number),
            **(more[number] if more else {}),
        }
        ids = (member_id({axis: value}, 0),)
        store.save(folder, f"g{number}", ids, arrays)
    return purerl.load_sweep(folder)


@flax.struct.dataclass
class Weighted:
    weights: np.ndarray

    def __call__(self, *args):
        return args


def test_losses_with_arrays_of_doubles_are_found_again(tmp_path, monkeypatch):
    # 0.1 is another number in the float32 that the loss comes back in.
    monkeypatch.setitem(LOSSES, "Weighted", Weighted)
    losses = [Weighted(np.array([x, 2 * x])) for x in (0.1, 0.3)]
    result = write_sweep(tmp_path, "policy_loss", losses)
    assert result.finished
    np.testing.assert_array_equal(result.scores().values[:, 0], [0, 1])


def test_axes_of_mappings_and_of_mixed_kinds_are_found_again(tmp_path):
    kinds = [{"num_doors": 3}, {"num_doors": 5}]
    result = write_sweep(tmp_path / "kinds", "env_kwargs", kinds)
    assert [point["env_kwargs"] for point in result.design.points] == kinds
    assert result.best().point == {"env_kwargs": {"num_doors": 5}}
    mixed = write_sweep(tmp_path / "mixed", "max_grad_norm", [None, 0.5])
    assert float(mixed.sel(max_grad_norm=0.5)["episode_return"][0, 0]) == 1
    assert float(mixed.sel(max_grad_norm=None)["episode_return"][0, 0]) == 0


def test_networks_are_told_apart_by_numbers(tmp_path):
    losses = [MLPValueLoss.create(jax.random.key(i)) for i in range(2)]
    result = write_sweep(tmp_path, "value_loss", losses)
    frame = result.to_dataframe()
    assert list(frame["value_loss"]) == ["MLPValueLoss#0", "MLPValueLoss#1"]
    assert list(frame["episode_return"]) == [0, 1]
    for chosen in (losses[1], "MLPValueLoss#1"):
        assert float(result.sel(value_loss=chosen)["episode_return"][0, 0]) == 1


def test_a_loss_by_its_file_is_what_the_file_holds():
    """A file may change, or go."""
    with tempfile.TemporaryDirectory() as folder:
        files = [f"{folder}/{name}.yaml" for name in "ab"]
        for file, eps in zip(files, (0.1, 0.3), strict=True):
            purerl.save_part(ClipDrift(eps), file)
        axes = {"policy_loss": files}
        designs = (
            expand(axes),
            expand({"policy_loss": purerl.choice(files)}, "random", 9),
        )
    for design in designs:
        ids = {member_id(point, 0) for point in design.points}
        assert ids == {member_id({"policy_loss": ClipDrift(x)}, 0) for x in (0.1, 0.3)}


def test_members_that_were_never_evaluated_have_their_last_training_row(tmp_path):
    evaluated = {
        "evaluation/env_steps": np.array([[10, 20]]),
        "evaluation/episode_return": np.float32([[[0, 0], [5, 7]]]),
        "evaluation/episode_length": np.ones((1, 2, 2), np.int32),
    }
    result = write_sweep(tmp_path, "num_evaluations", [2, 0], more=[evaluated, {}])
    np.testing.assert_array_equal(result.scores().values[:, 0], [6, 1])
    assert read_scores(result.dataset).scores.tolist() == [[6], [1]]


def test_counts_are_read_exactly(tmp_path):
    count = {"train/episodes": np.float64([[2**24 + 1]])}
    result = write_sweep(tmp_path, "gamma", [0.9], more=[count])
    assert float(result["episodes"][0, 0, 0]) == 2**24 + 1
    assert result["episode_return"].dtype == np.float32


@pytest.mark.parametrize("how", ["emptied", "renamed", "lost"])
def test_a_damaged_file_is_named_and_the_others_are_read(how, tmp_path, capsys):
    write_sweep(tmp_path, "gamma", [0.9, 0.99])
    folders.write_summary(tmp_path, {"finished_members": 2}, {}, False)
    index = store.MemberStore.of(tmp_path)
    path = index.chunks[index.locations[member_id({"gamma": 0.9}, 0)][0]]
    said = f"{path} is damaged"
    if how == "emptied":
        path.write_bytes(b"")
    elif how == "renamed":  # An array, in the index at the file's end alone.
        before, name, after = path.read_bytes().rpartition(b"train/episode_length")
        path.write_bytes(before + name.replace(b"/", b"_") + after)
    else:
        path.unlink()
        said = f"{tmp_path / 'chunks'} has 1 of the 2 members"
    result = purerl.load_sweep(tmp_path)
    assert said in " ".join(capsys.readouterr().err.split("\n"))
    known = np.isfinite(result.scores().values[:, 0])
    np.testing.assert_array_equal(known, [False, True])


def test_a_sweep_of_which_nothing_has_finished_says_so(tmp_path):
    result = write_sweep(tmp_path, "gamma", [0.9], chunks=False)
    assert not result.finished
    for read in (result.scores, result.best, result.to_dataframe):
        with pytest.raises(purerl.ConfigError, match=r"no member .* finished yet"):
            read()
