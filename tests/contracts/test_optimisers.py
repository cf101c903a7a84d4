"""What every registered optimiser keeps: optax's numbers, text, every algorithm."""

import itertools
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
import optax.contrib
import pytest
from flax import struct

import purerl
from purerl import optimisers, serialise
from purerl.accelerator.kernels import traced_for
from purerl.algorithms import actor_critic, config_class
from purerl.algorithms.checks import check_optimisers
from purerl.config import ConfigError, field_names
from purerl.learning import optimiser
from purerl.train import bind
from tests.contracts.test_algorithms import SMALL, small
from tests.helpers import assert_close, assert_same_bits, lane, tiny_config

RATE, STEPS = 0.01, 8  # RAdam is rectified from its sixth step on


class Case(NamedTuple):
    """An optimiser with numbers of its own, what optax makes of them, and a number."""

    ours: object
    theirs: optax.GradientTransformation | None
    number: str


# A row buys the whole contract. The last is a number that may be vmapped.
CASES = {
    "Adam": Case(
        optimisers.Adam(0.8, 0.95, 1e-3), optax.adam(RATE, 0.8, 0.95, 1e-3), "b1"
    ),
    "AdamW": Case(
        optimisers.AdamW(0.8, 0.95, 1e-3, 0.1),
        optax.adamw(RATE, 0.8, 0.95, 1e-3, weight_decay=0.1),
        "weight_decay",
    ),
    "SGD": Case(
        optimisers.SGD(0.7, nesterov=True),
        optax.sgd(RATE, 0.7, nesterov=True),
        "momentum",
    ),
    "RMSProp": Case(
        optimisers.RMSProp(0.8, 1e-3, centered=True),
        optax.rmsprop(RATE, 0.8, 1e-3, centered=True),
        "decay",
    ),
    "RAdam": Case(
        optimisers.RAdam(0.8, 0.95, 1e-3), optax.radam(RATE, 0.8, 0.95, 1e-3), "b1"
    ),
    "Lion": Case(
        optimisers.Lion(0.8, 0.95, 0.1),
        optax.lion(RATE, 0.8, 0.95, weight_decay=0.1),
        "b1",
    ),
    "Muon": Case(
        optimisers.Muon(0.9, 0.8, 0.95, 1e-3, 0.1, nesterov=False),
        optax.contrib.muon(
            RATE,
            beta=0.9,
            eps=1e-3,
            weight_decay=0.1,
            nesterov=False,
            adam_b1=0.8,
            adam_b2=0.95,
        ),
        "momentum",
    ),
    "LearnedOptimiser": Case(
        optimisers.LearnedOptimiser.make(4, b1=0.8, b2=0.95, eps=1e-3),
        optax.adam(RATE, 0.8, 0.95, 1e-3),
        "b1",
    ),
    # Nothing of optax's: tests/contrib/test_open.py has a reference.
    "OpenOptimiser": Case(optimisers.OpenOptimiser.make(4, 3), None, "max_norm"),
}
NETWORKS = ("LearnedOptimiser", "OpenOptimiser")
PARAMS = {"bias": jnp.arange(3.0), "kernel": jnp.arange(6.0).reshape(2, 3) - 2.0}


def course(transformation, params=PARAMS):
    """Parameters after some steps on gradients that change with them."""

    def step(carry, number):
        params, state = carry
        grads = jax.tree.map(lambda x: jnp.cos(x + number), params)
        updates, state = transformation.update(grads, state, params)
        return (jax.tree.map(jnp.add, params, updates), state), None

    start = params, transformation.init(params)
    return jax.lax.scan(step, start, jnp.arange(STEPS, dtype=jnp.float32))[0][0]


def test_every_registered_optimiser_is_tested_here():
    assert set(CASES) == set(optimisers.OPTIMISERS)


@pytest.mark.parametrize("name", CASES)
def test_an_optimiser_is_optaxs_and_its_numbers_vmap(name):
    ours, theirs, number = CASES[name]
    theirs = theirs or ours(RATE)  # type: ignore[operator]
    values = jnp.array([0.3, getattr(ours, number)])

    expected = jax.jit(partial(course, theirs))()

    def one(value, rate):
        return course(ours.replace(**{number: value})(rate))  # type: ignore[attr-defined]

    for platform in ("cpu", "cuda"):
        with traced_for(platform):
            # A function of its own, as JAX keeps what it has traced.
            several = jax.jit(jax.vmap(lambda *numbers: one(*numbers)))
            moved = several(values, jnp.full(2, RATE))
        first, second = (lane(moved, index) for index in (0, 1))
        assert_close(second, expected, rtol=1e-5, atol=1e-6)
        assert float(jnp.abs(first["kernel"] - second["kernel"]).max()) > 1e-5


