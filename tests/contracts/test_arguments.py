"""Arguments that cannot be are answered in a sentence, before anything is traced."""

import jax
import pytest

import purerl
from tests.helpers import tiny_config

AXES = {"learning_rate": [1e-3, 1e-4]}
CALLS = {
    "run": lambda config: purerl.run(config, progress=False),
    "sweep": lambda config: purerl.sweep(config, AXES, progress=False),
    "plan": lambda config: purerl.plan(config, AXES),
    "pbt": lambda config: purerl.pbt(config, AXES, progress=False),
    "halving": lambda config: purerl.halving(config, AXES, progress=False),
    "tune": lambda config: purerl.tune(config, AXES, trials=1, progress=False),
    "evolve": lambda config: purerl.evolve(config, "learning_rate", progress=False),
    "compare": lambda config: purerl.compare(
        config, {"a": {"gamma": 0.9}}, progress=False
    ),
}


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("config", [3, {"env": "CartPole-v1"}])
def test_what_is_no_config_is_refused(call, config):
    name = type(config).__name__
    with pytest.raises(purerl.ConfigError, match=rf"config must be one .*got {name}"):
        CALLS[call](config)


@pytest.mark.parametrize("call", CALLS)
def test_a_call_inside_a_trace_is_refused(call):
    sentence = r"compiles by itself, and cannot be called inside jax\.jit"
    with pytest.raises(purerl.ConfigError, match=sentence):
        jax.jit(lambda x: (CALLS[call](tiny_config(learning_rate=x)), x)[1])(1.0)


@pytest.mark.parametrize("call", [purerl.sweep, purerl.plan, purerl.pbt, purerl.tune])
@pytest.mark.parametrize("axes", [3, [1], {1: [0.1, 0.2]}])
def test_what_is_no_mapping_of_axes_is_refused(call, axes):
    with pytest.raises(purerl.ConfigError, match=r"axes must map names of fields"):
        call(tiny_config(), axes)


LOADERS = (
    purerl.load,
    purerl.load_run,
    purerl.load_sweep,
    purerl.load_search,
    purerl.load_tune,
    purerl.load_evolution,
    purerl.load_comparison,
)


@pytest.mark.parametrize("load", LOADERS)
def test_a_folder_that_is_not_there_is_named(load, tmp_path):
    with pytest.raises(purerl.ConfigError, match=r"there is no folder .*missing"):
        load(tmp_path / "missing")
    with pytest.raises(purerl.ConfigError, match="folder must be the path of a folder"):
        load(3)
    with pytest.raises(purerl.ConfigError, match=r"cannot look into .*n \(File name"):
        load(tmp_path / ("n" * 300))


def test_a_folder_that_nobody_can_make_is_refused_in_a_sentence(tmp_path):
    for resume in (False, True, "auto"):
        for out, why in (
            (tmp_path / ("n" * 300), "out: cannot look into .*too long"),
            ("a\0b", "out must be the path of a folder"),
        ):
            with pytest.raises(purerl.ConfigError, match=why):
                purerl.run(tiny_config(), out=out, resume=resume)


@pytest.mark.parametrize("key", [jax.random.PRNGKey(0), 3])
def test_what_is_no_key_is_told_by_its_type_inside_jit_too(key):
    train = jax.jit(purerl.make_train(tiny_config()))
    with pytest.raises(purerl.ConfigError, match=r"got u?int32\[2?\]; wrap an old"):
        train(key)


def evolve(**options):
    return purerl.evolve(tiny_config(), "learning_rate", **options)


NUMBERS = [
    *((evolve, name) for name in ("population", "rollouts", "generations")),
    (lambda **options: purerl.pbt(tiny_config(), AXES, **options), "population"),
]
SEEDED = [
    evolve,
    lambda **options: purerl.compare(tiny_config(), {"a": {}}, **options),
    lambda **options: purerl.tune(tiny_config(), AXES, **options),
]


@pytest.mark.parametrize("number", [None, 0, True, 2.5, "two"])
@pytest.mark.parametrize(("call", "name"), NUMBERS)
def test_a_number_that_must_be_given_is_a_positive_whole_one(call, name, number):
    with pytest.raises(purerl.ConfigError, match=f"{name} must be a positive whole"):
        call(**{name: number})


@pytest.mark.parametrize("seed", [-1, 2**32, True, 1.0, None])
@pytest.mark.parametrize("call", SEEDED)
def test_what_is_no_seed_is_refused(call, seed):
    with pytest.raises(purerl.ConfigError, match="seed must be a whole number from"):
        call(seed=seed)


TOOLS = (
    *(purerl.run, purerl.sweep, purerl.plan, purerl.pbt, purerl.halving, purerl.tune),
    *(purerl.evolve, purerl.compare, purerl.compare_losses, purerl.train_schedules),
    purerl.drive,
)


@pytest.mark.parametrize("tool", TOOLS)
def test_an_unknown_keyword_of_a_tool_is_named_with_the_tool(tool):
    sentence = rf"^purerl\.{tool.__name__}\(\) got an .* 'progres'.*mean 'progress'"
    with pytest.raises(TypeError, match=sentence):
        tool(tiny_config(), progres=1)


@pytest.mark.parametrize("tool", TOOLS)
def test_a_missing_or_surplus_argument_of_a_tool_is_told_with_the_tool(tool):
    name = rf"^purerl\.{tool.__name__}\(\): "
    with pytest.raises(TypeError, match=name + "missing a required argument"):
        tool()
    with pytest.raises(TypeError, match=name + "too many positional arguments"):
        tool(*range(20))
