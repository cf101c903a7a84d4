"""What programs do: kernels, arithmetic and bytes, against counting by hand."""

import jax
import jax.numpy as jnp
import pytest

from purerl.contrib.hardware.estimate import Work, total, work_of

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
