"""Whatever stands in a config is trained, or refused by a `ConfigError`: never raw.

Random configs of every algorithm, of which many fields are drawn at once, and single
changes of one field of a small config that trains. Each is bound, as `make_train` does;
then an agent is made, and of random configs an update too, in shapes alone. One part:
`pytest -m slow tests/contracts/test_random_configs.py -k "changes and part-03"`.
"""

import contextlib
import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import purerl
from purerl import losses, optimisers, schedules
from purerl.config import ConfigError, is_number, validate_field
from purerl.losses import SquaredError
from purerl.randomisation import Uniform
from purerl.train import bind

from .test_algorithms import SMALL, small

pytestmark = pytest.mark.slow

CONFIGS, CHANGES, PARTS = 2_000, 15_000, 20
SHARE = 0.15  # of the fields that a random config changes

TINY = np.finfo(np.float32).smallest_subnormal
WRONG = (None, "", "abc", "auto", "1e-3", True, (), {}, [1, 2], object(), dict, abs)
NUMBERS = (
    *(0.0, 0.5, 1.0, -1.0, 2.0, 1e-3, 0.99, 1.0 - 1e-12, 1.0 + 1e-12, 1e-320, TINY),
    *(1e39, 1e300, -1e300, 10**400, np.nan, np.inf, -np.inf, 3, 1j),
    *(np.float32(0.3), np.float64(0.3), jnp.float32(0.3), np.int64(1)),
    *(np.array([0.1, 0.2]), jnp.zeros(()), jnp.bfloat16(0.5), np.bool_(True)),
    *(schedules.Linear(1e-3, 0.0), schedules.Linear(-1.0, 1.0), schedules.Share()),
    schedules.Piecewise((1e-3, 1e-4), (0.5,)),
    schedules.WarmUp(0.05, schedules.Cosine(1e-3)),
    *(schedules.Linear, schedules.Constant(np.nan), schedules.Constant("a")),
    schedules.Linear(schedules.Share(), 0.0),
)
COUNTS = (
    *(-1, 0, 1, 2, 3, 4, 5, 7, 8, 16, 32, 64, 100, 1_000, 10**6),
    *(2**31 - 1, 2**31, 2**32, 2**63, 10**30, 1.5, 4.0, 1e3, np.nan, np.inf),
    *(np.int64(4), np.int32(2), jnp.int32(4), np.array([1, 2]), schedules.Share()),
)
TUPLES = (
    *((8,), (4, 4), [4, 4], (0,), (-1,), (1.5,), (2**31,), (True,), ((8,),), 8),
    *(("torso",), ("actor", "critic.Dense_0"), ("nothing",), ("",), "torso", ("a", 1)),
    *(("FrameStack(2)",), ("TimeObservation",), ("FrameStack(0)",), ("FrameStack(",)),
    *(("PreviousActionReward",), ("ScaleReward(1e300)",), ("NoWrapper",)),
)
PARTS_OF_CONFIGS = (
    *(optimisers.Adam(), optimisers.Adam, optimisers.SGD(momentum=2.0)),
    *(optimisers.Adam(b1=1.0), optimisers.Adam(eps=0.0), optimisers.Adam("a", None)),
    optimisers.Adam(b1=schedules.Linear(0.5, 0.9)),
    *(optimisers.OpenOptimiser.make(), optimisers.LearnedOptimiser.make()),
    *(SquaredError(), SquaredError, losses.HuberError(1.0), losses.HuberError(-1.0)),
    *(losses.ClipDrift(), losses.ClipDrift(-0.1), losses.ClipDrift("a")),
    *("adam", "Adam", "Adam()", "HuberError(2)", {"type": "Adam"}, {"type": "evil"}),
    *(lambda x: x, jnp.tanh, purerl.PPOConfig(), purerl.PPOConfig),
)
ENVIRONMENTS = (
    *("CartPole-v1", "Pendulum-v1", "probe/continuous", "GridWorld-v0", "MemoryChain"),
    *("nothing", "", None, 3, abs, "gymnax/CartPole-v1", "brax/", "gymnasium/", "a/b"),
)
ENV_PARAMS = (
    *({"length": 0.3}, {"length": "a"}, {"nothing": 1.0}, {3: 4}, {"length": np.nan}),
    *({"length": 1e-320}, {"length": jnp.ones(3)}, {"max_steps_in_episode": 0}),
    *({"length": schedules.Share()}, {"length": {"a": 1}}, [1], "length", 4),
    {"length": Uniform(0.3, 0.6)},
)


