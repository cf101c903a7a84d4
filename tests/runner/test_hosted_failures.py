"""An environment on the host that fails: what was learned is saved, and it is said."""

import jax
import numpy as np
import pytest

import purerl
from purerl.execution import hosted
from purerl.execution.hosted import HostedCohort, HostedProgram
from purerl.runner.rows import read_rows
from purerl.train import bind
from tests.helpers import assert_same_bits, slow_but
from tests.runner import hosted_tasks
from tests.runner.hosted_tasks import BROKEN, Broken

SEEDS, UPDATES = (4, 7), 5
SHARED = {
    "env": f"gymnasium/{BROKEN}",
    "hidden_sizes": (4,),
    "num_envs": 2,
    "num_evaluations": 0,
    "total_timesteps": UPDATES * 16,
}
# An update of 16 steps: one round in PPO, two in DQN, whose buffer is overwritten.
CONFIGS = {
    "ppo": purerl.PPOConfig(num_steps=8, num_minibatches=2, num_epochs=1, **SHARED),
    "dqn": purerl.DQNConfig(
        num_steps=4,
        rounds_per_update=2,
        buffer_size=24,
        learning_starts=8,
        batch_size=4,
        prioritised=True,
        n_step=2,
        **SHARED,
    ),
}
STEPS = 16 * len(SEEDS)  # of all agents in an update


@pytest.fixture(autouse=True)
def broken(monkeypatch):
    hosted_tasks.register()
    monkeypatch.setattr(Broken, "left", np.inf)


def run(config, out, **options):
    return purerl.run(config, seeds=SEEDS, out=out, progress=False, **options)


def states_after(config, updates):
    """The states after some updates that nothing disturbed."""
    Broken.left = np.inf
    keys = jax.numpy.stack([jax.random.key(seed) for seed in SEEDS])
    cohort = HostedCohort(HostedProgram(bind(config, on_host=True)), keys, 1)
    cohort.init()
    assert [segment.end for segment in cohort.segments(updates)][-1] == updates
    states = cohort.gather()
    cohort.close()
    return states


@pytest.mark.parametrize("name", slow_but(CONFIGS, "dqn"))
@pytest.mark.slow(optimised=False)
def test_the_last_update_is_saved_and_the_way_on_is_told(name, tmp_path):
    """The third update fails in the second agent, when the first has made its own."""
    config = CONFIGS[name]
    Broken.left = 2 * STEPS + 16 + 13
    with pytest.raises(RuntimeError, match="the simulator has crashed") as caught:
        run(config, tmp_path)
    said = "\n".join(caught.value.__notes__)
    assert f"the agent of seed 7 made update 3 in gymnasium/{BROKEN}" in said
    assert f"update 2 is saved. Go on with: purerl train --resume {tmp_path}" in said
    Broken.left = np.inf  # To make an environment steps it once.
    saved = purerl.load_run(tmp_path)
    assert saved.update == 2
    assert_same_bits(saved.state, states_after(config, 2))
    rows = read_rows(tmp_path / "metrics")["train"]
    assert [row["update"] for row in rows if row["seed"] == 7] == [1, 2]

    result = run(config, tmp_path, resume=True)
    assert result.finished and result.state.update.tolist() == [UPDATES, UPDATES]
    assert result.metrics["update"].tolist() == [[1, 2, 3, 4, 5]] * 2


@pytest.mark.slow(optimised=False)
def test_a_failure_before_the_first_update_and_without_a_folder(tmp_path):
    for out in (tmp_path / "run", None):
        Broken.left = 3
        with pytest.raises(RuntimeError) as caught:
            run(CONFIGS["ppo"], out)
        first, second = caught.value.__notes__
        assert "seed 4 made update 1" in first and "no update was saved" in second


@pytest.mark.slow
def test_a_state_too_large_to_keep_goes_on_from_the_last_checkpoint(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(hosted, "_MOST_KEPT", 100)
    Broken.left = 3 * STEPS + 16 + 3
    with pytest.raises(RuntimeError) as caught:
        run(CONFIGS["dqn"], tmp_path, segment_updates=2, checkpoint_seconds=0.0)
    assert "made update 4" in caught.value.__notes__[0]
    assert "update 2 is saved. Go on" in caught.value.__notes__[1]
    Broken.left = np.inf
    assert purerl.load_run(tmp_path).update == 2


@pytest.mark.slow
def test_a_failure_within_a_segment_leaves_its_beginning(tmp_path):
    Broken.left = 2 * STEPS + 2 * 16 + 3
    with pytest.raises(RuntimeError) as caught:
        run(CONFIGS["ppo"], tmp_path, segment_updates=2)
    assert "seed 7 made update 3" in caught.value.__notes__[0]
    Broken.left = np.inf
    assert_same_bits(purerl.load_run(tmp_path).state, states_after(CONFIGS["ppo"], 2))
