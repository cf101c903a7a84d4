"""Kernels that a GPU would run for purerl as another checkout of it is.

    git worktree add ../before 0dd6977
    cd experiments/benchmarks
    ../../.venv-gpu-program/bin/python gpu_program_at.py ../../../before ROW ...

A row is a preset and a number of agents, such as `dqn-cartpole:64`; kernels are counted
as `gpu_program.py` counts them. The checkout may be older than everything else that
counts kernels: of this one only the files that compile and count are used.
"""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

HERE = Path(__file__).resolve().parent
# PureJaxRL's and rejax's own settings, as in `gpu_program.py`.
SAME = {"num_envs": 4, "num_steps": 128, "total_timesteps": 500_000}


def load(name: str, path: Path) -> ModuleType:
    """Import a file under a name, whatever else has that name.

    Args:
        name: Name of the module.
        path: Path of the file.
    """
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def main() -> None:
    """Count the rows of the command line, and print each with its loops."""
    checkout, *rows = sys.argv[1:]
    sys.path.insert(0, str(Path(checkout).resolve()))
    sys.modules["purerl.contrib.hardware"] = ModuleType("purerl.contrib.hardware")
    load(
        "purerl.contrib.hardware.kernels",
        HERE.parents[1] / "purerl/contrib/hardware/kernels.py",
    )
    gpu_kernels: Any = load("gpu_kernels", HERE / "gpu_kernels.py")

    import jax

    import purerl
    from purerl import presets

    for row in rows:
        name, agents = row.split(":")
        changes = SAME if name == "ppo-cartpole" else {}
        config = presets.load(name).replace(num_evaluations=0, **changes)
        keys = jax.eval_shape(
            lambda n=int(agents): jax.random.split(jax.random.key(0), n)
        )
        train = jax.vmap(purerl.make_train(config))
        found = gpu_kernels.compile_for_gpu(train, keys)
        kernels, mebibytes = found.loop.total(), found.temporaries / 2**20
        print(f"\n{name}: {agents} agents, {kernels:,} kernels, {mebibytes:,.0f} MiB")
        print("\n".join(gpu_kernels.lines(found.loop)), flush=True)


if __name__ == "__main__":
    main()
