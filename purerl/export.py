"""Trained policies for programs without purerl: StableHLO, safetensors and ONNX.

The folder that `export_policy` writes holds

policy.stablehlo            the deterministic policy, as `jax.export` serialises it
sampled_policy.stablehlo    the stochastic one, where it is asked for
policy.onnx                 the deterministic one, where that is asked for
weights.safetensors         everything learned and the statistics, by name
policy.json                 spaces, arguments, the config and versions
README.md                   how to use them

The policies are whole: they take observations as the environment gives them, so that
casts and the normalisation of observations are inside, and return actions as the
environment takes them. The parameters are constants in them.
"""

import json
import logging
from collections.abc import Callable
from importlib import metadata, resources
from pathlib import Path
from string import Template
from typing import Any

import jax
import numpy as np
from jax import export

from purerl import serialise
from purerl.acting.environment import bind_params
from purerl.acting.policy import recurrence_of
from purerl.algorithms.own_terms import heads_of, terms_of
from purerl.atomic import write_atomic
from purerl.config import ConfigError, TrainConfig, shown
from purerl.networks.observe import MASK, completed
from purerl.precision import in_32_bits
from purerl.scale.host import to_device
from purerl.train import Bound, bind, check_acts
from purerl.types import Array, PyTree
from purerl.warm_start import check_agent, networks_of

PLATFORMS = ("cpu", "cuda")
_POLICY, _SAMPLED = "policy.stablehlo", "sampled_policy.stablehlo"
_ABOUT = "policy.json"
Rows = tuple[PyTree, ...]


@in_32_bits
def export_policy(
    config: TrainConfig,
    state: PyTree,
    out: str | Path,
    *,
    sampled: bool = False,
    onnx: bool = False,
    batch: int | None = None,
) -> Path:
    """Write the policy of one trained agent for programs that have no purerl.

    JAX alone loads what is written, on a CPU or a GPU: see the `README.md` beside it.
    To write it takes two small packages more, `pip install 'purerl[export]'`.

    Args:
        config: Config with which the agent was trained.
        state: `TrainResult.state` of one agent, or one of `RunResult.state`.
        out: Folder to write; files of an earlier export are replaced.
        sampled: Whether to write the stochastic policy too, which takes a random key.
        onnx: Whether to write the deterministic policy as ONNX too, which takes
            `pip install 'purerl[onnx]'`.
        batch: The number of observations that the policy takes at once; any number
            where not given.

    Returns:
        The folder.

    Raises:
        ConfigError: the state holds several agents or is not of this config, a package
            is not installed, or the policy cannot be exported for any number of
            observations.
    """
    for name, value in {"sampled": sampled, "onnx": onnx}.items():
        if not isinstance(value, bool):
            raise ConfigError(f"{name} must be True or False, got {shown(value)}.")
    save = _safetensors("onnx" if onnx else "export")
    check_agent(state)
    if batch is not None and not (isinstance(batch, int | np.integer) and batch >= 1):
        raise ConfigError(f"batch must be 1 or more observations, got {batch!r}.")
    bound = bind(config, on_host=True, trains=False)
    check_acts(bound, bound.algorithm(bound.config), state)
    state = to_device(state)
    act, sample, rows, words = _functions(bound, state)
    count = export.symbolic_shape("batch")[0] if batch is None else batch
    files = {_POLICY: _serialised(act, rows, count)}
    if sampled:
        files[_SAMPLED] = _serialised(sample, rows, count, words)
    if onnx:
        files[ONNX] = to_onnx(act, rows, batch)
    unread = heads_of(terms_of(config))  # Terms of a loss are no part of the policy.
    arrays = {
        name: np.asarray(x)
        for name, x in networks_of(state).items()
        if name.partition(".")[0] not in unread
    }
    about = describe(bound, rows, batch, words if sampled else None, onnx)
    text = resources.files("purerl").joinpath("export.md").read_text("utf-8")
    readme = Template(text).substitute(
        environment=about["environment"], version=about["versions"]["purerl"]
    )
    files |= {
        "weights.safetensors": save(arrays),
        _ABOUT: json.dumps(about, indent=1).encode(),
        "README.md": readme.encode(),
    }
    folder = _own_folder(out)
    for name, content in files.items():
        write_atomic(folder / name, content)
    for name in {_SAMPLED, ONNX} - set(files):
        (folder / name).unlink(missing_ok=True)  # of an earlier export
    return folder


