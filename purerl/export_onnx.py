"""Trained policies as ONNX, for programs without JAX: the one door to the converter."""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import jax

from purerl.config import ConfigError
from purerl.types import Array, PyTree

POLICY = "policy.onnx"


def to_onnx(
    act: Callable[..., Any], rows: tuple[PyTree, ...], batch: int | None
) -> bytes:
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
    convert = _converter()
    shapes, structure = jax.tree.flatten(rows)
    count = "batch" if batch is None else batch
    inputs = [jax.ShapeDtypeStruct((count, *x.shape), x.dtype) for x in shapes]

    def flat(*arrays: Array) -> tuple[Array, ...]:
        return tuple(jax.tree.leaves(act(*jax.tree.unflatten(structure, arrays))))

    blank = jax.tree.map(lambda x: jax.ShapeDtypeStruct((1, *x.shape), x.dtype), rows)
    found = jax.eval_shape(act, *blank)
    obs, *memory = rows
    action, after = (found[0], found[1:]) if memory else (found, ())
    try:
        # The converter's own operations add arrays of different ranks.
        with _quiet(), jax.numpy_rank_promotion("allow"):
            model = convert(
                flat,
                inputs,
                model_name="policy",
                input_names=[*_names("obs", obs), *_numbered("memory", memory)],
                output_names=[
                    *_names("action", action),
                    *_numbered("next_memory", after),
                ],
            )
    except Exception as error:
        remedy = "; batch=1 may help" if batch is None else ""
        said = (str(error).strip() or "no reason given").splitlines()[0][:200]
        raise ConfigError(
            f"the converter to ONNX cannot convert this policy ({type(error).__name__}:"
            f" {said}){remedy}. Leave onnx (--onnx) out: policy.stablehlo holds every "
            "policy."
        ) from error
    return model.SerializeToString()


def _converter() -> Callable[..., Any]:
    """The function of jax2onnx that converts."""
    try:
        from jax2onnx import to_onnx as convert  # pyright: ignore[reportMissingImports]
    except ImportError as error:
        raise ConfigError(
            f"to export a policy as ONNX takes the package {error.name}, which is not "
            "installed: pip install 'purerl[onnx]'."
        ) from None
    return convert


@contextmanager
def _quiet() -> Iterator[None]:
    """Leave out what the converter logs of shapes that it does not write down."""
    log = logging.getLogger("onnx_ir")
    before = log.level
    log.setLevel(logging.ERROR)
    try:
        yield
    finally:
        log.setLevel(before)


def _names(name: str, tree: PyTree) -> list[str]:
    """The name of every array of a pytree, its keys behind dots."""
    paths, _ = jax.tree_util.tree_flatten_with_path(tree)
    keys = [jax.tree_util.keystr(path, simple=True, separator=".") for path, _ in paths]
    return [f"{name}.{key}" if key else name for key in keys]


def _numbered(name: str, arrays: Any) -> list[str]:
    """The name of every array of a memory."""
    return [f"{name}{number}" for number in range(len(arrays))]
