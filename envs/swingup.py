"""CartpoleSwingup-v0 and its kin: DeepMind Control's `cartpole` tasks in JAX.

Tassa et al. (2018), "DeepMind Control Suite". The numbers are those of `dm_control`'s
`suite/cartpole.py` and `suite/cartpole.xml`; `tests/envs/test_swingup.py` replays
trajectories recorded there. The physics is in `swingup_physics`.
"""

from __future__ import annotations

import dataclasses
import math
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from .base import Environment, EnvState, Info
from .cartpole import _draw_line
from .spaces import Box
from .swingup_physics import CartAndPoleParams, Motion, Number, advance


@struct.dataclass
class SwingupState(EnvState):
    """The motion of cart and pole.

    Attributes:
        motion: Positions and velocities.
    """

    motion: Motion


@struct.dataclass
class SwingupParams(CartAndPoleParams):
    """The physics, the first states and the rewards; the values are `dm_control`'s.

    The fields of the physics are described in `CartAndPoleParams`.

    Attributes:
        reset_std: Standard deviation of the first velocities (m/s, rad/s) and, when the
            pole starts hanging, of the first positions (m, rad).
        reset_x_range: An upright start has the cart uniform in +- this, m.
        reset_theta_range: Range of the pole's first angle, +- this, rad.
        x_margin: Distance from the centre at which `centred` is `value_at_margin`, m.
        theta_dot_margin: Velocity of the pole at which `slow` is `value_at_margin`,
            rad/s.
        action_margin: Action from which on `gentle` is 0.
        value_at_margin: Value of the Gaussian soft indicators at their margin.
        centred_floor: Least factor for being far from the centre.
        slow_floor: Least factor for a fast pole.
        gentle_floor: Least factor for a large action.
        sparse_x: Distance from the centre within which the sparse reward is paid, m.
        sparse_cos: Cosine of the pole's angle from which on the sparse reward is paid.
    """

    reset_std: Number = 0.01
    reset_x_range: Number = 0.1
    reset_theta_range: Number = 0.034
    x_margin: Number = 2.0
    theta_dot_margin: Number = 5.0
    action_margin: Number = 1.0
    value_at_margin: Number = 0.1
    centred_floor: Number = 1 / 2
    slow_floor: Number = 1 / 2
    gentle_floor: Number = 4 / 5
    sparse_x: Number = 0.25
    sparse_cos: Number = 0.995


@dataclasses.dataclass(unsafe_hash=True)
class CartpoleSwingup(Environment[SwingupState, SwingupParams]):
    """Swing a hanging pole up and balance it: DeepMind Control's cartpole swingup.

    * observation: float32 `[5]`: position of the cart (m), cosine and sine of the
      pole's angle from upright, velocity of the cart (m/s), of the pole (rad/s).
    * action: float32 `[1]` in -1 .. 1, the share of the motor's 10 N.
    * reward: upright * gentle * slow * centred, each in 0 .. 1 (`smooth_reward`).
    * terminated: never. truncated: after 1000 steps of 0.01 s.
    * start: cart near the centre, pole hanging, all but at rest.

    The cart can leave the rail's range a little: its ends are soft, as MuJoCo's are.

    Example:
        env = CartpoleSwingup()
        obs, state = env.reset(jax.random.key(0))
        obs, state, reward, terminated, truncated, info = env.step(
            jax.random.key(1), state, jnp.ones(1)
        )
    """

    stochastic_transitions: ClassVar[bool] = False
    starts_upright: ClassVar[bool] = False
    pays_sparsely: ClassVar[bool] = False

    @property
    def name(self) -> str:
        """The class's name with the version, such as `CartpoleSwingup-v0`."""
        return f"{type(self).__name__}-v0"

    @property
    def default_params(self) -> SwingupParams:
        """The constants of `dm_control`."""
        return SwingupParams()

    def reset_env(
        self, key: jax.Array, params: SwingupParams
    ) -> tuple[jax.Array, SwingupState]:
        """Draw the first state: hanging or upright, nearly at rest."""
        motion = (_upright if self.starts_upright else _hanging)(key, params)
        return _observe(motion), SwingupState(jnp.int32(0), motion)

    def step_env(
        self,
        key: jax.Array,
        state: SwingupState,
        action: jax.Array,
        params: SwingupParams,
    ) -> tuple[jax.Array, SwingupState, jax.Array, jax.Array, Info]:
        """Push for one time step; the reward looks at the state that follows.

        Args:
            key: Random key, which is not used.
            state: State of the running episode.
            action: Action of the agent.
            params: Numbers of the environment.
        """
        del key
        motion = advance(state.motion, action[0], params)
        if self.pays_sparsely:
            reward = sparse_reward(motion, params)
        else:
            reward = smooth_reward(motion, action[0], params)
        next_state = SwingupState(state.time + 1, motion)
        return _observe(motion), next_state, reward, jnp.bool_(False), {}

    def action_space(self, params: SwingupParams | None = None) -> Box:
        """Return the space from full force to the left to full force to the right."""
        del params
        return Box(-1.0, 1.0, (1,))

    def observation_space(self, params: SwingupParams | None = None) -> Box:
        """Return a space that bounds cosine and sine only: the rail's ends are soft."""
        del params
        high = np.array([np.inf, 1.0, 1.0, np.inf, np.inf], np.float32)
        return Box(-high, high, (5,))

    def render(
        self, state: SwingupState, params: SwingupParams | None = None
    ) -> np.ndarray:
        """Draw cart (dark), pole (brown), rail and its ends, uint8 `[200, 300, 3]`.

        The width of the picture is the rail with 0.2 m to spare at each end.
        """
        params = self.default_params if params is None else params
        image = np.full((200, 300, 3), 255, np.uint8)
        scale = 150 / (float(params.rail_length) + 0.2)
        cart = np.array([150 + scale * float(state.motion.x), 100.0])
        theta, pole = float(state.motion.theta), float(params.pole_length) * scale
        tip = cart + pole * np.array([math.sin(theta), -math.cos(theta)])
        end = np.array([scale * float(params.rail_length), 0.0])
        centre, up = np.array([150.0, 100.0]), np.array([0.0, 8.0])
        _draw_line(image, centre - end, centre + end, 1, 120)
        for post in (centre - end, centre + end):
            _draw_line(image, post - up, post + up, 1, 120)
        half = np.array([10.0, 0.0])
        _draw_line(image, cart - half, cart + half, 6, (40, 40, 60))
        _draw_line(image, cart, tip, 3, (200, 140, 90))
        return image


