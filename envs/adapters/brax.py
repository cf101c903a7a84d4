"""Environments of brax; the only module that imports it.

The bare brax environment is used, without brax's wrappers: its AutoResetWrapper
returns to a cached first state and loses the final observation, its EpisodeWrapper
merges the time limit into `done`.
"""

from __future__ import annotations

import copy
import warnings
from functools import cached_property
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from ..base import Environment, EnvParams, EnvState, Info
from ..spaces import Box
from .contract import as_arrays, cast_like

with warnings.catch_warnings():
    # jaxopt, which brax imports, announces its end; no user of brax can act on it.
    warnings.simplefilter("ignore", DeprecationWarning)
    from brax import contact
    from brax import envs as brax_envs
    from brax.base import Transform

# These map actions from [-1, 1] to the actuators' range inside `step`. Found by
# reading brax 0.14; a test reads the installed sources again.
RESCALES_ACTIONS = ("humanoid", "humanoidstandup", "inverted_pendulum", "pusher")

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
_WHERE: dict[str, dict[str, str]] = {
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
        max_steps_in_episode: time limit; the usual one is 1000.
        gravity: `[3]`, m/s^2.
        mass: `[L]`, kg. None where brax levels all masses (spring_mass_scale 1).
        inertia: `[L, 3, 3]` about the centre of mass (mjx: `[L, 3]`), kg m^2. A denser
            link has both more mass and more inertia: change them together.
        friction: `[G]`, sliding friction. None where nothing touches.
        gear: `[A]`, torque per unit of control (mjx: `[A, 6]`).
        damping: `[V]`, of the joints (generalized, mjx).
        stiffness: `[V]`, of the joints (generalized; mjx: per joint).
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


@struct.dataclass
class BraxState(EnvState):
    """What an episode carries.

    Attributes:
        pipeline: brax's `pipeline_state`: positions, velocities and what follows.
        info: brax's `info` as its reset made it; keys that only a step adds are
            dropped, because a scan could not carry them.
    """

    pipeline: Any
    info: dict[str, jax.Array]


class BraxEnvironment(Environment[BraxState, BraxParams]):
    """A brax environment under this package's contract.

    * action: float32 `[A]` in the actuators' control range, which differs between
      environments (humanoid +-0.4, pusher +-2, inverted pendulum +-3). Some brax
      environments expect [-1, 1] and rescale; that is undone here, so an action always
      is the control that the actuator gets.
    * terminated: brax's `done`. truncated: at the time limit. Every reset is fresh.

    Physics can be changed and vmapped through `BraxParams`, within limits: brax
    derives a few numbers once, from the original system (geometry, mean inverse
    inertias in the generalized constraint solver), and those keep their values.

    Attributes:
        wrapped: brax's object.
        brax_name: its name in brax.
        backend: its physics backend.
    """

    stochastic_transitions: ClassVar[bool] = False

    def __init__(
        self,
        brax_name: str,
        backend: str | None = None,
        max_steps_in_episode: int = 1_000,
        **options: Any,
    ) -> None:
        """Load the environment.

        Args:
            brax_name: such as `halfcheetah`.
            backend: `spring`, `positional`, `generalized` or `mjx`. Where not given,
                `spring`, which is three times as fast as the others on a CPU, but
                `generalized` for swimmer, the only one it has.
            max_steps_in_episode: time limit.
            **options: passed to brax's constructor.

        Raises:
            ValueError: brax does not know the name, the backend or an option.
        """
        if brax_name not in brax_envs._envs:
            raise ValueError(
                f"brax_name {brax_name!r} is not one of brax's environments: "
                f"{', '.join(sorted(brax_envs._envs))}."
            )
        if backend is None:
            backend = "generalized" if brax_name == "swimmer" else "spring"
        if backend not in _WHERE:
            known = ", ".join(_WHERE)
            raise ValueError(f"backend must be one of {known}, got {backend!r}.")
        self.brax_name, self.backend = brax_name, backend
        try:
            self.wrapped: Any = brax_envs.get_environment(
                brax_name, backend=backend, **options
            )
        except TypeError as error:
            raise ValueError(
                f"options of brax/{brax_name} were {sorted(options)}, which brax does "
                f"not take ({error})."
            ) from error
        self._params = BraxParams(
            max_steps_in_episode=max_steps_in_episode, **self._read_physics()
        )

    @property
    def name(self) -> str:
        """`brax/` and brax's name."""
        return f"brax/{self.brax_name}"

    @property
    def default_params(self) -> BraxParams:
        """What brax ships."""
        return self._params

    def reset_env(
        self, key: jax.Array, params: BraxParams
    ) -> tuple[jax.Array, BraxState]:
        """Start an episode from a fresh random state; the key is consumed."""
        first = self._system(params).reset(key)
        state = BraxState(jnp.int32(0), first.pipeline_state, first.info)
        return jnp.asarray(first.obs, jnp.float32), as_arrays(state)

    def step_env(
        self, key: jax.Array, state: BraxState, action: jax.Array, params: BraxParams
    ) -> tuple[jax.Array, BraxState, jax.Array, jax.Array, Info]:
        """Take one step; the physics uses no chance."""
        del key
        zero = jnp.float32(0.0)
        # brax writes into the dictionaries that it is given: hand it new ones. No
        # environment of brax reads the old observation, reward or metrics.
        before = brax_envs.State(
            state.pipeline, zero, zero, zero, metrics={}, info=dict(state.info)
        )
        after = self._system(params).step(before, self._to_brax(action))
        info = {name: after.info[name] for name in state.info}
        carried = BraxState(state.time + 1, after.pipeline_state, info)
        obs = jnp.asarray(after.obs, jnp.float32)
        reward = jnp.asarray(after.reward, jnp.float32)
        return obs, cast_like(carried, state), reward, after.done > 0.5, {}

    def action_space(self, params: BraxParams | None = None) -> Box:
        """The actuators' control range."""
        del params
        return Box(self._control_range[0], self._control_range[1])

    def observation_space(self, params: BraxParams | None = None) -> Box:
        """Unbounded numbers."""
        del params
        return Box(-np.inf, np.inf, self._obs_shape)

    @cached_property
    def _control_range(self) -> np.ndarray:
        """Lower and upper controls, float32 `[2, A]`; `fast` has no actuators."""
        if not hasattr(self.wrapped, "sys"):
            ones = np.ones(self.wrapped.action_size, np.float32)
            return np.stack([-ones, ones])
        if self.backend == "mjx":
            return np.asarray(self.wrapped.sys.actuator_ctrlrange, np.float32).T
        return np.asarray(self.wrapped.sys.actuator.ctrl_range, np.float32).T

    @cached_property
    def _obs_shape(self) -> tuple[int, ...]:
        first = jax.eval_shape(self.wrapped.reset, jax.random.key(0))
        if not hasattr(first.obs, "shape"):
            raise ValueError(
                f"observation of {self.name} is a {type(first.obs).__name__}, expected "
                "one array: choose brax's array mode in the options."
            )
        return first.obs.shape

    def _to_brax(self, action: jax.Array) -> jax.Array:
        """Undo the rescaling that the brax environment will do, if it does."""
        if self.brax_name not in RESCALES_ACTIONS:
            return action
        low, high = self._control_range
        return 2.0 * (action - low) / (high - low) - 1.0

    def _read_physics(self) -> dict[str, jax.Array]:
        """Default values of the numbers that the backend reads."""
        if not hasattr(self.wrapped, "sys"):  # `fast`, a toy without physics.
            return {}
        sys = self.wrapped.sys
        values = {}
        for field, path in _WHERE[self.backend].items():
            value: Any = sys
            for part in path.split("."):
                value = getattr(value, part)
            values[field] = jnp.asarray(value, jnp.float32)
        values["friction"] = values["friction"][:, 0]
        if _has_no_contacts(self.wrapped):
            del values["friction"]
        if self.backend in ("spring", "positional"):
            # The two backends use mass^(1 - scale), inertia^(1 - scale).
            for field in ("mass", "inertia"):
                if float(getattr(sys, f"spring_{field}_scale")) == 1.0:
                    del values[field]
        return values

    def _system(self, params: BraxParams) -> Any:
        """The brax environment with the physics of `params`; the original stays."""
        replaced = {}
        for field in _MJX:
            value, default = getattr(params, field), getattr(self._params, field)
            if (value is None) != (default is None):
                raise ValueError(
                    f"params.{field} is {'not ' if default is None else ''}read by "
                    f"{self.name} with the {self.backend} backend: "
                    f"{'leave it None' if default is None else 'give a value'}."
                )
            if value is not None:
                replaced[_WHERE[self.backend][field]] = jnp.asarray(value, jnp.float32)
        if not replaced:
            return self.wrapped
        sys = self.wrapped.sys
        if "geom_friction" in replaced:
            sliding = replaced["geom_friction"]
            friction = jnp.asarray(sys.geom_friction, jnp.float32)
            replaced["geom_friction"] = friction.at[:, 0].set(sliding)
        system = copy.copy(self.wrapped)
        system.sys = sys.tree_replace(replaced)
        return system


def _has_no_contacts(env: Any) -> bool:
    """Whether no two geometries of the system can ever touch."""
    if env.backend == "mjx":
        return False  # Its collision table is not open to such a question.
    pose = Transform.zero((env.sys.num_links(),))
    return jax.eval_shape(lambda x: contact.get(env.sys, x), pose) is None
