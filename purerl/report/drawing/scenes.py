"""Drawings of what moves in a plane, and of observations as bars."""

import math
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from purerl.report.drawing import canvas as c
from purerl.report.drawing.canvas import Canvas
from purerl.report.sweep_data import label

MOST = 24  # Numbers that have a bar each.
NAMED = 6  # Of more numbers than these none is written under its bar.
_LEFT, _RIGHT, _TOP, _BOTTOM = 24, 16, 34, 30


def cartpole(state: Any, params: Any) -> np.ndarray:
    """Draw CartPole: the track, the ends at which an episode terminates, the pole.

    Args:
        state: State of one environment.
        params: Numbers of the environment; a little more than the range of the cart is
            shown.
    """
    limit, length = float(params.x_threshold), 2 * float(params.length)
    canvas = Canvas((0.0, 0.25 * limit), (2.5 * limit, 1.85 * limit))
    for end in (-limit, limit):
        canvas.line([(end, -0.12 * limit), (end, 0.12 * limit)], c.ORANGE, 2)
    canvas.line([(-2 * limit, 0.0), (2 * limit, 0.0)], c.LINE, 2)
    _cart_and_pole(canvas, float(state.x), float(state.theta), length)
    return canvas.pixels()


def swingup(state: Any, params: Any) -> np.ndarray:
    """Draw CartpoleSwingup and its kin: the rail with its ends, the cart, the pole.

    Args:
        state: State of one environment.
        params: Numbers of the environment; the width of the picture is the rail.
    """
    rail, length = float(params.rail_length), float(params.pole_length)
    canvas = Canvas((0.0, 0.0), (2 * rail + 0.6, 2 * length + 0.6))
    canvas.line([(-rail, 0.0), (rail, 0.0)], c.LINE, 3)
    for end in (-rail, rail):
        canvas.line([(end, -0.12), (end, 0.12)], c.ORANGE, 3)
    motion = state.motion
    _cart_and_pole(canvas, float(motion.x), float(motion.theta), length)
    return canvas.pixels()


def _cart_and_pole(canvas: Canvas, x: float, theta: float, length: float) -> None:
    """The pole is hinged at the cart's centre; its angle is clockwise from upright."""
    wide, high = 22 / canvas.scale, 11 / canvas.scale
    canvas.box((x - wide, -high), (x + wide, high), c.DARK, 3)
    tip = (x + length * math.sin(theta), length * math.cos(theta))
    canvas.line([(x, 0.0), tip], c.YELLOW, 7)
    canvas.disc((x, 0.0), 4, c.PAPER)
    canvas.disc((x, 0.0), 2.5, c.BLUE)


def pendulum(state: Any, params: Any) -> np.ndarray:
    """Draw Pendulum: the rod, and a bar that is as long as the torque is large.

    Args:
        state: State of one environment; its angle is counter-clockwise from upright.
        params: Numbers of the environment.
    """
    length, theta = float(params.l), float(state.theta)
    canvas = Canvas((0.0, 0.0), (2.5 * length, 2.5 * length))
    canvas.ring((0.0, 0.0), length, c.SOFT, 2)
    tip = (-length * math.sin(theta), length * math.cos(theta))
    canvas.line([(0.0, 0.0), tip], c.BLUE, 12)
    canvas.disc((0.0, 0.0), 4, c.PAPER)
    push = float(np.ravel(state.last_u)[0]) / float(params.max_torque)
    # A bar to the side to which it pushes at the top, as long as the torque is large.
    along = (-0.6 * length * push, 1.15 * length)
    canvas.line([(0.0, 1.15 * length), along], c.ORANGE, 4)
    return canvas.pixels()


def acrobot(state: Any, params: Any) -> np.ndarray:
    """Draw Acrobot: two links that hang, and the height that the tip has to reach.

    Args:
        state: State of one environment; the first angle is from hanging, the second
            from the first link, both counter-clockwise.
        params: Numbers of the environment.
    """
    first, second = float(params.link_length_1), float(params.link_length_2)
    reach = 1.15 * (first + second)
    canvas = Canvas((0.0, 0.0), (2 * reach, 2 * reach))
    wide = 2 * reach
    canvas.line([(-wide, 1.0), (wide, 1.0)], c.GREEN, 2)
    one = float(state.joint_angle1)
    two = one + float(state.joint_angle2)
    elbow = (first * math.sin(one), -first * math.cos(one))
    tip = (elbow[0] + second * math.sin(two), elbow[1] - second * math.cos(two))
    canvas.line([(0.0, 0.0), elbow], c.BLUE, 10)
    canvas.line([elbow, tip], c.SKY, 10)
    for joint in ((0.0, 0.0), elbow):
        canvas.disc(joint, 4, c.PAPER, c.DARK)
    return canvas.pixels()


