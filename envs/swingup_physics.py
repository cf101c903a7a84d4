"""A cart on a rail with a hanging pole, integrated as MuJoCo integrates it.

The model is DeepMind Control's `cartpole.xml` (Tassa et al. 2018, "DeepMind Control
Suite"): a cart that a motor pushes along a rail with soft ends, and a free capsule
hinged to it. MuJoCo's general machinery is a closed form here: two degrees of freedom,
and never more than one active constraint.

With x the cart's position, θ the pole's angle from upright, m the mass of the pole, l
the distance from its hinge to its centre and J its inertia about the hinge:

    [ M + m      m l cos θ ] [x'' ]   [ u - d_x x' + m l sin θ θ'^2 + f ]
    [ m l cos θ  J         ] [θ'' ] = [ m g l sin θ - d_θ θ'            ]

u is the motor's force and f that of a rail end (`_rail_force`).
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from flax import struct

from .base import EnvParams

Number = float | jax.Array


class Motion(NamedTuple):
    """The positions and velocities of cart and pole, or their rates of change.

    Attributes:
        x: Position of the cart, m.
        x_dot: Velocity of the cart, m/s.
        theta: Angle of the pole from upright, rad, clockwise as seen with x to the
            right: the tip is at x + length * sin(theta).
        theta_dot: Angular velocity of the pole, rad/s.
    """

    x: jax.Array
    x_dot: jax.Array
    theta: jax.Array
    theta_dot: jax.Array


@struct.dataclass
class CartAndPoleParams(EnvParams):
    """The physics; the values are those of `cartpole.xml` and MuJoCo's defaults.

    Attributes:
        max_steps_in_episode: Steps after which an episode is truncated.
        timestep: Time between two actions, one step of the integrator, s.
        gravity: Acceleration of gravity, m/s^2.
        cart_mass: Mass of the cart, kg.
        pole_mass: Mass of the pole, kg.
        pole_length: Length of the capsule's cylinder, hinge to tip, m.
        pole_radius: Radius of the capsule, m.
        gear: Force of the motor at action 1, N.
        cart_damping: Force per velocity, N s/m.
        pole_damping: Torque per angular velocity, N m s.
        rail_length: Distance from the centre to each rail end, m.
        rail_timeconst: Time constant of a rail end (`solreflimit[0]`), s.
        rail_dampratio: Damping ratio of the rail's ends, 1 is critical
            (`solreflimit[1]`).
        rail_impedance: Impedance of the rail's ends at first contact
            (`solimplimit[0]`).
        rail_impedance_deep: Impedance of the rail's ends beyond `rail_width`
            (`solimplimit[1]`).
        rail_width: Depth over which the impedance grows (`solimplimit[2]`), m.
    """

    max_steps_in_episode: int | jax.Array = 1_000
    timestep: Number = 0.01
    gravity: Number = 9.81
    cart_mass: Number = 1.0
    pole_mass: Number = 0.1
    pole_length: Number = 1.0
    pole_radius: Number = 0.045
    gear: Number = 10.0
    cart_damping: Number = 5e-4
    pole_damping: Number = 2e-6
    rail_length: Number = 1.8
    rail_timeconst: Number = 0.08
    rail_dampratio: Number = 1.0
    rail_impedance: Number = 0.9
    rail_impedance_deep: Number = 0.95
    rail_width: Number = 1e-3

    @property
    def total_mass(self) -> Number:
        """Mass of cart and pole together, kg."""
        return self.cart_mass + self.pole_mass

    @property
    def pole_moment(self) -> Number:
        """Mass of the pole times the distance of its centre from the hinge, kg m."""
        return self.pole_mass * self.pole_length / 2

    @property
    def pole_inertia(self) -> Number:
        """Inertia of the pole about its hinge, kg m^2: a solid capsule.

        A cylinder of length h and two half balls share the mass by volume. About the
        capsule's centre the cylinder has m (3 r^2 + h^2) / 12 and the half balls
        together m (2/5 r^2 + h^2/4 + 3/8 r h); then the parallel axis at h/2.
        """
        h, r = self.pole_length, self.pole_radius
        # Volumes over pi r^2: cylinder h, ball 4/3 r.
        balls = self.pole_mass * 4 * r / (3 * h + 4 * r)
        cylinder = self.pole_mass - balls
        centre = cylinder * (3 * r**2 + h**2) / 12
        centre = centre + balls * (2 / 5 * r**2 + h**2 / 4 + 3 / 8 * r * h)
        return centre + self.pole_mass * (h / 2) ** 2

    @property
    def cart_mobility(self) -> Number:
        """Acceleration of the cart per force while the pole is upright, 1/kg.

        MuJoCo's `dof_invweight0`, which scales the softness of the rail ends.
        """
        inertia = self.pole_inertia
        return inertia / (self.total_mass * inertia - self.pole_moment**2)


def advance(motion: Motion, action: jax.Array, params: CartAndPoleParams) -> Motion:
    """Integrate one time step with the action held, by the classic Runge-Kutta method.

    Args:
        motion: Motion at the beginning of the step.
        action: `[]` float; clipped to -1 .. 1, as MuJoCo clips it.
        params: The physics.

    Returns:
        The motion one `timestep` later. The angle is wrapped to -pi .. pi, so that a
        pole that turns for long loses no precision.
    """
    push = params.gear * jnp.clip(action, -1.0, 1.0)
    step = params.timestep

    def follow(rates: Motion, time: Number) -> Motion:
        return jax.tree.map(lambda at, rate: at + time * rate, motion, rates)

    first = _rates(motion, push, params)
    second = _rates(follow(first, step / 2), push, params)
    third = _rates(follow(second, step / 2), push, params)
    fourth = _rates(follow(third, step), push, params)
    mean = jax.tree.map(
        lambda a, b, c, d: (a + 2 * b + 2 * c + d) / 6, first, second, third, fourth
    )
    end = follow(mean, step)
    turns = jnp.round(end.theta / (2 * jnp.pi))
    return end._replace(theta=end.theta - 2 * jnp.pi * turns)


def _rates(motion: Motion, push: jax.Array, params: CartAndPoleParams) -> Motion:
    """Velocities and accelerations under a push, N."""
    x, x_dot, theta, theta_dot = motion
    cos, sin = jnp.cos(theta), jnp.sin(theta)
    total, moment, inertia = params.total_mass, params.pole_moment, params.pole_inertia
    coupling = moment * cos
    determinant = total * inertia - coupling**2

    force = push - params.cart_damping * x_dot + moment * sin * theta_dot**2
    torque = params.gravity * moment * sin - params.pole_damping * theta_dot
    free = (inertia * force - coupling * torque) / determinant
    force = force + _rail_force(x, x_dot, free, inertia / determinant, params)
    return Motion(
        x=x_dot,
        x_dot=(inertia * force - coupling * torque) / determinant,
        theta=theta_dot,
        theta_dot=(total * torque - coupling * force) / determinant,
    )


def _rail_force(
    x: jax.Array,
    x_dot: jax.Array,
    free: jax.Array,
    mobility: jax.Array,
    params: CartAndPoleParams,
) -> jax.Array:
    """Force of a rail end on the cart, N; zero between the ends.

    MuJoCo's soft limit (its documentation, chapter Computation, "Constraint model" and
    chapter Modeling, "Solver parameters"). At depth p > 0, with everything
    counted towards the centre, the constraint wants the acceleration

        a* = b v_out + k d p,    b = 2 / (d_deep T),    k = 1 / (d_deep T ζ)^2

    and gets it up to its softness R = (1 - d) / d * `cart_mobility`. Its dual problem
    has the one unknown f, so the solver's fixed point is explicit:

        f = max(0, (a* - a_free) / (mobility + R))

    The impedance d grows from `rail_impedance` to `rail_impedance_deep` over
    `rail_width`, along two parabolas (power 2 and midpoint 0.5, MuJoCo's defaults).

    Args:
        x: Position of the cart, m.
        x_dot: Velocity of the cart, m/s.
        free: Acceleration of the cart without this force, m/s^2.
        mobility: Acceleration of the cart per force at this angle, 1/kg.
        params: The physics.
    """
    side = jnp.sign(x)
    depth = side * x - params.rail_length

    share = jnp.clip(depth / params.rail_width, 0.0, 1.0)
    grown = jnp.where(share < 0.5, 2 * share**2, 1 - 2 * (1 - share) ** 2)
    deep = params.rail_impedance_deep
    impedance = params.rail_impedance + grown * (deep - params.rail_impedance)

    # MuJoCo keeps the time constant at two steps or more, lest the limit be unstable.
    timeconst = jnp.maximum(params.rail_timeconst, 2 * params.timestep)
    damping = 2 / (deep * timeconst)
    stiffness = 1 / (deep * timeconst * params.rail_dampratio) ** 2
    wanted = damping * side * x_dot + stiffness * impedance * depth
    softness = (1 - impedance) / impedance * params.cart_mobility

    inward = jnp.maximum((wanted + side * free) / (mobility + softness), 0.0)
    return jnp.where(depth > 0, -side * inward, 0.0)
