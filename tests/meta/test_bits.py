"""At one lane width nothing else changes a bit: chunks, devices, kills, processes."""

import os
import socket
import subprocess
import sys
import textwrap

import jax
import numpy as np
import pytest

import purerl
from purerl.scale.devices import make_workers
from tests.helpers import assert_same_bits, trained

from .conftest import GENERATIONS, PARTS, POPULATION, SETTINGS, evolve, outcome, start

pytestmark = pytest.mark.optimised(slow=True)

CHILD = """
    import sys
    import jax
    cache, port, process, folder, part = sys.argv[1:]
    jax.config.update("jax_compilation_cache_dir", cache)
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    jax.config.update("jax_num_cpu_devices", 2)
    from purerl.scale import hosts
    if port != "0":
        hosts.join("localhost:" + port, 2, int(process))
    import purerl
    from tests.meta.conftest import PARTS, evolve
    asked = PARTS[part]()
    result = evolve(*asked, out=folder, checkpoint_seconds=0.0, snapshot_every=1)
    print(process, *result.vector.tolist(), *result.history["fitness"].ravel())
"""


def start_child(folder, port=0, process=0, part="loss"):
    cache = jax.config.jax_compilation_cache_dir
    arguments = [str(cache), str(port), str(process), str(folder), part]
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(CHILD), *arguments],
        cwd=os.getcwd(),
        stdout=subprocess.PIPE,
        text=True,
    )


def test_members_differ_and_something_is_learned(whole):
    assert whole.finished and whole.done == GENERATIONS
    fitness = whole.history["fitness"]
    assert fitness.shape == (GENERATIONS, POPULATION)
    assert np.isfinite(fitness).all()
    assert (fitness.std(1) > 0).all()
    assert whole.vector.any()


@pytest.mark.slow
def test_one_worker_is_two(whole, one_core):
    assert_same_bits(outcome(evolve()), outcome(whole))


@pytest.mark.slow
def test_one_device_is_two(whole, monkeypatch):
    devices = jax.local_devices()
    assert len(devices) == 2
    workers = make_workers(devices)
    monkeypatch.setattr("purerl.meta.training.make_workers", lambda: workers)
    assert_same_bits(outcome(evolve()), outcome(whole))


@pytest.fixture(scope="module", params=PARTS)
def evolved(request, whole):
    """A part by name, and its evolution in one process."""
    part = request.param
    return part, whole if part == "loss" else evolve(*PARTS[part]())


@pytest.mark.slow
def test_two_processes_that_share_a_folder_are_one(evolved, tmp_path):
    (part, whole), folder = evolved, tmp_path
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    children = [start_child(folder, port, process, part) for process in range(2)]
    printed = [child.communicate(timeout=300)[0] for child in children]
    assert [child.returncode for child in children] == [0, 0]
    expected = [*whole.vector.tolist(), *whole.history["fitness"].ravel().tolist()]
    for process, text in enumerate(printed):
        (line,) = [x for x in text.splitlines() if x.startswith(f"{process} ")]
        np.testing.assert_array_equal([float(x) for x in line.split()[1:]], expected)
    assert_same_bits(outcome(purerl.load_evolution(folder)), outcome(whole))


def test_members_are_plain_training_with_their_overrides(whole):
    """A member's fitness is that of `purerl.pmap(train)` on its key and numbers."""
    from purerl.execution.cohort import make_cohort
    from purerl.execution.programs import crossed
    from purerl.meta import training as runs
    from purerl.meta.fitness import Accumulator, inner_config

    key = jax.random.key(SETTINGS["seed"])
    optimiser = whole._optimiser
    ask, _ = runs.strategy_keys(key, 0)
    _, overrides, _ = optimiser.ask(ask, optimiser.init(key))
    keys = runs.rollout_keys(key, 0, 2)
    members = crossed(keys, overrides, np.arange(12))
    config = inner_config(whole.config, "training_curve")
    bound = purerl.train.bind(config)
    cohort = make_cohort(bound, members, SETTINGS["lanes"], 10)
    total = Accumulator("training_curve", 12, 20)
    trained(cohort, total.add)
    scores = total.result().reshape(6, 2).mean(1, dtype=float).astype(np.float32)
    np.testing.assert_array_equal(scores, whole._state.fitness[0])


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"population": 8}, "population is 6 there and 8 here"),
        ({"strategy": "open-es(sigma=0.4)"}, "strategy is"),
        ({"lanes": 2}, "lanes is 4 there and 2 here"),
        ({"evolved": "learning_rate"}, "evolve is"),
        # The vector's numbers would belong to other fields.
        ({"evolved": "learning_rate,policy_loss"}, "order of evolve is"),
    ],
)
def test_other_settings_are_refused_with_the_difference(folder, changes, words):
    sentence = f"(?s)holds another evolution.*{words}"
    with pytest.raises(purerl.ConfigError, match=sentence):
        evolve(out=folder, **changes)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A finished evolution of one generation."""
    path = tmp_path_factory.mktemp("one")
    evolve(out=path, generations=1)
    return path


def test_what_was_learned_stands_in_the_folder(folder):
    loss = purerl.load_evolution(folder).loss
    assert loss != start().policy_loss
    assert_same_bits(purerl.load_part(folder / "policy_loss.npz"), loss)
    learned = purerl.serialise.from_yaml(folder / "learned.yaml")
    assert_same_bits(learned.policy_loss, loss)
