import jax
import numpy as np
import pytest
from flax import struct

import purerl
from purerl.runner import run as loop
from purerl.runner.rows import RowFile, by_member, read_rows
from tests.contracts.test_algorithms import small
from tests.helpers import StopAfter, slow_but

from .conftest import NUM_UPDATES, SEGMENT, assert_same_bits, outcome, run_tiny
from .told import Acts

# The same program trains what is compared, in slow tests as users compile it.
pytestmark = pytest.mark.optimised(slow=True)

SEEDS = 3


def stop(tracker):
    tracker.stop = True


@pytest.fixture(scope="module")
def whole(tiny):
    return run_tiny(tiny, seeds=SEEDS)


@pytest.mark.parametrize(
    "update", slow_but(range(SEGMENT, NUM_UPDATES, SEGMENT), SEGMENT)
)
def test_interrupted_after_any_segment_and_resumed_equals_uninterrupted(
    tiny, whole, tmp_path, update
):
    out = tmp_path / "run"
    stopped = run_tiny(tiny, seeds=SEEDS, out=out, trackers=[StopAfter(update)])
    assert not stopped.finished
    assert_same_bits(stopped.state, purerl.load_run(out).state)
    assert stopped.train_steps == update * 32 * SEEDS
    resumed = run_tiny(tiny, seeds=SEEDS, out=out, resume=True)
    assert resumed.finished
    assert resumed.train_steps == (NUM_UPDATES - update) * 32 * SEEDS
    assert_same_bits(outcome(resumed), outcome(whole))


def test_a_run_that_is_stopped_without_a_folder_has_its_agents(tiny, capsys):
    stopped = run_tiny(tiny, seeds=[4, 2], trackers=[Acts(SEGMENT, stop, seed=2)])
    assert not stopped.finished and stopped.state.update.tolist() == [SEGMENT] * 2
    assert stopped.policy(2)(np.zeros(4)) in (0, 1)
    said = " ".join(capsys.readouterr().err.split())
    assert "no out folder), and the agents are in the result alone" in said


def test_a_run_is_read_before_its_first_checkpoint(tiny, tmp_path):
    found = []
    reads = Acts(SEGMENT, lambda tracker: found.append(purerl.load(tmp_path)))
    run_tiny(tiny, out=tmp_path, trackers=[reads], checkpoint_seconds=1e9)
    (begun,) = found
    assert (begun.update, begun.finished, begun.state) == (0, False, None)
    np.testing.assert_array_equal(begun.metrics["update"], [[SEGMENT]])
    assert purerl.load(tmp_path).finished


def test_a_run_that_was_stopped_before_its_first_evaluation_says_so(tiny, tmp_path):
    stopped = run_tiny(tiny, out=tmp_path / "run", trackers=[Acts(SEGMENT, stop)])
    for result in (stopped, purerl.load(tmp_path / "run")):
        with pytest.raises(purerl.ConfigError, match="when it stopped; resume it"):
            result.best()
    never = stopped._replace(config=tiny.replace(num_evaluations=0))
    with pytest.raises(purerl.ConfigError, match="set num_evaluations to 1 or more"):
        never.best()


def test_rows_past_the_last_checkpoint_are_dropped_on_resume(tiny, whole, tmp_path):
    # A kill between writing rows and saving leaves rows that will be written again.
    out = tmp_path / "run"
    run_tiny(tiny, seeds=SEEDS, out=out, trackers=[StopAfter(2 * SEGMENT)])
    metrics = out / "metrics"
    file = RowFile(metrics)
    file.log(
        "train", 0, by_member(read_rows(metrics)["train"], [0])[0][-1] | {"update": 9}
    )
    file.flush()
    with file.path.open("a") as torn:
        torn.write('{"update": 12, "torn')
    resumed = run_tiny(tiny, seeds=SEEDS, out=out, resume=True)
    assert_same_bits(outcome(resumed), outcome(whole))
    for rows in by_member(read_rows(metrics)["train"], range(SEEDS)):
        assert [row["update"] for row in rows] == [3, 6, 9, 12, 15, 18, 20]


def test_the_same_call_begins_goes_on_and_returns_what_has_finished(
    tiny, whole, tmp_path, monkeypatch
):
    """What a job does that may be put into the queue again."""
    call = {"seeds": SEEDS, "out": tmp_path / "run", "resume": "auto"}
    stopped = run_tiny(tiny, **call, trackers=[StopAfter(SEGMENT)])
    assert not stopped.finished and stopped.update == SEGMENT
    resumed = run_tiny(tiny, **call, trackers=[])
    assert resumed.finished and resumed.update == NUM_UPDATES
    with monkeypatch.context() as patch:
        patch.setattr(loop, "make_cohort", lambda *args: pytest.fail("it compiled"))
        again = run_tiny(tiny, **call)
    assert again.train_steps == again.compile_seconds == 0
    for result in (resumed, again):
        assert_same_bits(outcome(result), outcome(whole))
    with pytest.raises(purerl.ConfigError, match=r"gamma is 0\.99 there and 0\.9 here"):
        run_tiny(tiny.replace(gamma=0.9), **call)