class CartpoleSwingupSparse(CartpoleSwingup):
    """Swing the pole up; 1 while it is upright over the centre (`sparse_reward`).

    Everything else is that of `CartpoleSwingup`.
    """

    pays_sparsely: ClassVar[bool] = True


class CartpoleBalance(CartpoleSwingup):
    """Keep a pole upright that starts so: DeepMind Control's cartpole balance.

    Everything but the start is that of `CartpoleSwingup`.
    """

    starts_upright: ClassVar[bool] = True


class CartpoleBalanceSparse(CartpoleBalance):
    """Keep a pole upright; 1 while it is so over the centre (`sparse_reward`).

    Everything else is that of `CartpoleBalance`.
    """

    pays_sparsely: ClassVar[bool] = True


def smooth_reward(
    motion: Motion, action: jax.Array, params: SwingupParams
) -> jax.Array:
    """Pay for an upright pole, in full where it is also slow, centred and gently kept.

    The reward is upright = (1 + cos θ) / 2 times three factors. Each of these is its
    floor plus the rest times a soft indicator, which is a Gaussian of x and of θ' and
    a parabola of the action.

    Args:
        motion: Motion to which the action led.
        action: `[]` float; beyond `action_margin` it counts like that.
        params: Margins and floors.

    Returns:
        float32 `[]` in 0 .. 1.
    """
    upright = (1 + jnp.cos(motion.theta)) / 2
    near = _gaussian(motion.x / params.x_margin, params.value_at_margin)
    slow = _gaussian(motion.theta_dot / params.theta_dot_margin, params.value_at_margin)
    gentle = jnp.maximum(1 - (action / params.action_margin) ** 2, 0.0)
    return (
        upright
        * _above(params.gentle_floor, gentle)
        * _above(params.slow_floor, slow)
        * _above(params.centred_floor, near)
    )


def sparse_reward(motion: Motion, params: SwingupParams) -> jax.Array:
    """Pay 1 while the cart is near the centre and the pole near upright, else 0.

    Args:
        motion: Motion to which the action led.
        params: The two thresholds; both count as inside.

    Returns:
        float32 `[]`.
    """
    is_near = jnp.abs(motion.x) <= params.sparse_x
    is_upright = jnp.cos(motion.theta) >= params.sparse_cos
    return (is_near & is_upright).astype(jnp.float32)


def _hanging(key: jax.Array, params: SwingupParams) -> Motion:
    noise = params.reset_std * jax.random.normal(key, (4,))
    return Motion(noise[0], noise[1], jnp.pi + noise[2], noise[3])


def _upright(key: jax.Array, params: SwingupParams) -> Motion:
    key_position, key_velocity = jax.random.split(key)
    unit = jax.random.uniform(key_position, (2,), minval=-1.0, maxval=1.0)
    x, theta = params.reset_x_range * unit[0], params.reset_theta_range * unit[1]
    velocity = params.reset_std * jax.random.normal(key_velocity, (2,))
    return Motion(x, velocity[0], theta, velocity[1])


def _observe(motion: Motion) -> jax.Array:
    cos, sin = jnp.cos(motion.theta), jnp.sin(motion.theta)
    return jnp.stack([motion.x, cos, sin, motion.x_dot, motion.theta_dot])


def _gaussian(x: jax.Array, value_at_1: Number) -> jax.Array:
    """1 at 0, `value_at_1` at 1: exp(-(x s)^2 / 2) with s^2 = -2 log value_at_1."""
    return jnp.exp(jnp.log(value_at_1) * x**2)


def _above(floor: Number, share: jax.Array) -> jax.Array:
    return floor + (1 - floor) * share
