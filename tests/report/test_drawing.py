"""Drawings show what is where: pixels against geometry that is computed here."""

import math
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from PIL import ImageColor

from purerl import envs
from purerl.config import ConfigError
from purerl.envs.swingup import Motion
from purerl.randomisation import Uniform
from purerl.report import drawing

PAPER, DUSK = "#ffffff", "#2b333d"


def at(picture, column, row):
    """Colour of the pixel in which a point lies, as text."""
    return "#" + "".join(
        f"{x:02x}" for x in picture[math.floor(row), math.floor(column)]
    )


def rgb(colour):
    return ImageColor.getrgb(colour)


@pytest.mark.parametrize(("x", "theta"), [(0.3, 0.15), (-1.4, -0.2), (2.0, 0.0)])
def test_the_tip_of_cartpoles_pole_is_where_geometry_says(x, theta):
    params = envs.CartPole().default_params
    state = SimpleNamespace(x=x, theta=theta)
    picture = drawing.cartpole(state, params)
    assert picture.shape == (240, 320, 3) and picture.dtype == np.uint8
    scale = 320 / (2.5 * 2.4)  # pixels of a metre

    def pixel(share):
        """A point on the pole, which is 1 m long, from its hinge."""
        right, up = x + share * math.sin(theta), share * math.cos(theta)
        return 160 + scale * right, 120 - scale * (up - 0.25 * 2.4)

    assert at(picture, *pixel(0.99)) == drawing.YELLOW
    assert at(picture, *pixel(0.6)) == drawing.YELLOW
    assert at(picture, *pixel(1.12)) == PAPER
    column, row = pixel(-0.1)  # in the cart, under the hinge
    assert at(picture, column, row) == drawing.DARK
    if theta:
        mirrored = 2 * (160 + scale * x) - pixel(0.99)[0]
        assert at(picture, mirrored, pixel(0.99)[1]) == PAPER


@pytest.mark.parametrize(("theta", "row"), [(math.pi, 1), (0.0, -1)])
def test_swingups_pole_hangs_or_stands(theta, row):
    params = envs.make("CartpoleSwingup-v0").default_params
    zero = jnp.float32(0)
    state = SimpleNamespace(motion=Motion(zero, zero, jnp.float32(theta), zero))
    picture = drawing.swingup(state, params)
    scale = 320 / (2 * 1.8 + 0.6)
    assert at(picture, 160, 120 + row * 0.9 * scale) == drawing.YELLOW
    assert at(picture, 160, 120 - row * 0.9 * scale) == PAPER


def test_a_pendulums_angle_is_counter_clockwise_from_upright():
    params = SimpleNamespace(l=1.0, max_torque=2.0)
    state = SimpleNamespace(theta=math.pi / 2, last_u=0.0)
    picture = drawing.pendulum(state, params)
    assert at(picture, 160 - 0.9 * 96, 120) == drawing.BLUE  # 240 / 2.5 pixels a metre
    assert at(picture, 160 + 0.9 * 96, 120) == PAPER
    turned = drawing.pendulum(SimpleNamespace(theta=0.0, last_u=2.0), params)
    other = drawing.pendulum(SimpleNamespace(theta=0.0, last_u=-2.0), params)
    orange = [(p == rgb(drawing.ORANGE)).all(-1) for p in (turned, other)]
    assert orange[0][:, :150].any() and not orange[0][:, 170:].any()
    assert orange[1][:, 170:].any() and not orange[1][:, :150].any()


def test_acrobots_elbow_and_tip():
    """The first link to the right, the second hanging from it."""
    params = envs.make("Acrobot-v1").default_params
    state = SimpleNamespace(joint_angle1=math.pi / 2, joint_angle2=-math.pi / 2)
    picture = drawing.acrobot(state, params)
    scale = 240 / 4.6
    assert at(picture, 160 + 0.5 * scale, 120) == drawing.BLUE
    assert at(picture, 160 + scale, 120 + 0.5 * scale) == drawing.SKY
    assert at(picture, 160 + scale, 120 - 0.5 * scale) == PAPER
    assert at(picture, 40, 120 - scale) == drawing.GREEN  # 1 above the hinge


@pytest.mark.parametrize("position", [-0.5, 0.2, -1.0])
def test_the_car_is_on_the_hill(position):
    params = envs.make("MountainCar-v0").default_params
    picture = drawing.mountain_car(SimpleNamespace(position=position), params)
    blue = np.argwhere((picture == rgb(drawing.BLUE)).all(-1)).mean(0)
    scale = min(320 / (1.2 * 1.8), 240 / 1.35)
    column = 160 + scale * (position + 0.3)
    row = 120 - scale * (0.45 * math.sin(3 * position) + 0.55 - 0.62)
    slope = math.atan(1.35 * math.cos(3 * position))
    # The car is 10 pixels above the ground, at a right angle to it.
    expected = np.array([row - 10 * math.cos(slope), column - 10 * math.sin(slope)])
    assert np.linalg.norm(blue - expected) < 3


