"""The physics of a brax system as parameters: read from it, put back into a copy.

Works on the objects that `brax` hands over and imports nothing of brax.
"""

from __future__ import annotations

import copy
from typing import Any

import jax
import jax.numpy as jnp
from flax import struct

from ..base import EnvParams

# Where a backend keeps each number of `BraxParams`; what it does not read is absent.
_RIGID = {
    "gravity": "gravity",
    "mass": "link.inertia.mass",
    "inertia": "link.inertia.i",
    "friction": "geom_friction",
    "gear": "actuator.gear",
}
_DOF = {
    "damping": "dof.damping",
    "stiffness": "dof.stiffness",
    "armature": "dof.armature",
}
_MJX = {
    "gravity": "opt.gravity",
    "mass": "body_mass",
    "inertia": "body_inertia",
    "friction": "geom_friction",
    "gear": "actuator_gear",
    "damping": "dof_damping",
    "stiffness": "jnt_stiffness",
    "armature": "dof_armature",
}
WHERE: dict[str, dict[str, str]] = {
    "spring": _RIGID,
    "positional": _RIGID,
    "generalized": _RIGID | _DOF,
    "mjx": _MJX,
}


@struct.dataclass
class BraxParams(EnvParams):
    """The physics of a brax system, in the units of its XML file.

    A number that the backend does not read is None, and must stay so. L links, G
    geometries, A actuators, V degrees of freedom; with the mjx backend L counts the
    world body too.

    Attributes:
        max_steps_in_episode: Time limit; the usual one is 1000.
        gravity: `[3]` acceleration of gravity, m/s^2.
        mass: `[L]`, kg. None where brax levels all masses (spring_mass_scale 1).
        inertia: `[L, 3, 3]` about the centre of mass (mjx: `[L, 3]`), kg m^2. A denser
            link has both more mass and more inertia: change them together.
        friction: `[G]`, sliding friction. None where nothing touches.
        gear: `[A]`, torque per unit of control (mjx: `[A, 6]`).
        damping: `[V]` damping of the joints (generalized, mjx).
        stiffness: `[V]` stiffness of the joints (generalized; mjx: per joint).
        armature: `[V]`, rotor inertia (generalized, mjx).
    """

    gravity: jax.Array | None = None
    mass: jax.Array | None = None
    inertia: jax.Array | None = None
    friction: jax.Array | None = None
    gear: jax.Array | None = None
    damping: jax.Array | None = None
    stiffness: jax.Array | None = None
    armature: jax.Array | None = None


def read_physics(env: Any, backend: str, *, touches: bool) -> dict[str, jax.Array]:
    """Read the numbers of `BraxParams` that the backend uses.

    Args:
        env: A bare brax environment.
        backend: Physics backend of that environment.
        touches: Whether geometries can touch, so that friction matters.
    """
    if not hasattr(env, "sys"):  # `fast`, a toy without physics.
        return {}
    values = {}
    for field, path in WHERE[backend].items():
        value: Any = env.sys
        for part in path.split("."):
            value = getattr(value, part)
        values[field] = jnp.asarray(value, jnp.float32)
    values["friction"] = values["friction"][:, 0]
    if not touches:
        del values["friction"]
    if backend in ("spring", "positional"):
        # The two backends use mass^(1 - scale), inertia^(1 - scale).
        for field in ("mass", "inertia"):
            if float(getattr(env.sys, f"spring_{field}_scale")) == 1.0:
                del values[field]
    return values


def with_physics(env: Any, name: str, default: BraxParams, params: BraxParams) -> Any:
    """Copy a bare brax environment, with the physics of `params`.

    Args:
        env: Environment of brax; it stays as it is.
        name: Name of the environment, for messages.
        default: Numbers of `env`, which tell what the backend reads.
        params: The numbers.

    Raises:
        ValueError: a number is given that the backend does not read, or the reverse.
    """
    replaced = {}
    # `fast`, a toy without physics, has no backend either.
    for field, path in WHERE.get(getattr(env, "backend", ""), {}).items():
        if getattr(params, field) is not None:
            replaced[path] = jnp.asarray(getattr(params, field), jnp.float32)
    for field in _MJX:
        is_read, is_given = (getattr(p, field) is not None for p in (default, params))
        if is_read != is_given:
            raise ValueError(
                f"params.{field} is {'' if is_read else 'not '}read by {name}: "
                f"{'give a value' if is_read else 'leave it None'}."
            )
    if not replaced:
        return env
    if "geom_friction" in replaced:
        friction = jnp.asarray(env.sys.geom_friction, jnp.float32)
        replaced["geom_friction"] = friction.at[:, 0].set(replaced["geom_friction"])
    changed = copy.copy(env)
    changed.sys = env.sys.tree_replace(replaced)
    return changed
