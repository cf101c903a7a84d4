"""Devices as files, and what training would take on them."""

import re

import jax
import jax.numpy as jnp
import pytest
import yaml

from purerl import ConfigError
from purerl.cli import main
from purerl.contrib.hardware import estimate
from purerl.contrib.hardware.estimate import (
    NUMBERS,
    Device,
    Work,
    load_device,
    names,
    total,
    work_of,
)
from purerl.execution.memory import MemoryModel
from purerl.train import bind
from tests.helpers import tiny_config

ROUND = Device("round", 1e9, 1e12, 1e13, 2.0, dict.fromkeys(NUMBERS, "made up"))


@pytest.mark.parametrize("name", ["h200", "h100", "a100", "rtx4090"])
def test_every_number_of_a_device_has_a_source(name):
    assert name in names()
    device = load_device(name)
    assert set(device.sources) == set(NUMBERS)
    assert 20e9 < device.memory < 1e12 and 1 <= device.microseconds_per_kernel <= 5


def description(**changes):
    fields = dict.fromkeys(NUMBERS, 1.0) | {"sources": dict.fromkeys(NUMBERS, "x")}
    return fields | changes


@pytest.mark.parametrize(
    ("text", "fragment"),
    [
        (None, "must be one of a100, h100, h200, rtx4090 or a YAML file"),
        ("a: [", "must hold a number for each"),
        (yaml.safe_dump(description(memory=-1)), "memory, .* must be positive numbers"),
    ],
)
def test_a_bad_description_gets_a_sentence(text, fragment, tmp_path):
    path = tmp_path / "mine.yaml"
    if text is not None:
        path.write_text(text)
    with pytest.raises(ConfigError, match=fragment):
        load_device(path)


def made(agents, lanes):
    work = Work(kernels=1e6, flops=3e9, bytes=3e8)
    memory = MemoryModel(state=1e3, working=1e4, fixed=1e6)
    steps = agents * 1_000
    return estimate.Estimate(ROUND, agents, steps, lanes, work, memory, 1e9)


def test_time_is_kernels_and_arithmetic_and_bytes():
    # 1e6 kernels of 2 us; 100 x 3e9 FLOP at 9e12 a second; 100 x 3e8 bytes at 9e11.
    one = made(100, 100)
    assert (one.blocks, one.kernel_seconds) == (1, pytest.approx(2.0))
    assert one.flop_seconds == pytest.approx(1 / 30)
    assert one.byte_seconds == pytest.approx(1 / 30)
    assert one.seconds == pytest.approx(2 + 2 / 30)
    # Two blocks wait for the kernels twice; 28 lanes only fill the second one.
    two = made(100, 64)
    assert two.kernel_seconds == pytest.approx(4.0)
    assert two.flop_seconds == pytest.approx(1.28 / 30)


def test_lanes_follow_the_memory_of_the_device():
    bound = bind(tiny_config())
    ample = ROUND._replace(memory=1e12)
    found = estimate.estimate(bound, 2_048, 2, ample)
    assert (found.lanes, found.blocks) == (2_048, 1)
    # 20 updates of 32 steps each.
    assert found.env_steps == 2_048 * 640
    tight = ROUND._replace(memory=found.memory.block(2_048) / 2)
    narrow = estimate.estimate(bound, 2_048, 2, tight)
    assert narrow.lanes < 1_024
    assert narrow.memory.block(narrow.lanes) <= narrow.limit
    assert narrow.kernel_seconds == pytest.approx(narrow.blocks * found.kernel_seconds)
    with pytest.raises(ConfigError, match="a block of 2,048 lanes needs"):
        estimate.estimate(bound, 2_048, 2, tight, lanes=2_048)
    with pytest.raises(ConfigError, match="may take 600 B of round"):
        estimate.estimate(bound, 1, 2, ROUND._replace(memory=1e3))


TINY = [
    *("--total-timesteps", "640", "--num-envs", "2", "--num-steps", "16"),
    *("--num-epochs", "2", "--num-minibatches", "2", "--hidden-sizes", "8"),
]


def test_the_command_says_that_it_is_an_estimate_and_how(capsys):
    words = ["plan", *TINY, "--seeds", "2048", "--device", "h200"]
    assert main(words) == 0
    out = capsys.readouterr().out
    assert "2,048 agents, CartPole-v1, on NVIDIA H200 SXM: an estimate" in out
    assert "1 block of 2,048 lanes" in out and "counted in the traced" in out
    assert re.search(r"kernels +[\d.]+k that follow one another, 1.5 µs each", out)
    assert re.search(r"about \d+:\d\d of training there: 1.31M environment", out)
    assert "NVIDIA H200 datasheet, 4.8 TB/s" in out


