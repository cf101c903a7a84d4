"""Record DeepMind Control's cartpole for the tests of `envs.swingup`.

    python -m venv .venv-dm
    .venv-dm/bin/pip install dm_control==1.0.50 mujoco==3.17.0
    .venv-dm/bin/python experiments/record_swingup.py

It writes `tests/envs/data/swingup.npz`. dm_control is no dependency of purerl, so it
has an environment of its own. dm_control 1.0.50 does not load with MuJoCo 4.

Of each sequence NAME, with T steps (see `SEQUENCES`):

* `NAME.states`: float64 `[T + 1, 4]`, x (m), x_dot (m/s), theta (rad, not wrapped),
  theta_dot (rad/s); the first one is what the simulator was set to;
* `NAME.actions`: float32 `[T]`, some of them beyond -1 .. 1;
* `NAME.observations`: float32 `[T, 5]`, after each action;
* `NAME.smooth`, `NAME.sparse`: float32 `[T]`, the rewards of both kinds.

The sequence `altered` is of a model with every constant of its physics changed; they
are `altered.NAME`, by the names of `SwingupParams`.

And `hanging.resets`, `upright.resets` (float32 `[500, 4]`, states), `episode.length`
and `episode.discount` (of a whole episode: its steps, its last discount), and
`versions` (int `[2, 3]`, of dm_control and of MuJoCo).
"""

import os
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path

# Nothing is drawn, so no graphics library is needed.
os.environ.setdefault("MUJOCO_GL", "disable")

import numpy as np
from dm_control import suite
from dm_control.rl import control
from dm_control.suite import cartpole

OUT = Path(__file__).parents[1] / "tests" / "envs" / "data" / "swingup.npz"
NUM_RESETS = 500

Policy = Callable[[int, np.ndarray, np.random.Generator], float]


def at_random(t: int, state: np.ndarray, rng: np.random.Generator) -> float:
    del t, state
    return rng.uniform(-1, 1)


def from_end_to_end(t: int, state: np.ndarray, rng: np.random.Generator) -> float:
    """Push one way for a second, then the other: the cart runs into both rail ends."""
    del state, rng
    return 1.0 if t % 200 < 100 else -1.0


def lean_on_the_end(t: int, state: np.ndarray, rng: np.random.Generator) -> float:
    """Press harder by and by: through the end's first millimetre, where it hardens."""
    del state, rng
    return 0.03 + 5e-6 * t**2


def too_hard(t: int, state: np.ndarray, rng: np.random.Generator) -> float:
    """Random, with half of the actions beyond the limits."""
    del t, state
    return rng.uniform(-2, 2)


def do_nothing(t: int, state: np.ndarray, rng: np.random.Generator) -> float:
    del t, state, rng
    return 0.0


def hold_upright(t: int, state: np.ndarray, rng: np.random.Generator) -> float:
    """A linear feedback, with a little noise."""
    del t
    x, x_dot, theta, theta_dot = state
    theta = (theta + np.pi) % (2 * np.pi) - np.pi
    push = 0.1 * x + 0.3 * x_dot + 3.0 * theta + 0.6 * theta_dot
    return np.clip(push, -1, 1) + rng.uniform(-0.05, 0.05)


def swing_up(t: int, state: np.ndarray, rng: np.random.Generator) -> float:
    """Pump energy into the pole while it hangs, hold it once it stands."""
    x, x_dot, theta, theta_dot = state
    if np.cos(theta) > 0.9 and abs(theta_dot) < 3:
        return hold_upright(t, state, rng)
    # Energy of the pole over that at rest upright, by its inertia and weight moment.
    energy = 0.5 * 0.0344 * theta_dot**2 + 0.4905 * (np.cos(theta) - 1)
    # Pushing along -theta_dot cos(theta) adds to it; the rest keeps near the centre.
    pump = 1.5 * np.sign(theta_dot * np.cos(theta)) * np.clip(5 * energy, -1, 1)
    return np.clip(pump - 0.3 * x - 0.1 * x_dot, -1, 1)


SEQUENCES: dict[str, tuple[tuple[float, ...], Policy, int]] = {
    "random": ((0.0, 0.0, np.pi, 0.01), at_random, 250),
    "swing": ((0.0, 0.0, np.pi, 0.01), swing_up, 400),
    "upright": ((0.05, 0.0, 0.03, 0.0), hold_upright, 250),
    "ends": ((0.0, 0.0, np.pi, 0.0), from_end_to_end, 400),
    "leaning": ((1.8, 0.0, np.pi, 0.0), lean_on_the_end, 250),
    "thrown": ((1.7, 5.0, 1.0, -4.0), too_hard, 250),
    "outside": ((-1.95, -1.0, 2.0, 0.0), at_random, 150),
    "spinning": ((0.0, 0.0, 0.5, 15.0), do_nothing, 200),
    "passive": ((-0.3, 0.2, 1.0, 0.0), do_nothing, 250),
    "altered": ((1.0, 2.0, 1.0, 0.0), from_end_to_end, 180),
}
"""Name -> first state (x, x_dot, theta, theta_dot), policy, number of steps."""

ALTERED: dict[str, float] = {
    "timestep": 0.025,
    "gravity": 5.0,
    "cart_mass": 2.0,
    "pole_mass": 0.5,
    "pole_length": 0.75,
    "pole_radius": 0.125,
    "gear": 20.0,
    "cart_damping": 0.25,
    "pole_damping": 0.0625,
    "rail_length": 1.25,
    # Less than two time steps: MuJoCo takes those instead.
    "rail_timeconst": 0.03125,
    "rail_dampratio": 0.5,
    "rail_impedance": 0.75,
    "rail_impedance_deep": 0.875,
    "rail_width": 0.0625,
}
"""The constants of the sequence `altered`."""


