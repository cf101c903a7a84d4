"""Environments of brax; the only module that imports it.

The bare brax environment is used, without brax's wrappers: its AutoResetWrapper
returns to a cached first state and loses the final observation, its EpisodeWrapper
merges the time limit into `done`.

Pictures are of brax's page for browsers, or of MuJoCo's renderer.
"""

import contextlib
import copy
import inspect
import types
import warnings
import weakref
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from importlib import import_module
from operator import attrgetter
from types import SimpleNamespace
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from ..base import Array, EnvParams, EnvState, Obs, Step
from ..options import one_of
from ..spaces import Box
from .adapted import Adapted, as_arrays, cast_like
from .packages import check_name, importing, is_own, loading

with importing():
    from brax import contact, fluid
    from brax import envs as brax_envs
    from brax.base import Transform


if "a_min" not in inspect.signature(jnp.clip).parameters:
    # `brax.fluid` calls `jp.clip(x, a_min=...)`, which jax 0.10 removed: swimmer could
    # not take a step. Its own name `jp` becomes a copy with the older `clip`.
    _numpy: Any = types.ModuleType("jax.numpy with the older clip")
    _numpy.__dict__.update(jnp.__dict__)
    _numpy.clip = lambda x, a_min=None, a_max=None: jnp.clip(x, a_min, a_max)
    fluid.__dict__["jp"] = _numpy

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


# These map actions from [-1, 1] to the actuators' range inside `step`. Found by
# reading brax 0.14; a test reads the installed sources again.
RESCALES_ACTIONS = ("humanoid", "humanoidstandup", "inverted_pendulum", "pusher")


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

    gravity: Array | None = None
    mass: Array | None = None
    inertia: Array | None = None
    friction: Array | None = None
    gear: Array | None = None
    damping: Array | None = None
    stiffness: Array | None = None
    armature: Array | None = None


@struct.dataclass
class BraxState(EnvState):
    """The state of an episode of a brax environment.

    Attributes:
        pipeline: State of the physics, brax's `pipeline_state`: positions, velocities
            and what follows.
        info: Brax's `info` as its reset made it; keys that only a step adds are
            dropped, because a scan could not carry them.
        seen: Observation, reward and metrics of the step before, where the environment
            is one of the user's own, which may read them; empty else.
    """

    pipeline: Any
    info: dict[str, Array]
    seen: Any = ()