def test_an_evolution_sums_its_generations(capsys):
    words = ["evolve", *TINY, "--evolve", "value_loss", "--value-loss", "MLPValueLoss"]
    words += ["--population", "8", "--rollouts", "4", "--generations", "1000"]
    assert main([*words, "--dry-run", "--device", "h200"]) == 0
    out = capsys.readouterr().out
    assert "32 agents, CartPole-v1, on NVIDIA H200 SXM" in out
    assert re.search(r"about (\d+:)?\d+:\d\d in all; 1,000 generations, for", out)


@pytest.mark.parametrize(
    ("words", "fragment"),
    [
        (["plan", "--device", "h2000"], "device must be one of"),
        (["train", "--device", "h200"], "is for a plan: add --dry-run"),
    ],
)
def test_the_command_refuses_in_a_sentence(words, fragment, capsys):
    assert main([*words, *TINY]) == 2
    assert fragment in capsys.readouterr().err


# What programs do: kernels, arithmetic and bytes, against counting by hand.

F32 = 4


def work(function, *shapes):
    arrays = [jax.ShapeDtypeStruct(shape, jnp.float32) for shape in shapes]
    return work_of(jax.make_jaxpr(function)(*arrays).jaxpr)


def test_a_product_is_one_kernel():
    found = work(lambda x, w: x @ w, (128, 64), (64, 32))
    moved = F32 * (128 * 64 + 64 * 32 + 128 * 32)
    assert found == Work(1, 2 * 128 * 64 * 32, moved)


def test_what_follows_a_product_is_fused_and_written_once():
    found = work(lambda x, w: jnp.tanh(x @ w) * 2.0 + 1.0, (8, 4), (4, 2))
    assert found.kernels == 1
    assert found.flops == 2 * 8 * 4 * 2 + 3 * 8 * 2
    # The product and the last result; what lies between them stays in the kernel.
    assert found.bytes == F32 * (8 * 4 + 4 * 2 + 8 * 2) + F32 * 8 * 2


def test_a_product_that_is_written_as_sums_reads_its_factors():
    found = work(lambda x, w: (x[:, None, :] * w.T[None]).sum(-1), (4, 64), (64, 32))
    assert found.kernels == 1
    assert found.bytes == F32 * (4 * 64 + 64 * 32 + 4 * 32)
    # What is not multiplied there is read as it was written.
    assert work(lambda x: jnp.exp(x).sum(-1), (4, 64)).bytes == F32 * (2 * 4 * 64 + 4)
    # Two factors as large as their product are computed there with it.
    found = work(lambda x, y: (jnp.exp(x) * jnp.tanh(y)).sum(-1), (4, 64), (4, 64))
    assert found.bytes == F32 * (2 * 4 * 64 + 4)


def test_loops_count_their_turns():
    def scan(x):
        return jax.lax.scan(lambda y, _: (y @ y, y.sum()), x, None, 10)

    one = 2 * 4**3 + 4**2
    found = work(scan, (4, 4))
    # A product, a sum, the counter, a stacked output; the carry is one array.
    assert found.kernels == pytest.approx(10 * (1 + 1 + 1 + 1 + 0.6))
    assert found.flops == 10 * one


def test_one_branch_runs():
    def branch(x):
        return jax.lax.cond(x[0, 0] > 0, lambda y: y @ y @ y, lambda y: y, x)

    assert work(branch, (4, 4)).flops == pytest.approx(2 * 2 * 4**3, abs=10)


def test_writing_a_part_moves_that_part():
    def write(buffer, row):
        return jax.lax.dynamic_update_slice(buffer, row, (3, 0))

    assert work(write, (1_000, 8), (1, 8)).bytes == 2 * F32 * 8


def test_a_convolution():
    def convolve(x, w):
        return jax.lax.conv(x, w, (1, 1), "SAME")

    # 10 x 10 places, 16 results each, of 4 channels and 3 x 3 places.
    found = work(convolve, (1, 4, 10, 10), (16, 4, 3, 3))
    assert found.flops == 2 * 100 * 16 * 4 * 9


def test_no_work_and_sums():
    assert total([]) == Work() == work(lambda x: x, (3,))
    assert total([Work(1, 2, 3), Work(1, 1, 1)]).times(2) == Work(4, 6, 8)
