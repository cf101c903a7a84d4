"""Trace and compile one program in a process of its own: a line of JSON.

    python compile_worker.py purerl PRESET [FIELD=NUMBER ...]
    python compile_worker.py peer REQUEST   # what `peer_rejax.py` prepares

For `compile_time.py`, which runs it in the environment of purerl or of the peers.
"""

import json
import sys
import time
from collections.abc import Callable
from typing import Any

import jax


def make(name: str, *words: str) -> tuple[Callable[[jax.Array], Any], jax.Array, dict]:
    """Return a training run, its key, and the options with which it is compiled.

    Args:
        name: Whose run.
        *words: What the run is made of, see the module.
    """
    if name != "purerl":
        import peer_rejax

        train = peer_rejax.train_of(**json.loads(*words))
        return train, jax.random.PRNGKey(0), {}
    # What the peers import with their package, purerl does when it is first needed.
    import distrax  # noqa: F401

    import purerl
    from purerl import presets

    preset, *changes = words
    config = presets.load(preset)
    pairs = (change.split("=") for change in changes)
    config = config.replace(**{field: int(value) for field, value in pairs})
    # Code of before there were options has none.
    options = getattr(purerl, "compiler_options", dict)()
    return purerl.make_train(config), jax.random.key(0), options


def main() -> None:
    """Print the seconds of each stage, cold."""
    train, key, options = make(*sys.argv[1:])
    # What JAX does once in a process is nobody's.
    jax.jit(lambda key: jax.random.normal(key, (3,))).lower(key).compile()
    started, processor = time.perf_counter(), time.process_time()
    traced = jax.jit(train).trace(key)
    then = time.perf_counter()
    lowered = traced.lower()
    after = time.perf_counter()
    lowered.compile(options)
    done = time.perf_counter()
    found = {
        "trace": then - started,
        "lower": after - then,
        "compile": done - after,
        "processor": time.process_time() - processor,
        "program_kB": len(lowered.as_text()) / 1000,
    }
    print(json.dumps(found))


if __name__ == "__main__":
    main()