def cells(picture, rows, columns):
    """Colours in the middle of the cells of a grid, `[rows][columns]`."""
    assert picture.shape == (9 * rows, 9 * columns, 3)
    return [
        [at(picture, 9 * c + 4, 9 * r + 4) for c in range(columns)] for r in range(rows)
    ]


SKY, YELLOW, GREEN, GREY, ORANGE = (
    getattr(drawing, name) for name in ("SKY", "YELLOW", "GREEN", "GREY", "ORANGE")
)
# Options, shape, state, and colours of cells by the name of the environment.
CLIFF = dict.fromkeys(((3, column) for column in range(1, 10)), "#9c4a2f")
DOORS = dict.fromkeys(((3, column) for column in (1, 2, 4, 5, 6, 7, 8)), GREY)
GRIDS = {
    "Doors-v0": (
        *({"size": (7, 9), "num_doors": 2}, (7, 9)),
        *({"agent": (5, 2), "goal": (0, 7)}, {(5, 2): SKY, (0, 7): YELLOW, **DOORS}),
    ),
    "FourRooms-misc": (
        *({}, (13, 13), {"pos": [3, 8], "goal": [1, 1]}),
        {(3, 8): SKY, (1, 1): YELLOW, (0, 5): GREY},
    ),
    "FrozenLake-misc": ({}, (4, 4), {"position": 6}, {(1, 2): ORANGE, (3, 3): YELLOW}),
    "GridWorld-v0": (
        *({}, (8, 12), {"position": (3, 5)}),
        {(0, 0): YELLOW, (7, 11): GREEN, (3, 5): SKY},
    ),
    "CliffWalking-v0": (
        *({}, (4, 11), {"position": (1, 4)}),
        {(3, 10): YELLOW, (3, 0): GREEN, (1, 4): SKY, **CLIFF},
    ),
    "ObjectGrid-v0": (
        *({"size": (3, 4)}, (3, 4), {"cell": 4, "present": [True, True, False]}),
        {(0, 1): GREEN, (1, 2): ORANGE, (1, 0): SKY},
    ),
}
# Grids of which other cells are not empty.
FULL = ("FourRooms-misc", "FrozenLake-misc")


@pytest.mark.parametrize("name", GRIDS)
def test_cells_of_a_grid_have_the_colours_of_what_stands_there(name):
    kwargs, shape, state, drawn = GRIDS[name]
    env = envs.make(name, **kwargs)
    params = env.default_params
    if name == "ObjectGrid-v0":
        params = params.replace(
            cells=np.array([1, 6, 11]), rewards=np.array([0.5, -0.5, -1.0])
        )
    state = SimpleNamespace(**{key: np.array(value) for key, value in state.items()})
    shown = cells(drawing.drawing_of(env).draw(state, params), *shape)
    for row, column in np.ndindex(*shape):
        if name not in FULL or (row, column) in drawn:
            assert shown[row][column] == drawn.get((row, column), DUSK)


def test_an_observed_grid_has_a_colour_for_each_channel():
    grid = np.zeros((2, 3, 10))
    grid[0, 1, 1] = grid[1, 2, [0, 2]] = grid[1, 0, 9] = 1
    picture = drawing.observation(grid, None)
    first, second = drawing.CHANNELS[:2]
    # The first of several lies above; colours begin again.
    expected = [[DUSK, second, DUSK], [second, DUSK, first]]
    assert cells(picture, 2, 3) == expected
    np.testing.assert_array_equal(drawing.observation(picture, None), picture)


def bandit():
    """Two arms, of which the values are drawn."""
    env = envs.make("KArmedBandit-v0", num_arms=2)
    found, params = drawing.drawing_of(env), env.default_params
    obs, state = env.reset(jax.random.key(0), params)
    state = state.replace(values=jnp.array([2.0, -1.0]))
    return found.draw(*drawing.moment_of(env, found, params, state, obs))


def observation():
    return drawing.bars({"a": np.array([2.0]), "b": np.array([-1.0])}, None)


@pytest.mark.parametrize("make", [observation, bandit])
def test_a_bar_is_as_high_as_its_number(make):
    picture = make()
    # 210 - 34 pixels, half of them above the line; the largest number fills its half.
    blue = (picture == rgb(drawing.BLUE)).all(-1).any(1).sum()
    orange = (picture == rgb(drawing.ORANGE)).all(-1).any(1).sum()
    assert abs(blue - 88) <= 1 and abs(orange - 44) <= 1
    assert (picture[:122] == rgb(drawing.BLUE)).all(-1).any()  # positive is up


