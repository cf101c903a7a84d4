"""Closed forms of drifts: known ones are found again, and others are come near to."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import purerl
from purerl.contrib.formula import TERMS, evaluate
from purerl.losses import ClipDrift, DPODrift, FormulaDrift, MLPDrift

DRAWS = jax.random.normal(jax.random.key(3), (2, 500))
LOG_RATIO, ADVANTAGE = 0.5 * DRAWS[0], DRAWS[1]


def test_the_default_formula_is_dpos():
    np.testing.assert_allclose(
        FormulaDrift.make()(LOG_RATIO, ADVANTAGE),
        DPODrift()(LOG_RATIO, ADVANTAGE),
        atol=1e-6,
    )


def test_ppos_clip_is_a_formula():
    clip = FormulaDrift.make(
        ("above(r-1)",), ("below(r-1)",), (1,), (0.2,), (1,), (0.2,)
    )
    np.testing.assert_allclose(
        clip(LOG_RATIO, ADVANTAGE), ClipDrift(0.2)(LOG_RATIO, ADVANTAGE), atol=1e-6
    )


@pytest.mark.parametrize("name", TERMS)
def test_every_term_is_flat_at_ratio_one(name):
    value, slope = jax.vmap(
        jax.value_and_grad(lambda x, a: evaluate(name, 0.3, x[None], a[None])[0])
    )(jnp.zeros(3), jnp.array([-2.0, 0.5, 1.0]))
    np.testing.assert_array_equal(value, 0.0)
    np.testing.assert_allclose(slope, 0.0, atol=1e-6)


@pytest.mark.parametrize(
    ("drift", "text"),
    [
        (DPODrift(), "+1 excess((r-1)A; 2))\nA <  0: relu(+1 excess(log(r)A; 0.6))"),
        pytest.param(
            ClipDrift(0.2),
            "+1 above(r-1; 0.2))\nA <  0: relu(+1 below(r-1; 0.2))",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_known_drifts_are_found_again(drift, text):
    found = purerl.distil(drift, max_terms=1, samples=512)
    assert found.drift.formula(2) == f"A >= 0: relu({text}"
    assert found.error < 1e-3
    np.testing.assert_allclose(
        found.drift(LOG_RATIO, ADVANTAGE),
        drift(LOG_RATIO, ADVANTAGE),
        rtol=5e-3,
        atol=5e-3,
    )


@pytest.mark.slow
def test_two_terms_are_told_from_one():
    wanted = FormulaDrift.make(
        ("above(r-1)", "square(log(r)A)"),
        ("below(log(r))",),
        (1.0, 0.5),
        (0.3, 1.0),
        (1.5,),
        (0.15,),
    )
    found = purerl.distil(wanted)
    assert len(found.drift.rise) == 2 and len(found.drift.fall) == 1
    assert found.error < 0.02 < found.rise[0].error
    # Further terms are fitted, and not taken.
    assert [len(side.names) for side in found.rise] == [1, 2, 3]


@pytest.mark.slow
def test_a_network_is_come_near_to():
    network = MLPDrift.create(jax.random.key(5), hidden_size=16, scale=2.0)
    found = purerl.distil(network)
    assert found.error < 0.6
    # A term alone says nearly nothing of it.
    assert found.error < 0.75 * purerl.distil(network, max_terms=1).error


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: purerl.distil(MLPDrift.zeros(4)), "MLPDrift is zero at all samples"),
        (
            lambda: FormulaDrift.make(rise=("cube(r-1)",)),
            r"for each term, got \['cube\(r-1\)'\]",
        ),
    ],
)
def test_what_cannot_be_is_said(call, sentence):
    with pytest.raises(purerl.ConfigError, match=sentence):
        call()
