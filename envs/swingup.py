"""CartpoleSwingup-v0 and its kin: DeepMind Control's `cartpole` tasks in JAX.

Tassa et al. (2018), "DeepMind Control Suite". The numbers are those of `dm_control`'s
`suite/cartpole.py` and `suite/cartpole.xml`; `tests/envs/test_swingup.py` replays
trajectories recorded there.

The physics is a cart on a rail with a hanging pole, integrated as MuJoCo integrates it.
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

import dataclasses
from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from .base import Array, Environment, EnvParams, EnvState, Obs, Step
from .spaces import Box

Number = float | Array


class Motion(NamedTuple):
    """The positions and velocities of cart and pole, or their rates of change.

    Attributes:
        x: Position of the cart, m.
        x_dot: Velocity of the cart, m/s.
        theta: Angle of the pole from upright, rad, clockwise as seen with x to the
            right: the tip is at x + length * sin(theta).
        theta_dot: Angular velocity of the pole, rad/s.
    """

    x: Array
    x_dot: Array
    theta: Array
    theta_dot: Array


@struct.dataclass
class SwingupParams(EnvParams):
    """The physics, the first states and the rewards.

    The values are those of `cartpole.xml`, MuJoCo's defaults and `dm_control`'s.

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

    max_steps_in_episode: int | Array = 1_000
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


def advance(motion: Motion, action: Array, params: SwingupParams) -> Motion:
    """Integrate one time step with the action held, by the classic Runge-Kutta method.

    Args:
        motion: Motion at the beginning of the step.
        action: `[]` float; clipped to -1 .. 1, as MuJoCo clips it.

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


def _rates(motion: Motion, push: Array, params: SwingupParams) -> Motion:
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
    x: Array, x_dot: Array, free: Array, mobility: Array, params: SwingupParams
) -> Array:
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


@struct.dataclass
class SwingupState(EnvState):
    """The motion of cart and pole.

    Attributes:
        motion: Positions and velocities.
    """

    motion: Motion


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

    def reset_env(self, key: Array, params: SwingupParams) -> tuple[Obs, SwingupState]:
        """Draw the first state: hanging or upright, nearly at rest."""
        motion = (_upright if self.starts_upright else _hanging)(key, params)
        return _observe(motion), SwingupState(jnp.int32(0), motion)

    def step_env(
        self, key: Array, state: SwingupState, action: Array, params: SwingupParams
    ) -> Step:
        """Push for one time step; the reward looks at the state that follows."""
        motion = advance(state.motion, action[0], params)
        if self.pays_sparsely:
            reward = sparse_reward(motion, params)
        else:
            reward = smooth_reward(motion, action[0], params)
        next_state = SwingupState(state.time + 1, motion)
        return _observe(motion), next_state, reward, jnp.bool_(False), {}

    def action_space(self, params: SwingupParams | None = None) -> Box:
        """Return the space from full force to the left to full force to the right."""
        return Box(-1.0, 1.0, (1,))

    def observation_space(self, params: SwingupParams | None = None) -> Box:
        """Return a space that bounds cosine and sine only: the rail's ends are soft."""
        high = np.array([np.inf, 1.0, 1.0, np.inf, np.inf], np.float32)
        return Box(-high, high, (5,))


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


def smooth_reward(motion: Motion, action: Array, params: SwingupParams) -> Array:
    """Pay for an upright pole, in full where it is also slow, centred and gently kept.

    The reward is upright = (1 + cos θ) / 2 times three factors. Each of these is its
    floor plus the rest times a soft indicator, which is a Gaussian of x and of θ' and
    a parabola of the action.

    Args:
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


def sparse_reward(motion: Motion, params: SwingupParams) -> Array:
    """Pay 1 while the cart is near the centre and the pole near upright, else 0.

    Args:
        params: The two thresholds; both count as inside.

    Returns:
        float32 `[]`.
    """
    is_near = jnp.abs(motion.x) <= params.sparse_x
    is_upright = jnp.cos(motion.theta) >= params.sparse_cos
    return (is_near & is_upright).astype(jnp.float32)


def _hanging(key: Array, params: SwingupParams) -> Motion:
    noise = params.reset_std * jax.random.normal(key, (4,))
    return Motion(noise[0], noise[1], jnp.pi + noise[2], noise[3])


def _upright(key: Array, params: SwingupParams) -> Motion:
    key_position, key_velocity = jax.random.split(key)
    unit = jax.random.uniform(key_position, (2,), minval=-1.0, maxval=1.0)
    x, theta = params.reset_x_range * unit[0], params.reset_theta_range * unit[1]
    velocity = params.reset_std * jax.random.normal(key_velocity, (2,))
    return Motion(x, velocity[0], theta, velocity[1])


def _observe(motion: Motion) -> Array:
    cos, sin = jnp.cos(motion.theta), jnp.sin(motion.theta)
    return jnp.stack([motion.x, cos, sin, motion.x_dot, motion.theta_dot])


def _gaussian(x: Array, value_at_1: Number) -> Array:
    """1 at 0, `value_at_1` at 1: exp(-(x s)^2 / 2) with s^2 = -2 log value_at_1."""
    return jnp.exp(jnp.log(value_at_1) * x**2)


def _above(floor: Number, share: Array) -> Array:
    return floor + (1 - floor) * share