@pytest.mark.parametrize("name", ["Adam", "AdamW", "RAdam"])
def test_a_state_moves_from_an_accelerator_to_a_cpu(name):
    states = []
    for platform in ("cpu", "cuda"):
        with traced_for(platform):
            transformation = CASES[name].ours(RATE)  # type: ignore[operator]
        state = transformation.init(PARAMS)
        states.append(transformation.update(PARAMS, state, PARAMS)[1])
    assert_same_bits(*states)


@pytest.mark.parametrize("name", ["Adam", "Muon"])
def test_a_flat_vector_moves_as_its_layers_do_and_is_clipped(name):
    ours = CASES[name].ours
    flat, restore = optimiser.flatten(PARAMS)
    layers = optimiser.layers_of(PARAMS)
    moved = course(optimiser.make(ours, RATE, 0.5, layers), flat)
    clipped = optax.chain(optax.clip_by_global_norm(0.5), ours(RATE))  # type: ignore[operator]
    assert_close(restore(moved), course(clipped), rtol=1e-5, atol=1e-6)


def test_muon_moves_a_bias_with_two_axes_by_adam():
    """Attention has such biases; every number moves by the step size at first."""
    layers = {"bias": jnp.ones((4, 4)), "kernel": jnp.ones((4, 4))}
    grads = jax.tree.map(
        lambda x: jax.random.normal(jax.random.key(0), x.shape), layers
    )
    muon = optimisers.Muon(nesterov=False)(0.1)
    moves, _ = muon.update(grads, muon.init(layers), layers)
    np.testing.assert_allclose(moves["bias"], -0.1 * np.sign(grads["bias"]), rtol=1e-3)
    assert np.abs(np.abs(moves["kernel"]) - 0.1).max() > 0.02


@pytest.mark.parametrize("name", CASES)
def test_an_optimiser_survives_dict_text_and_the_older_order(name):
    ours = CASES[name].ours
    config = tiny_config(optimiser=ours)
    again = serialise.from_dict(serialise.to_dict(config))
    if name in NETWORKS:  # Arrays have no one truth: their bits are compared.
        assert_same_bits(again, config)
        assert jax.tree.structure(again) == jax.tree.structure(config)
        assert serialise.part_text(ours) == name
        assert_same_bits(serialise.parse_part(name.lower(), "optimiser"), type(ours)())
        return
    assert again == config
    text = serialise.part_text(ours)
    assert serialise.parse_part(text, "optimiser") == ours
    assert serialise.parse_part(name.lower(), "optimiser") == type(ours)()


def test_actor_critic_and_temperature_move_by_their_own_step_sizes():
    config = purerl.SACConfig(
        learning_rate=0.1,
        optimiser=optimisers.SGD(),
        actor_learning_rate=0.2,
        temperature_learning_rate=0.3,
    )
    names = ("actor", "critics", "log_temperature")
    params = dict.fromkeys(names, jnp.zeros(2))
    state = {n: actor_critic.optimiser_of(config, n).init(params[n]) for n in names}
    grads = dict.fromkeys(names, jnp.array([2.0, -4.0]))
    learner = actor_critic.Learner(params, {}, state)
    moved = actor_critic.descend(config, learner, grads).params
    np.testing.assert_allclose(moved["actor"], [-0.4, 0.8], rtol=1e-6)  # -0.2 g
    np.testing.assert_allclose(moved["critics"], [-0.2, 0.4], rtol=1e-6)
    # Adam's first step, whatever the networks have.
    np.testing.assert_allclose(moved["log_temperature"], [-0.3, 0.3], rtol=1e-5)


BAD = [
    (optimisers.Adam(b1=1.0), "optimiser.b1 must be 0 or"),
    (optimisers.Adam(b2=float("nan")), "optimiser.b2 must be finite"),
    (optimisers.Adam, "the class Adam"),
]


@pytest.mark.parametrize(("chosen", "words"), BAD)
def test_a_bad_optimiser_gets_a_sentence(chosen, words):
    with pytest.raises(ConfigError, match=words):
        purerl.make_train(tiny_config(optimiser=chosen))


def _own(make, **fields):
    """An optimiser of one's own, of a class of its own."""
    names = {"__call__": lambda self, learning_rate: make(learning_rate), **fields}
    return struct.dataclass(type("Own", (), names))()


def _kernels(layers):
    return jax.tree.map(lambda x: x.ndim > 1, layers)


def _by_network(rate):
    def labels(layers):
        return {
            name: jax.tree.map(lambda _, name=name: name, network)
            for name, network in layers.items()
        }

    parts = {"actor": optax.adam(rate), "critic": optax.sgd(rate)}
    return optax.multi_transform(parts, labels)