class BraxEnvironment(Adapted):
    """A brax environment under this package's contract.

    * action: float32 `[A]` in the actuators' control range, which differs between
      environments (humanoid +-0.4, pusher +-2, inverted pendulum +-3). Some brax
      environments expect [-1, 1] and rescale; that is undone here, so an action always
      is the control that the actuator gets.
    * terminated: brax's `done`. truncated: at the time limit. Every reset is fresh.
    * an environment of the user's own, of `brax.envs.register_environment`, gets its
      actions as brax's agents give them, in [-1, 1], because it is not known whether
      its `step` rescales them.

    Physics can be changed and vmapped through `BraxParams`, within limits: brax
    derives a few numbers once, from the original system (geometry, mean inverse
    inertias in the generalized constraint solver), and those keep their values.

    Attributes:
        wrapped: Environment object of brax.
        brax_name: Name of the environment in brax.
        backend: Name of its physics backend; empty where it has none.
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
            brax_name: Name of the environment in brax, such as `halfcheetah`.
            backend: `spring`, `positional`, `generalized` or `mjx`. Where not given,
                `spring`, which is three times as fast as the others on a CPU, but
                `generalized` for swimmer, the only one it has. brax's own default is
                `generalized`, and published curves are of `positional`,
                `generalized` or `mjx`: with those, returns under `spring` do not
                compare. An environment of the user's own has the one that its class
                chooses.
            max_steps_in_episode: Time limit.
            **options: Keywords of brax's constructor.

        Raises:
            ValueError: brax does not know the name, the backend or an option.
        """
        check_name("brax", brax_name, brax_envs._envs)
        self._is_own = is_own(brax_envs._envs[brax_name])
        if backend is None and not self._is_own:
            backend = "generalized" if brax_name == "swimmer" else "spring"
        if backend is not None:
            one_of("backend", backend, WHERE)
        self.brax_name, self.id = brax_name, f"brax/{brax_name}"
        chosen = {} if backend is None else {"backend": backend}
        with _quiet(), loading():
            self.wrapped = brax_envs.get_environment(brax_name, **chosen, **options)
        self.backend = backend or str(getattr(self.wrapped, "backend", ""))
        self._params = BraxParams(max_steps_in_episode, **self._read_physics())

    @property
    def note(self) -> str:
        """The physics in words: returns do not compare between backends."""
        if self._is_own:
            return ""
        return (
            f"{self.name} with the backend {self.backend}: returns do not compare with "
            "those under another backend. Published ones are mostly of positional, "
            "generalized or mjx (env_kwargs backend=positional)."
        )

    @property
    def default_params(self) -> BraxParams:
        """The physics that brax ships with the environment."""
        return self._params

    def reset_env(self, key: Array, params: BraxParams) -> tuple[Obs, BraxState]:
        """Start an episode from a fresh random state; the key is consumed."""
        with _quiet():
            first = self._system(params).reset(key)
        state = BraxState(
            jnp.int32(0), first.pipeline_state, first.info, self._seen(first)
        )
        return jnp.asarray(first.obs, jnp.float32), as_arrays(state)

    def step_env(
        self, key: Array, state: BraxState, action: Array, params: BraxParams
    ) -> Step:
        """Take one step; the physics uses no chance."""
        zero = jnp.float32(0.0)
        # No environment of brax reads the old observation, reward or metrics.
        obs, reward, metrics = state.seen or (zero, zero, {})
        # brax writes into the dictionaries that it is given: hand it new ones.
        before = brax_envs.State(
            state.pipeline, obs, reward, zero, dict(metrics), dict(state.info)
        )
        with _quiet():
            after = self._system(params).step(before, self._to_brax(action))
        info = {name: after.info[name] for name in state.info}
        seen = self._seen(after, metrics)
        carried = BraxState(state.time + 1, after.pipeline_state, info, seen)
        obs = jnp.asarray(after.obs, jnp.float32)
        reward = jnp.asarray(after.reward, jnp.float32)
        return obs, cast_like(carried, state), reward, after.done > 0.5, {}

    def action_space(self, params: BraxParams | None = None) -> Box:
        """Return the actuators' control range, [-1, 1] of the user's own."""
        return Box(self._control_range[0], self._control_range[1])

    def observation_space(self, params: BraxParams | None = None) -> Box:
        """Return a space of unbounded numbers."""
        return Box(-np.inf, np.inf, self._obs_shape)

    @cached_property
    def _control_range(self) -> np.ndarray:
        """Lower and upper controls, float32 `[2, A]`; `fast` has no actuators."""
        if self._is_own or not hasattr(self.wrapped, "sys"):
            ones = np.ones(self.wrapped.action_size, np.float32)
            return np.stack([-ones, ones])
        if self.backend == "mjx":
            return np.asarray(self.wrapped.sys.actuator_ctrlrange, np.float32).T
        return np.asarray(self.wrapped.sys.actuator.ctrl_range, np.float32).T

    @cached_property
    def _obs_shape(self) -> tuple[int, ...]:
        with _quiet():
            first = jax.eval_shape(self.wrapped.reset, jax.random.key(0))
        if not hasattr(first.obs, "shape"):
            raise ValueError(f"{self.name} observes {first.obs}, expected one array.")
        return first.obs.shape

    def _read_physics(self) -> dict[str, Array]:
        """Read the numbers of `BraxParams` that the backend uses.

        A wrapper of brax hides them, and `fast`, a toy, has none.
        """
        env, backend = self.wrapped, self.backend
        is_hidden = isinstance(env, brax_envs.Wrapper)
        if is_hidden or backend not in WHERE or not hasattr(env, "sys"):
            return {}
        values = {
            field: jnp.asarray(attrgetter(path)(env.sys), jnp.float32)
            for field, path in WHERE[backend].items()
        }
        values["friction"] = values["friction"][:, 0]
        with _quiet():
            if not _has_contacts(env):
                del values["friction"]
        if backend in ("spring", "positional"):
            # The two backends use mass^(1 - scale), inertia^(1 - scale).
            for field in ("mass", "inertia"):
                if float(getattr(env.sys, f"spring_{field}_scale")) == 1.0:
                    del values[field]
        return values

    def _seen(self, state: Any, like: dict[str, Any] | None = None) -> tuple:
        """Return what an environment of the user's own may read of the step before."""
        if not self._is_own:
            return ()
        metrics = state.metrics if like is None else {n: state.metrics[n] for n in like}
        return state.obs, state.reward, metrics

    def _system(self, params: BraxParams) -> Any:
        """A copy of the brax environment with the physics of `params`.

        Raises:
            ValueError: a number is given that the backend does not read, or the
                reverse.
        """
        numbers = {}
        for field in _MJX:
            value = getattr(params, field)
            if (value is None) != (getattr(self._params, field) is None):
                raise ValueError(
                    f"params.{field} of {self.name} must be "
                    f"{'a number' if value is None else 'None'}: it is "
                    f"{'' if value is None else 'not '}read."
                )
            if value is not None:
                numbers[WHERE[self.backend][field]] = jnp.asarray(value, jnp.float32)
        if not numbers:
            return self.wrapped
        changed = copy.copy(self.wrapped)
        if "geom_friction" in numbers:
            friction = jnp.asarray(changed.sys.geom_friction, jnp.float32)
            numbers["geom_friction"] = friction.at[:, 0].set(numbers["geom_friction"])
        changed.sys = changed.sys.tree_replace(numbers)
        return changed

    def _to_brax(self, action: Array) -> Array:
        """Undo the rescaling that the brax environment will do, if it does."""
        if self._is_own or self.brax_name not in RESCALES_ACTIONS:
            return action
        low, high = self._control_range
        return 2.0 * (action - low) / (high - low) - 1.0