def mountain_car(state: Any, params: Any) -> np.ndarray:
    """Draw MountainCar, discrete or continuous: the valley, the car and the flag.

    Args:
        state: State of one environment.
        params: Numbers of the environment; a little more than the range of positions is
            shown.
    """
    low, high = float(params.min_position), float(params.max_position)
    canvas = Canvas(((low + high) / 2, 0.62), (1.2 * (high - low), 1.35))
    beyond = 0.5 * (high - low)
    grid = np.linspace(low - beyond, high + beyond, 160)
    hill = [(x, _height(x)) for x in grid]
    bottom = [(grid[-1], -1.0), (grid[0], -1.0)]
    canvas.shape([*hill, *bottom], c.SOFT)
    canvas.line(hill, c.LINE, 2)
    goal = float(params.goal_position)
    top = _height(goal) + 0.28
    canvas.line([(goal, _height(goal)), (goal, top)], c.DARK, 2)
    canvas.shape([(goal, top), (goal + 0.14, top - 0.05), (goal, top - 0.1)], c.GREEN)
    position = float(state.position)
    angle = math.atan(3 * 0.45 * math.cos(3 * position))
    _car(canvas, position, angle)
    return canvas.pixels()


def _car(canvas: Canvas, position: float, angle: float) -> None:
    cos, sin = math.cos(angle), math.sin(angle)
    unit = 1 / canvas.scale

    def at(along: float, above: float) -> tuple[float, float]:
        """A point of the car, in pixels along the slope and above it."""
        x = position + (along * cos - above * sin) * unit
        return x, _height(position) + (along * sin + above * cos) * unit

    canvas.turned_box(at(0, 12), (17 * unit, 6 * unit), angle, c.BLUE)
    canvas.turned_box(at(-2, 20), (9 * unit, 4 * unit), angle, c.SKY)
    for along in (-9, 9):
        canvas.disc(at(along, 5), 5, c.DARK)
        canvas.disc(at(along, 5), 2, c.SOFT)


def _height(position: float) -> float:
    """Height of the track, from which the slope in its physics follows."""
    return 0.45 * math.sin(3 * position) + 0.55


def pong(env: Any) -> Callable[[Any, Any], np.ndarray]:
    """Make the drawing of Pong on a field of any size."""
    width, height = int(env.wrapped.width), int(env.wrapped.height)
    half = int(env.wrapped.paddle_half_height)

    def draw(state: Any, params: Any) -> np.ndarray:
        canvas = Canvas((width / 2, -height / 2), (width + 2, height + 2), c.NIGHT)
        canvas.box((0, -height), (width, 0), c.DUSK)
        canvas.line([(width / 2, -height), (width / 2, 0)], c.GREY, 1)
        for column, centre, colour in zip(
            (0, width - 1),
            np.asarray(state.paddle_centers),
            (c.SKY, c.ORANGE),
            strict=True,
        ):
            row = math.floor(float(centre))
            low = (column, -min(row + half + 1, height))
            canvas.box(low, (column + 1, -max(row - half, 0)), colour, 2)
        row, column = np.floor(np.asarray(state.ball_position, float))
        middle = (min(max(column, 0), width - 1) + 0.5, -(row + 0.5))
        canvas.disc(middle, 0.7 * canvas.scale, c.YELLOW)
        return canvas.pixels()

    return draw


def bars(state: Any, params: Any, *, title: str = "observation") -> np.ndarray:
    """Draw an observation as bars: what the agent sees, number by number.

    A bar is full at the largest size of a number that is shown, or at 1 if that is
    larger. Of more than `MOST` numbers the first ones are drawn.

    Args:
        state: Observation: an array, or a pytree of arrays, in the order of its parts.
        params: Numbers of the environment, which the picture does not use.
        title: Name of the numbers, written above them.
    """
    parts = [np.asarray(leaf, float).ravel() for leaf in jax.tree.leaves(state)]
    numbers = np.concatenate(parts)
    shown = np.nan_to_num(numbers[:MOST])
    canvas = Canvas((c.WIDTH / 2, -c.HEIGHT / 2), (c.WIDTH, c.HEIGHT))
    more = f", the first {MOST} of {len(numbers):,}" if len(numbers) > MOST else ""
    canvas.text((_LEFT, -16), f"{title}{more}", c.DARK, 12)
    largest = max(1.0, float(np.abs(shown).max(initial=0.0)))
    middle = (_TOP + c.HEIGHT - _BOTTOM) / 2
    reach = (c.HEIGHT - _BOTTOM - _TOP) / 2
    width = (c.WIDTH - _LEFT - _RIGHT) / max(len(shown), 1)
    for index, number in enumerate(shown):
        left = _LEFT + index * width
        inside = (left + 0.12 * width, left + 0.88 * width)
        canvas.box((inside[0], -middle - reach), (inside[1], -middle + reach), c.SOFT)
        tall = reach * float(number) / largest
        low, high = sorted((-middle, -middle + tall))
        canvas.box(
            (inside[0], low), (inside[1], high), c.BLUE if tall > 0 else c.ORANGE
        )
        if len(shown) <= NAMED:
            at = (left + width / 2, -c.HEIGHT + _BOTTOM / 2)
            canvas.text(at, label(float(number)), c.DARK, 10, "mm")
    canvas.line([(_LEFT, -middle), (c.WIDTH - _RIGHT, -middle)], c.DARK, 1)
    return canvas.pixels()