def choices(field):
    """Words that a field's check names."""
    check = field.metadata.get("check")
    words = getattr(check, "words", "")
    head, _, tail = words.partition("must be one of ")
    return tuple(word.strip(" .'") for word in tail.split(",")) if not head else ()


def pool(field):
    """What a field may be given, by its kind: what fits, and what does not."""
    if field.name == "env":
        return ENVIRONMENTS
    if field.name in ("env_params", "env_kwargs"):
        return (*ENV_PARAMS, *WRONG)
    kind = getattr(field.type, "__name__", str(field.type))
    if is_number(field):
        return (*NUMBERS, *NUMBERS, *WRONG)
    if kind == "int":
        return (*COUNTS, *COUNTS, *WRONG)
    if kind == "bool":
        return (True, False, True, False, *WRONG, 1, np.bool_(True))
    if kind == "str":
        return (*choices(field), *choices(field), *WRONG, 3)
    if kind.startswith("tuple"):
        return (*TUPLES, *WRONG)
    return (*PARTS_OF_CONFIGS, *WRONG, *TUPLES[:3])


def draw(rng, values):
    return values[rng.integers(len(values))]


def fitting(field):
    """Of what a field may be given, that which it takes when looked at by itself."""
    found = []
    for value in pool(field):
        with contextlib.suppress(ConfigError):
            validate_field(field, value)
            found.append(value)
    return found or pool(field)


def look(config_of, whole):
    """Bind and make an agent, in shapes: how it ended, with the error if it was raw."""
    try:
        bound = bind(config_of())
        algorithm = bound.algorithm(bound.config)
        state = jax.eval_shape(algorithm.init, jax.random.key(0))
        if whole:
            jax.eval_shape(algorithm.step, state)
    except ConfigError as error:
        assert str(error), "a sentence"
        return "refused"
    return "built"


def judge(cases, whole):
    """Look at cases by name; none may be raw, and neither outcome may be missing."""
    counts, raw = {"built": 0, "refused": 0}, []
    for named, config_of in cases:
        try:
            counts[look(config_of, whole)] += 1
        except Exception as error:  # What is raw is what is looked for.
            first = str(error).splitlines()[:1]
            raw.append(f"{named}: {type(error).__name__}: {first}"[:400])
    assert not raw, f"{len(raw)} raw of {counts}:\n" + "\n".join(raw)
    assert all(counts.values()), counts


def random_configs(part):
    """Names and makers of this part's random configs."""
    rng = np.random.default_rng((1, part))
    for _ in range(CONFIGS // PARTS):
        name = draw(rng, tuple(SMALL))
        fields = [f for f in dataclasses.fields(small(name)) if f.name != "env"]
        chosen = [f for f in fields if rng.random() < SHARE * rng.random()]
        changes = {
            field.name: draw(
                rng, pool(field) if rng.random() < 0.05 else fitting(field)
            )
            for field in chosen
        }
        if rng.random() < 0.1:
            changes["env"] = draw(rng, ENVIRONMENTS)
        yield f"{name} {changes}", lambda n=name, c=changes: small(n, **c)


def single_changes(part):
    """Names and makers of this part's changes of one field."""
    rng = np.random.default_rng((2, part))
    for _ in range(CHANGES // PARTS):
        name = draw(rng, tuple(SMALL))
        field = draw(rng, dataclasses.fields(small(name)))
        value = draw(rng, pool(field))
        changes = {field.name: value}
        yield f"{name} {changes}", lambda n=name, c=changes: small(n, **c)


@pytest.mark.parametrize("part", range(PARTS), ids="part-{:02d}".format)
def test_random_configs_are_trained_or_refused(part):
    judge(random_configs(part), whole=True)


@pytest.mark.parametrize("part", range(PARTS), ids="part-{:02d}".format)
def test_single_changes_are_trained_or_refused(part):
    judge(single_changes(part), whole=False)