def _own_folder(out: str | Path) -> Path:
    """The folder to write to: new, empty, or that of an earlier export.

    Raises:
        ConfigError: there is something else.
    """
    folder = Path(out).expanduser()
    if folder.exists() and not folder.is_dir():
        raise ConfigError(f"out: {folder} is a file; name a folder.")
    folder.mkdir(parents=True, exist_ok=True)
    if any(folder.iterdir()) and not (folder / _ABOUT).exists():
        raise ConfigError(f"out: {folder} has files of something else; name another.")
    return folder


def _safetensors(extra: str) -> Callable[[dict[str, np.ndarray]], bytes]:
    """The function that writes arrays: the only door to the package."""
    try:
        import flatbuffers  # noqa: F401  # by which jax.export writes functions
        from safetensors.numpy import save
    except ImportError as error:
        raise ConfigError(
            f"an export takes the package {error.name}: pip install 'purerl[{extra}]'."
        ) from None
    return save


def _functions(bound: Bound, state: PyTree) -> tuple[Any, Any, Rows, Any]:
    """The policies of an agent as functions of arrays, and shapes of their arguments.

    Returns:
        `act(obs, *memory) -> (action, *memory)`, deterministic, one action alone where
        there is no memory; `sample(obs, *memory, words)`, which draws from the words of
        a random key; the shapes of the observation (a pytree where it has several
        parts) and of each array of the memory, without batch; and that of the words.
    """
    recurrence = recurrence_of(bound.algorithm(bound.config))
    params = bind_params(bound.env, bound.config.env_params)
    space: Any = bound.env.observation_space(params)
    keys = getattr(bound.config, "actor_keys", ())
    blank, structure = jax.tree.flatten(recurrence.init(()))
    seen = jax.eval_shape(space.sample, jax.random.key(0))
    if keys and isinstance(seen, dict):  # See `completed`.
        seen = {name: x for name, x in seen.items() if name in keys or name == MASK}
    rows = (seen, *(jax.ShapeDtypeStruct(x.shape, x.dtype) for x in blank))
    implementation = jax.random.key_impl(state.key)
    words = jax.random.key_data(state.key)

    def act(obs: PyTree, *memory: Array, key: Array | None = None) -> Any:
        remembered = jax.tree.unflatten(structure, memory)
        whole = completed(space, obs, keys)
        action, after = recurrence.act(state, whole, remembered, key)
        return (action, *jax.tree.leaves(after)) if memory else action

    def sample(*arguments: Any) -> Any:
        *inputs, key = arguments
        return act(*inputs, key=jax.random.wrap_key_data(key, impl=implementation))

    return act, sample, rows, jax.ShapeDtypeStruct(words.shape, words.dtype)


def _said(error: Exception) -> str:
    """The first line of what an error says."""
    words = (str(error).strip() or "no reason given").splitlines()[0][:200]
    return f"{type(error).__name__}: {words}"


def _serialised(
    function: Callable[..., Any], rows: Rows, count: Any, *others: jax.ShapeDtypeStruct
) -> bytes:
    """A function as bytes.

    Raises:
        ConfigError: it cannot be exported.
    """
    shapes = jax.tree.map(
        lambda x: jax.ShapeDtypeStruct((count, *x.shape), x.dtype), rows
    )
    try:
        made = export.export(jax.jit(function), platforms=PLATFORMS)(*shapes, *others)
    except Exception as error:
        if isinstance(count, int):
            raise
        raise ConfigError(
            "this policy cannot be exported for any number of observations "
            f"({_said(error)}); give one, such as batch=1."
        ) from error
    return bytes(made.serialize())


def describe(
    bound: Bound, rows: Rows, batch: int | None, words: Any, onnx: bool
) -> dict[str, Any]:
    """Return what `policy.json` says.

    Args:
        bound: Config and environment of the agent.
        rows: Shapes of the arguments, see `_functions`.
        batch: The number of observations at once; None for any.
        words: Shape of a random key's words, where the stochastic policy was written.
        onnx: Whether the deterministic one was written as ONNX too.
    """
    params = bind_params(bound.env, bound.config.env_params)
    obs, *memory = rows
    return {
        "format": 1,
        "environment": bound.env.name,
        "observation_space": _space(bound.env.observation_space(params)),
        "action_space": _space(bound.env.action_space(params)),
        "observation": jax.tree.map(_shape, obs),
        # Zero before the first observation of an episode.
        "memory": [_shape(x) for x in memory],
        "key": _shape(words) if words else None,
        "batch": "any" if batch is None else batch,
        "files": {
            "deterministic": _POLICY,
            "sampled": _SAMPLED if words else None,
            "onnx": ONNX if onnx else None,
        },
        "platforms": list(PLATFORMS),
        "config": serialise.to_dict(bound.config),
        "versions": {name: metadata.version(name) for name in ("purerl", "jax")},
    }