@pytest.mark.parametrize("seeds", [[0], [2, 0], [7, 1, 5, 2, 0]])
def test_a_member_does_not_depend_on_number_order_or_neighbours(tiny, whole, seeds):
    other = run_tiny(tiny, seeds=seeds)
    for seed in set(seeds) & set(range(SEEDS)):
        at = seeds.index(seed)
        mine = jax.tree.map(lambda x, i=at: x[i], outcome(other))
        theirs = jax.tree.map(lambda x, i=seed: x[i], outcome(whole))
        assert_same_bits(mine, theirs)


def test_run_agrees_with_make_train_over_the_first_updates(tiny, whole):
    """One program and segments round differently; after some updates curves part."""
    single = tiny.replace(num_evaluations=0)
    keys = jax.vmap(jax.random.key)(jax.numpy.arange(SEEDS))
    result = jax.jit(jax.vmap(purerl.make_train(single)))(keys)
    for name in ("policy_loss", "value_loss", "entropy"):
        mean = np.asarray(result.metrics[name])[:, :SEGMENT].mean(1)
        assert whole.metrics[name][:, 0] == pytest.approx(mean, rel=1e-3, abs=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["ppo", "dqn/rainbow"])
def test_data_parallel_run_resumes_bitwise(name, tmp_path):
    """Also one whose replay has priorities."""
    changes = {"num_envs": 4, "buffer_size": 64, "total_timesteps": 12 * 64}
    if name == "ppo":
        del changes["buffer_size"]
    config, out = small(name, **changes), tmp_path / "run"
    options = {"seeds": 1, "data_parallel": True, "lanes": 1}
    whole = run_tiny(config, **options)
    run_tiny(config, out=out, trackers=[StopAfter(2 * SEGMENT)], **options)
    resumed = run_tiny(config, out=out, resume=True, **options)
    assert_same_bits(outcome(resumed), outcome(whole))


@struct.dataclass
class OwnDrift(purerl.losses.ClipDrift):
    """A loss that the command line has never heard of."""


@pytest.mark.parametrize(
    ("change", "seeds", "remedy"),
    [
        ({}, 1, "Go on with: purerl train --resume {out}"),
        (
            {"policy_loss": OwnDrift(), "num_evaluations": 0},
            [3, 4],
            "purerl.run(config, ..., out='{out}', r",
        ),
    ],
)
def test_an_interrupted_run_says_how_it_can_go_on(
    tiny, tmp_path, capsys, change, seeds, remedy
):
    config, out = tiny.replace(**change), tmp_path / "run"
    first = seeds[0] if isinstance(seeds, list) else 0
    run_tiny(config, seeds=seeds, out=out, trackers=[StopAfter(SEGMENT, first)])
    said = capsys.readouterr().err.replace("\n", "")
    assert f"stopped after update {SEGMENT} and saved it" in said
    assert remedy.format(out=out) in said
    assert run_tiny(config, seeds=seeds, out=out, resume=True).finished


@pytest.mark.slow
def test_a_finished_run_that_is_extended_is_the_longer_run(tiny, tmp_path):
    """Where nothing follows the share of the run that is done, bit for bit."""
    config = tiny.replace(anneal_learning_rate=False, num_evaluations=0)
    short = config.replace(total_timesteps=5 * 32)  # which ends within a segment
    whole = run_tiny(config)
    first = run_tiny(short, out=tmp_path)
    assert first.finished and int(first.metrics["env_steps"][0, -1]) == 5 * 32
    with pytest.raises(
        purerl.ConfigError, match=r"is 160 there and .*extend=True. goes"
    ):
        run_tiny(config, out=tmp_path, resume=True)
    with pytest.raises(purerl.ConfigError, match="no update more than the run's 160"):
        run_tiny(
            short.replace(total_timesteps=64), out=tmp_path, resume=True, extend=True
        )
    with pytest.raises(purerl.ConfigError, match="extend=True goes on with a run"):
        run_tiny(config, out=tmp_path, extend=True)
    longer = run_tiny(config, out=tmp_path, resume=True, extend=True)
    assert longer.finished and longer.train_steps == (NUM_UPDATES - 5) * 32
    assert_same_bits(longer.state, whole.state)
    steps = longer.metrics["env_steps"][0]
    assert (np.diff(steps) > 0).all() and steps[-1] == NUM_UPDATES * 32
    loaded = purerl.load_run(tmp_path)
    assert loaded.config.total_timesteps == config.total_timesteps
    again = run_tiny(config, out=tmp_path, resume=True, extend=True)
    assert again.finished and again.train_steps == 0


@pytest.mark.parametrize("prioritised", [False, True])
@pytest.mark.slow(optimised=False)
def test_the_replay_of_a_run_that_is_extended_is_that_of_the_longer_run(
    prioritised, tmp_path
):
    """A buffer holds no more items than its run has steps, also when that grows."""
    config = small(
        "dqn",
        total_timesteps=384,
        buffer_size=480,
        epsilon_steps=100.0,
        prioritised=prioritised,
        importance_exponent=1.0,  # so that nothing follows the share of the run
        num_evaluations=0,
    )
    longer = config.replace(total_timesteps=640)
    run_tiny(config, out=tmp_path)
    state = purerl.load_run(tmp_path).state
    extended = run_tiny(longer, out=tmp_path, resume=True, extend=True)
    slots = [jax.tree.leaves(x.buffer)[0].shape[1] for x in (state, extended.state)]
    assert slots == [192, 240]
    assert_same_bits(extended.state, run_tiny(longer).state)
    loaded = purerl.load_run(tmp_path)
    assert_same_bits(loaded.state, extended.state)