def _has_contacts(env: Any) -> bool:
    """Return whether two geometries can touch; True where mjx cannot tell."""
    if env.backend == "mjx":
        return True
    pose = Transform.zero((env.sys.num_links(),))
    return jax.eval_shape(lambda x: contact.get(env.sys, x), pose) is not None


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Silence what brax's own code provokes; no user of brax can act on it.

    Its physics is no longer maintained and says so whenever it is made, and it reads
    fields of mjx that have moved.
    """
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Brax System", UserWarning)
        warnings.simplefilter("ignore", DeprecationWarning)
        yield


# Where brax's viewer puts its canvas, and what that canvas then covers.
_VIEWER = '<div id="brax-viewer">'
_WITHOUT_SCRIPTS = (
    '<p style="position: absolute; z-index: -1; margin: 16px; font: 15px sans-serif">'
    "The view is being loaded. If this sentence stays, its scripts could not be "
    "fetched from unpkg.com and cdn.jsdelivr.net: open the page with a network, or "
    "draw a GIF (purerl render RUN --format gif).</p>"
)


def pose_of(state: Any) -> dict[str, Any]:
    """Return what a picture needs of a state: where the bodies and the joints are.

    Args:
        state: State of one `BraxEnvironment`.
    """
    physics = state.pipeline
    return {"pos": physics.x.pos, "rot": physics.x.rot, "q": physics.q}


def steps_per_second(env: BraxEnvironment) -> int:
    """Return how many steps of an environment its physics makes of a second."""
    _check(env)
    return max(1, round(1 / float(env.wrapped.dt)))


def page(env: BraxEnvironment, poses: Sequence[dict[str, Any]], height: int) -> str:
    """Return brax's interactive page of some moments, an HTML text.

    The page holds the bodies and the moments; the scripts of its viewer come from
    where they are published, so that a browser needs a network to show it. brax has
    four of them in its package, and not the libraries that they need (three.js,
    lil-gui, pako). Where they do not come, a sentence is left in place of the view.

    Args:
        poses: Moments, of `pose_of`.
        height: Height of the view in pixels.

    Raises:
        ValueError: the environment has no bodies, as brax's `fast`.
    """
    _check(env)
    states: Any = [
        SimpleNamespace(x=SimpleNamespace(pos=pose["pos"], rot=pose["rot"]))
        for pose in poses
    ]
    with warnings.catch_warnings(), _quiet():
        warnings.simplefilter("ignore")
        from brax.io import html

        system = env.wrapped.sys
        system = system.tree_replace({"opt.timestep": env.wrapped.dt})
        text = html.render(system, states, height=height, colab=True)
    return text.replace(_VIEWER, _VIEWER + _WITHOUT_SCRIPTS)


def drawer(
    env: BraxEnvironment, width: int, height: int
) -> Callable[[Any, Any], np.ndarray]:
    """Return a function that draws a pose with MuJoCo's renderer.

    Args:
        width: Width of the pictures in pixels.
        height: Height of the pictures in pixels.

    Returns:
        `(pose, params) -> uint8 [height, width, 3]`.

    Raises:
        ValueError: there are no bodies, or no OpenGL to draw them with.
    """
    _check(env)
    mujoco: Any = import_module("mujoco")

    model = env.wrapped.sys.mj_model
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # The error says enough.
            renderer = mujoco.Renderer(model, height=height, width=width)
    except Exception as error:  # Whatever the platform's OpenGL raises.
        raise ValueError(
            f"pictures of {env.name} need OpenGL, which this machine has not "
            f"({type(error).__name__}); write the page for browsers (format html), or "
            "set MUJOCO_GL=egl or osmesa where one is installed."
        ) from None
    data = mujoco.MjData(model)

    def draw(pose: Any, params: Any) -> np.ndarray:
        data.qpos = pose["q"]
        mujoco.mj_forward(model, data)
        renderer.update_scene(data, camera=-1 if model.ncam == 0 else 0)
        return renderer.render()

    # MuJoCo closes it too late: where Python ends, what that takes is gone already.
    weakref.finalize(draw, renderer.close)
    return draw


def _check(env: BraxEnvironment) -> None:
    if not hasattr(env.wrapped, "sys"):
        raise ValueError(f"{env.name} has no bodies that could be drawn.")