def altered_model() -> tuple[str, dict]:
    """`cartpole.xml` with the numbers of `ALTERED`, and its assets."""
    source, assets = cartpole.get_model_and_assets()
    xml, to = source.decode(), ALTERED
    limit = f"{to['rail_impedance']} {to['rail_impedance_deep']} {to['rail_width']}"
    for old, new in (
        (
            'timestep="0.01"',
            f'timestep="{to["timestep"]}" gravity="0 0 -{to["gravity"]}"',
        ),
        ('mass="1"', f'mass="{to["cart_mass"]}"'),
        ('mass=".1"', f'mass="{to["pole_mass"]}"'),
        ('fromto="0 0 0 0 0 1"', f'fromto="0 0 0 0 0 {to["pole_length"]}"'),
        ('size="0.045"', f'size="{to["pole_radius"]}"'),
        ('gear="10"', f'gear="{to["gear"]}"'),
        ('damping="5e-4"', f'damping="{to["cart_damping"]}" solimplimit="{limit}"'),
        ('damping="2e-6"', f'damping="{to["pole_damping"]}"'),
        ('range="-1.8 1.8"', f'range="-{to["rail_length"]} {to["rail_length"]}"'),
        ('".08 1"', f'"{to["rail_timeconst"]} {to["rail_dampratio"]}"'),
    ):
        if xml.count(old) != 1:
            raise ValueError(
                f"cartpole.xml has {old} {xml.count(old)} times, not once."
            )
        xml = xml.replace(old, new)
    return xml, assets


def make_env(name: str, seed: int) -> control.Environment:
    if name != "altered":
        return suite.load("cartpole", "swingup", task_kwargs={"random": seed})
    physics = cartpole.Physics.from_xml_string(*altered_model())
    task = cartpole.Balance(swing_up=True, sparse=False, random=seed)
    return control.Environment(physics, task)


def get_state(physics: cartpole.Physics) -> np.ndarray:
    (x, theta), (x_dot, theta_dot) = physics.data.qpos, physics.data.qvel
    return np.array([x, x_dot, theta, theta_dot])


def set_state(physics: cartpole.Physics, state: np.ndarray) -> None:
    with physics.reset_context():
        physics.data.qpos[:] = state[[0, 2]]
        physics.data.qvel[:] = state[[1, 3]]


def record(
    env: control.Environment,
    first: tuple[float, ...],
    policy: Policy,
    num_steps: int,
    seed: int,
) -> dict[str, np.ndarray]:
    """Play one sequence; the arrays that the module's docstring describes."""
    rng = np.random.default_rng(seed)
    sparse_task = cartpole.Balance(swing_up=True, sparse=True)
    env.reset()
    # Numbers that float32 can hold, so that both sides start from the same ones.
    set_state(env.physics, np.asarray(first, np.float32).astype(float))

    states, rows = [get_state(env.physics)], []
    for t in range(num_steps):
        action = np.float32(policy(t, states[-1], rng))
        seen = env.step(np.array([action], float))
        observation = np.concatenate(list(seen.observation.values()))
        sparse = sparse_task.get_reward(env.physics)
        rows.append((action, observation, seen.reward, sparse))
        states.append(get_state(env.physics))
    names = ("actions", "observations", "smooth", "sparse")
    columns = zip(names, zip(*rows, strict=True), strict=True)
    arrays = {name: np.array(column, np.float32) for name, column in columns}
    return {"states": np.array(states), **arrays}


def record_resets(task: str) -> np.ndarray:
    env = suite.load("cartpole", task, task_kwargs={"random": 0})
    states = []
    for _ in range(NUM_RESETS):
        env.reset()
        states.append(get_state(env.physics))
    return np.array(states, np.float32)


def play_an_episode() -> tuple[int, float]:
    """Its number of steps and the discount that came with the last one."""
    env = suite.load("cartpole", "swingup", task_kwargs={"random": 0})
    seen, num_steps = env.reset(), 0
    while not seen.last():
        seen = env.step(np.array([1.0]))
        num_steps += 1
    return num_steps, seen.discount


def main() -> None:
    """Play every task and write the observations, rewards and actions to one file."""
    arrays: dict[str, np.ndarray] = {}
    for seed, (name, sequence) in enumerate(SEQUENCES.items()):
        for part, array in record(make_env(name, seed), *sequence, seed).items():
            arrays[f"{name}.{part}"] = array
    for constant, value in ALTERED.items():
        arrays[f"altered.{constant}"] = np.array(value)
    arrays["hanging.resets"] = record_resets("swingup")
    arrays["upright.resets"] = record_resets("balance")
    length, discount = play_an_episode()
    arrays["episode.length"] = np.array(length)
    arrays["episode.discount"] = np.array(discount)
    packages = [version(package) for package in ("dm_control", "mujoco")]
    arrays["versions"] = np.array([[int(n) for n in v.split(".")] for v in packages])

    OUT.parent.mkdir(exist_ok=True)
    np.savez_compressed(OUT, **arrays)  # pyright: ignore[reportArgumentType]
    print(f"wrote {OUT} ({OUT.stat().st_size / 1024:.0f} KiB); versions {packages}")
    for name in SEQUENCES:
        x, _, _, theta_dot = np.abs(arrays[f"{name}.states"]).max(axis=0)
        smooth, sparse = (arrays[f"{name}.{kind}"] for kind in ("smooth", "sparse"))
        print(
            f"{name:9} {len(smooth)} steps: |x| up to {x:.4f}, |theta_dot| up to "
            f"{theta_dot:.1f}, mean rewards {smooth.mean():.3f} {sparse.mean():.3f}"
        )


if __name__ == "__main__":
    main()
