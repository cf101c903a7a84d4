"""The time of a training run on a GPU: its kernels, and the gaps between them."""

import shutil
import time
from collections import Counter
from pathlib import Path
from typing import Any

import jax
from gpu_parts import Day

import purerl
from purerl import presets
from purerl.train import bind

LONGEST = 25  # Kernels by name that are kept.
UPDATES = 3


def measure_profile(day: Day, name: str, agents: int) -> None:
    """Run some updates of a preset under the profiler; add what the device did.

    Args:
        day: What the part was given.
        name: The preset.
        agents: Agents side by side.
    """
    if day.is_toy:
        name, agents = "ppo-cartpole", 2
    config = presets.load(name).replace(num_evaluations=0)
    updates = 2 if day.is_toy else UPDATES
    steps = updates * bind(config).plan.steps_per_update
    config = config.replace(total_timesteps=steps)
    keys = jax.random.split(jax.random.key(0), agents)
    program = jax.jit(jax.vmap(purerl.make_train(config))).lower(keys).compile()
    (day.folder / "program.txt").write_text(program.as_text() or "")
    jax.block_until_ready(program(keys))
    began = time.perf_counter()
    jax.block_until_ready(program(keys))
    plain = time.perf_counter() - began
    folder = day.folder / "profile"
    shutil.rmtree(folder, ignore_errors=True)  # Of a try that failed.
    with jax.profiler.trace(str(folder)):
        jax.block_until_ready(program(keys))
    row: dict[str, Any] = {"profiled": name, "agents": agents, "updates": updates}
    row |= {"env_steps_each": steps, "seconds_without_profiler": plain}
    day.add(row | read_profile(folder))


def read_profile(folder: Path) -> dict[str, Any]:
    """Return how long kernels ran, how many, and how long none ran.

    Args:
        folder: What the profiler wrote.
    """
    (path,) = folder.rglob("*.xplane.pb")
    profile = jax.profiler.ProfileData.from_file(str(path))
    spans: list[tuple[float, float]] = []
    times: Counter[str] = Counter()
    counts: Counter[str] = Counter()
    lines: Counter[str] = Counter()
    calls: Counter[str] = Counter()
    for plane in profile.planes:
        for line in plane.lines:
            is_stream = plane.name.startswith("/device:GPU") and "Stream" in line.name
            lines[f"{plane.name} / {line.name}"] += sum(1 for _ in line.events)
            for event in line.events:
                if is_stream:
                    spans.append((event.start_ns, event.start_ns + event.duration_ns))
                    times[event.name] += event.duration_ns
                    counts[event.name] += 1
                elif event.name.startswith(("cu", "cuda")):
                    calls[event.name] += 1
    busy, reached = 0.0, float("-inf")
    for begin, end in sorted(spans):
        busy += max(0.0, end - max(begin, reached))
        reached = max(reached, end)
    first, last = min((s[0] for s in spans), default=0), max(reached, 0.0)
    return {
        "kernels_run": len(spans),
        "busy_seconds": busy * 1e-9,
        "span_seconds": (last - first) * 1e-9 if spans else 0.0,
        "longest": [
            {"name": name, "seconds": ns * 1e-9, "times": counts[name]}
            for name, ns in times.most_common(LONGEST)
        ],
        "host_calls": dict(calls.most_common(12)),
        "lines": dict(lines.most_common(20)),
    }