LOOKS_AT_LAYERS = {
    "kernels": lambda rate: optax.adamw(rate, mask=_kernels),
    "networks": _by_network,
}


@pytest.mark.parametrize("kind", LOOKS_AT_LAYERS)
def test_an_optimiser_sees_layers_unless_it_says_otherwise(kind):
    own = _own(LOOKS_AT_LAYERS[kind])
    check_optimisers(tiny_config(optimiser=own))
    assert optimiser.sees_layers(own)
    flat = _own(optax.adam, needs_layers=False)
    assert not optimiser.sees_layers(flat) and optimiser.sees_layers(_own(optax.adam))
    with pytest.raises(ConfigError, match=r"must return a transformation .* failed on"):
        check_optimisers(tiny_config(optimiser=_own(lambda rate: None)))


@struct.dataclass
class MaskedAdamW(optimisers.AdamW):
    """A variant of a known optimiser, whose decay leaves biases alone."""

    def __call__(self, learning_rate):
        decay = self.weight_decay
        return optax.adamw(learning_rate, weight_decay=decay, mask=_kernels)


def test_a_variant_of_a_known_optimiser_sees_layers_too():
    masked = MaskedAdamW(weight_decay=0.5)
    zeros = jax.tree.map(jnp.zeros_like, PARAMS)
    flat, layers = optimiser.flatten(PARAMS)[0], optimiser.layers_of(PARAMS)
    optim = optimiser.make(masked, RATE, None, layers)
    moves, _ = optim.update(optimiser.flatten(zeros)[0], optim.init(flat), flat)
    moved = layers(moves)
    assert not moved["bias"].any()
    np.testing.assert_allclose(moved["kernel"], -RATE * 0.5 * PARAMS["kernel"])


# Every optimiser in every algorithm, on the quickest of its programs: one update.
LEARNERS = [
    algorithm
    for algorithm in SMALL
    if "optimiser" in field_names(config_class(algorithm.partition("/")[0]))
]
# They see the layers of a network, which here lie side by side or have statistics.
STACKED = ("sac/redq", "sac/tqc", "td3/ensemble", "td3/memory")
REFUSED = [
    *itertools.product(STACKED, ("Muon", *NETWORKS)),
    *(("sac/crossq", name) for name in NETWORKS),
]
PAIRS = [x for x in itertools.product(LEARNERS, CASES) if x not in REFUSED]
QUICK = (("vpg", "Muon"), ("ppo", "LearnedOptimiser"))


@pytest.mark.parametrize(("algorithm", "name"), REFUSED)
def test_an_optimiser_that_cannot_see_the_layers_is_refused(algorithm, name):
    config = small(algorithm, optimiser=CASES[name].ours, num_evaluations=0)
    with pytest.raises(ConfigError, match=rf"must (not be |be False.*){name}"):
        purerl.make_train(config)


@pytest.mark.parametrize(
    ("algorithm", "name"),
    [
        pytest.param(*pair, marks=[] if pair in QUICK else [pytest.mark.slow])
        for pair in PAIRS
    ],
)
def test_every_algorithm_learns_with_every_optimiser(algorithm, name):
    ours, _, number = CASES[name]
    config = small(algorithm, optimiser=ours, num_evaluations=0, learning_rate=1e-2)
    early = {"learning_starts", "random_steps"} & set(field_names(config))
    config = config.replace(**dict.fromkeys(early, 10))
    bound, num_steps = bind(config), 8 if name == "Lion" else 2

    @jax.jit
    @jax.vmap
    def update(value):
        changed = bound.at({f"optimiser.{number}": value})
        made = bound.algorithm(changed)
        before = made.init(jax.random.key(0))
        state, metrics = jax.lax.scan(
            lambda s, _: made.step(s), before, length=num_steps
        )
        return before, state, jax.tree.map(lambda x: x[-1], metrics)

    # Values that differ from the first step on would hide a number that is not read
    # from the state: two steps are taken. The signs of Lion's hide small differences.
    # Gradients may be smaller than 0.3, which a limit of their norm would not notice.
    values = [0.003, 0.9] if number == "max_norm" else [0.3, 0.9]
    before, state, metrics = update(jnp.array(values))
    assert jax.tree.structure(before) == jax.tree.structure(state)
    for x, y in zip(jax.tree.leaves(before), jax.tree.leaves(state), strict=True):
        assert (x.shape, x.dtype) == (y.shape, y.dtype)
    losses = [value for name, value in metrics.items() if name.endswith("loss")]
    assert losses and all(np.isfinite(loss).all() for loss in losses)
    moved = [np.asarray(x) for x in jax.tree.leaves(state.params)]
    assert all(np.isfinite(x).all() for x in moved)
    assert any((x[0] != x[1]).any() for x in moved), "the number moved nothing"