def test_a_drawing_of_ones_own(monkeypatch):
    monkeypatch.setattr(drawing, "_DRAWINGS", {})

    class Empty(envs.Environment):
        pass

    assert drawing.drawing_of(Empty()).draw is drawing.observation
    red = np.full((2, 3, 3), (255, 0, 0), np.uint8)
    drawing.register("Empty", lambda state, params: red + np.uint8(state), fps=7)
    found = drawing.drawing_of(Empty())
    assert found.fps == 7
    np.testing.assert_array_equal(found.draw(0, None), red)

    class Drawn(envs.Environment):
        def render(self, state, params=None):
            return red

    assert drawing.drawing_of(Drawn()).draw(None, None) is red


def test_wrappers_are_taken_off_and_drawn_numbers_put_in():
    inside = envs.wrap(envs.make("CartPole-v1"), ("FrameStack(2)", "TimeObservation()"))
    env = envs.wrappers.Randomised(inside)
    params = env.default_params.replace(length=Uniform(1.0, 2.0))
    obs, state = env.reset(jax.random.key(0), params)
    found = drawing.drawing_of(env)
    assert found.draw is drawing.cartpole
    moment = drawing.moment_of(env, found, params, state, obs)
    assert type(moment.state).__name__ == "CartPoleState"
    assert 1.0 <= float(moment.params.length) <= 2.0
    assert found.draw(*moment).shape == (240, 320, 3)


def test_small_pictures_keep_their_cells_and_others_are_refused():
    small = np.zeros((2, 2, 3), np.uint8)
    small[0, 1] = 255
    shown = np.asarray(drawing.fitted(small))
    assert shown.shape == (240, 240, 3)
    assert (shown[:120, 120:] == 255).all() and shown.sum() == 3 * 120 * 120 * 255
    wide = np.asarray(drawing.fitted(np.zeros((100, 400, 3), np.uint8)))
    assert wide.shape == (80, 320, 3)
    with pytest.raises(ConfigError, match=r"uint8 \[height, width, 3\], got float64"):
        drawing.fitted(np.zeros((4, 4, 3)))


DRAWN = {
    source: [
        id
        for id in envs.registered()
        # MNISTBandit loads pictures from the web when it is made.
        if envs.source_of(id) == source and not id.startswith(("probe/", "MNIST"))
    ]
    for source in ("purerl", "gymnax")
}


def test_a_maze_is_drawn_with_its_level_inside_wrappers():
    env = envs.wrap(envs.make("Maze-v0", size=(3, 4)), ("RandomLevels",))
    params = env.default_params
    obs, state = env.reset(jax.random.key(0), params)
    walls = np.zeros((3, 4), bool)
    walls[0, 3] = walls[2, 0] = True
    level = state.level.replace(walls=walls, start=5, goal=2)
    state = state.replace(
        level=level, inner=state.inner.replace(position=np.array([1, 1]))
    )
    found = drawing.drawing_of(env)
    moment = drawing.moment_of(env, found, params, state, obs)
    shown = cells(found.draw(*moment), 3, 4)
    colours = {(0, 3): drawing.GREY, (2, 0): drawing.GREY, (0, 2): drawing.YELLOW}
    for row, column in np.ndindex(3, 4):
        expected = {(1, 1): drawing.SKY, **colours}.get((row, column), DUSK)
        assert shown[row][column] in (expected, drawing.LINE)  # where the agent looks


@pytest.mark.slow
@pytest.mark.parametrize("name", DRAWN["purerl"] + DRAWN["gymnax"])
def test_every_environment_is_drawn_from_its_own_states(name):
    """Moments of random episodes are pictures of the right size, and differ."""
    env = envs.make(name)
    params, found = env.default_params, drawing.drawing_of(env)

    def play(before, key):
        obs, state = before
        moment = drawing.moment_of(env, found, params, state, obs)
        key_act, key_step = jax.random.split(key)
        action = env.action_space(params).sample(key_act)
        return env.step(key_step, state, action, params)[:2], moment

    key = jax.random.key(1)
    with jax.numpy_rank_promotion("allow"):  # gymnax's code broadcasts across ranks.
        start = env.reset(key, params)
        _, moments = jax.lax.scan(play, start, jax.random.split(key, 50))
    pictures = [
        drawing.fitted(found.draw(*jax.tree.map(lambda x, at=at: x[at], moments)))
        for at in (0, 2, 20, 49)
    ]
    # As large as fits, and of the drawing's own shape: a square one is 240 x 240.
    assert all(p.width <= 320 and p.height <= 240 for p in pictures)
    assert all(p.width == 320 or p.height == 240 for p in pictures)
    if name not in ("SimpleBandit-bsuite", "KArmedBandit-v0"):  # Nothing changes.
        assert len({picture.tobytes() for picture in pictures}) > 1
