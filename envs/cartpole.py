"""CartPole-v1: balance a pole on a cart (Barto, Sutton and Anderson 1983)."""

import dataclasses
import math
from typing import ClassVar

import jax
import jax.numpy as jnp
from flax import struct

from .base import Array, Environment, EnvParams, EnvState, Obs, Step
from .spaces import Box, Discrete, bounds


@struct.dataclass
class CartPoleState(EnvState):
    """The positions and velocities of cart and pole.

    Attributes:
        x: Position of the cart, m.
        x_dot: Velocity of the cart, m/s.
        theta: Angle of the pole from upright, rad.
        theta_dot: Angular velocity of the pole, rad/s.
    """

    x: Array
    x_dot: Array
    theta: Array
    theta_dot: Array


@struct.dataclass
class CartPoleParams(EnvParams):
    """The physics and the rules; the values are Gymnasium's.

    Attributes:
        max_steps_in_episode: Steps after which an episode is truncated.
        gravity: Acceleration of gravity, m/s^2.
        masscart: Mass of the cart, kg.
        masspole: Mass of the pole, kg.
        length: Half the length of the pole, m.
        force_mag: Size of the push, N.
        tau: Time between two actions, s.
        theta_threshold_radians: Angle at which the episode terminates, rad.
        x_threshold: Distance from the centre at which it terminates, m.
        reset_range: Each number of the first state is uniform in +- this.
    """

    max_steps_in_episode: int | Array = 500
    gravity: float | Array = 9.8
    masscart: float | Array = 1.0
    masspole: float | Array = 0.1
    length: float | Array = 0.5
    force_mag: float | Array = 10.0
    tau: float | Array = 0.02
    theta_threshold_radians: float | Array = 12 * math.pi / 180
    x_threshold: float | Array = 2.4
    reset_range: float | Array = 0.05

    @property
    def total_mass(self) -> float | Array:
        """Mass of cart and pole together, kg."""
        return self.masscart + self.masspole

    @property
    def pole_moment(self) -> float | Array:
        """Mass of the pole times half its length, kg m."""
        return self.masspole * self.length


@dataclasses.dataclass(unsafe_hash=True)
class CartPole(Environment[CartPoleState, CartPoleParams]):
    """Gymnasium's CartPole-v1 in JAX.

    * observation: float32 `[4]`: x, x_dot, theta, theta_dot.
    * action: int32 `[]`: 0 pushes left, 1 pushes right.
    * reward: 1 for every step, the one that terminates included.
    * terminated: the cart or the pole left its range. truncated: after 500 steps.

    The equations are those of Gymnasium (frictionless, explicit Euler), from Florian
    (2007), "Correct equations for the dynamics of the cart-pole system".

    Example:
        env = CartPole()
        obs, state = env.reset(jax.random.key(0))
        obs, state, reward, terminated, truncated, info = env.step(
            jax.random.key(1), state, jnp.int32(1)
        )
    """

    title: ClassVar[str] = "CartPole-v1"
    stochastic_transitions: ClassVar[bool] = False

    @property
    def default_params(self) -> CartPoleParams:
        """The constants of Gymnasium."""
        return CartPoleParams()

    def reset_env(
        self, key: Array, params: CartPoleParams
    ) -> tuple[Obs, CartPoleState]:
        """Start near the centre, nearly upright."""
        unit = jax.random.uniform(key, (4,), minval=-1.0, maxval=1.0)
        obs = params.reset_range * unit
        return obs, CartPoleState(jnp.int32(0), obs[0], obs[1], obs[2], obs[3])

    def step_env(
        self, key: Array, state: CartPoleState, action: Array, params: CartPoleParams
    ) -> Step:
        """Push, and integrate one time step."""
        x_acc, theta_acc = _accelerations(state, action, params)
        next_state = CartPoleState(
            time=state.time + 1,
            x=state.x + params.tau * state.x_dot,
            x_dot=state.x_dot + params.tau * x_acc,
            theta=state.theta + params.tau * state.theta_dot,
            theta_dot=state.theta_dot + params.tau * theta_acc,
        )
        terminated = _out_of_range(next_state, params)
        # As in Gymnasium: the step that ends the episode pays, those after it do not.
        was_over = _out_of_range(state, params)
        reward = 1.0 - (terminated & was_over).astype(jnp.float32)
        return _observe(next_state), next_state, reward, terminated, {}

    def action_space(self, params: CartPoleParams | None = None) -> Discrete:
        """Return the space of two pushes."""
        return Discrete(2)

    def observation_space(self, params: CartPoleParams | None = None) -> Box:
        """Return twice the range that terminates as a space; speeds are unbounded."""
        params = self.default_params if params is None else params
        x, theta = 2 * params.x_threshold, 2 * params.theta_threshold_radians
        high = bounds(x, math.inf, theta, math.inf)
        return Box(-high, high, (4,))


def _accelerations(
    state: CartPoleState, action: Array, params: CartPoleParams
) -> tuple[Array, Array]:
    """Accelerations of cart (m/s^2) and pole (rad/s^2)."""
    force = jnp.where(action == 1, params.force_mag, -params.force_mag)
    cos, sin = jnp.cos(state.theta), jnp.sin(state.theta)
    total, moment = params.total_mass, params.pole_moment
    drive = (force + moment * state.theta_dot**2 * sin) / total
    inertia = params.length * (4.0 / 3.0 - params.masspole * cos**2 / total)
    theta_acc = (params.gravity * sin - cos * drive) / inertia
    return drive - moment * theta_acc * cos / total, theta_acc


def _out_of_range(state: CartPoleState, params: CartPoleParams) -> Array:
    return (jnp.abs(state.x) > params.x_threshold) | (
        jnp.abs(state.theta) > params.theta_threshold_radians
    )


def _observe(state: CartPoleState) -> Array:
    return jnp.stack([state.x, state.x_dot, state.theta, state.theta_dot])
