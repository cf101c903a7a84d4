"""Trace and compile one program in a process of its own: a line of JSON.

    python compile_worker.py purerl PRESET [FIELD=NUMBER ...]
    python compile_worker.py rejax
    python compile_worker.py purejaxrl FILE

For `compile_time.py`, which runs it in the environment of purerl or of the peers.
"""

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any


def make(name: str, *words: str) -> tuple[Callable[..., Any], Any, dict]:
    """Import and make a training run; return it, its key, and the compiler's options.

    Args:
        name: Whose run.
        *words: What the run is made of, see the module.
    """
    import jax

    if name != "purerl":
        import peer_programs

        return peer_programs.make(name, *map(Path, words)), jax.random.PRNGKey(0), {}
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
    began, processor_began = time.perf_counter(), time.process_time()
    train, key, options = make(*sys.argv[1:])
    imported, processor_imported = time.perf_counter(), time.process_time()
    import jax

    # What JAX does once in a process is nobody's.
    jax.jit(lambda key: jax.random.normal(key, (3,))).lower(key).compile()
    started, processor = time.perf_counter(), time.process_time()
    traced = jax.jit(train).trace(key)
    then = time.perf_counter()
    lowered = traced.lower()
    after = time.perf_counter()
    lowered.compile(options)
    done = time.perf_counter()
    processor_done = time.process_time()
    imports = processor_imported - processor_began
    found = {
        "import": imported - began,
        "trace": then - started,
        "lower": after - then,
        "compile": done - after,
        "processor": processor_done - processor + imports,
        "program_kB": len(lowered.as_text()) / 1000,
    }
    print(json.dumps(found))


if __name__ == "__main__":
    main()