def _shape(x: jax.ShapeDtypeStruct) -> dict[str, Any]:
    return {"shape": list(x.shape), "dtype": str(x.dtype)}


def _space(space: Any) -> dict[str, Any]:
    """A space as plain values."""
    if hasattr(space, "spaces"):
        parts = space.spaces
        if isinstance(parts, dict):
            named = {key: _space(part) for key, part in parts.items()}
            return {"type": "dict", "spaces": named}
        return {"type": "tuple", "spaces": list(map(_space, parts))}
    if hasattr(space, "n"):
        return {"type": "discrete", "n": int(space.n)}
    if hasattr(space, "nvec"):
        return {"type": "multi_discrete", "nvec": np.asarray(space.nvec).tolist()}
    if hasattr(space, "bits"):
        return {"type": "multi_binary", "shape": list(space.shape)}
    shape = tuple(space.shape)
    found = {"type": "box", "shape": list(shape), "dtype": str(np.dtype(space.dtype))}
    for name in ("low", "high"):
        wide = np.broadcast_to(getattr(space, name), shape).ravel()
        # JSON has no infinities: they are written as words.
        ends = [x if np.isfinite(x) else str(x) for x in map(float, wide)]
        found[name] = ends if len(set(ends)) > 1 else ends[0]
    return found


ONNX = "policy.onnx"


def to_onnx(act: Callable[..., Any], rows: Rows, batch: int | None) -> bytes:
    """Convert a deterministic policy with jax2onnx.

    The inputs are called `obs`, or `obs.KEY` where an observation has several parts,
    and `memory0`, `memory1`, ...; the outputs `action` or `action.KEY`, and
    `next_memory0`, `next_memory1`, ....

    Args:
        act: `(obs, *memory) -> (action, *memory)`; one action alone where there is no
            memory.
        rows: Shapes of the observation and of each array of the memory, without batch.
        batch: The number of observations at once; None for any.

    Returns:
        The model as a file holds it.

    Raises:
        ConfigError: the converter is not installed, or it cannot convert the policy.
    """
    try:
        from jax2onnx import to_onnx as convert  # pyright: ignore[reportMissingImports]
    except ImportError as error:
        raise ConfigError(
            f"ONNX takes the package {error.name}: pip install 'purerl[onnx]'."
        ) from None
    # Shapes that the converter does not write down are no news.
    logging.getLogger("onnx_ir").setLevel(logging.ERROR)
    shapes, structure = jax.tree.flatten(rows)
    count = "batch" if batch is None else batch
    inputs = [jax.ShapeDtypeStruct((count, *x.shape), x.dtype) for x in shapes]

    def flat(*arrays: Array) -> tuple[Array, ...]:
        return tuple(jax.tree.leaves(act(*jax.tree.unflatten(structure, arrays))))

    blank = jax.tree.map(lambda x: jax.ShapeDtypeStruct((1, *x.shape), x.dtype), rows)
    found = jax.eval_shape(act, *blank)
    obs, *memory = rows
    kept = [f"memory{number}" for number in range(len(memory))]
    names = {"input_names": _names("obs", obs) + kept}
    names["output_names"] = _names("action", found[0] if memory else found)
    names["output_names"] += [f"next_{name}" for name in kept]
    try:
        # The converter's own operations add arrays of different ranks.
        with jax.numpy_rank_promotion("allow"):
            model = convert(flat, inputs, model_name="policy", **names)
    except Exception as error:
        remedy = "; batch=1 may help" if batch is None else ""
        raise ConfigError(
            f"ONNX: the converter cannot convert this policy ({_said(error)}){remedy}."
        ) from error
    return model.SerializeToString()


def _names(name: str, tree: PyTree) -> list[str]:
    """The name of every array of a pytree, its keys behind dots."""
    paths, _ = jax.tree_util.tree_flatten_with_path(tree)
    keys = [jax.tree_util.keystr(path, simple=True, separator=".") for path, _ in paths]
    return [f"{name}.{key}" if key else name for key in keys]
