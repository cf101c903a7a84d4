"""Drawings of classic control: carts, poles, pendulums and hills."""

import math
from typing import Any

import numpy as np

from purerl.report.drawing.canvas import (
    BLUE,
    DARK,
    GREEN,
    LINE,
    ORANGE,
    PAPER,
    SKY,
    SOFT,
    YELLOW,
    Canvas,
)


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
        canvas.line([(end, -0.12 * limit), (end, 0.12 * limit)], ORANGE, 2)
    canvas.line([(-2 * limit, 0.0), (2 * limit, 0.0)], LINE, 2)
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
    canvas.line([(-rail, 0.0), (rail, 0.0)], LINE, 3)
    for end in (-rail, rail):
        canvas.line([(end, -0.12), (end, 0.12)], ORANGE, 3)
    motion = state.motion
    _cart_and_pole(canvas, float(motion.x), float(motion.theta), length)
    return canvas.pixels()


def _cart_and_pole(canvas: Canvas, x: float, theta: float, length: float) -> None:
    """The pole is hinged at the cart's centre; its angle is clockwise from upright."""
    wide, high = 22 / canvas.scale, 11 / canvas.scale
    canvas.box((x - wide, -high), (x + wide, high), DARK, 3)
    tip = (x + length * math.sin(theta), length * math.cos(theta))
    canvas.line([(x, 0.0), tip], YELLOW, 7)
    canvas.disc((x, 0.0), 4, PAPER)
    canvas.disc((x, 0.0), 2.5, BLUE)


def pendulum(state: Any, params: Any) -> np.ndarray:
    """Draw Pendulum: the rod, and an arc that is as long as the torque is large.

    Args:
        state: State of one environment; its angle is counter-clockwise from upright.
        params: Numbers of the environment.
    """
    length, theta = float(params.l), float(state.theta)
    canvas = Canvas((0.0, 0.0), (2.5 * length, 2.5 * length))
    canvas.ring((0.0, 0.0), length, SOFT, 2)
    tip = (-length * math.sin(theta), length * math.cos(theta))
    canvas.line([(0.0, 0.0), tip], BLUE, 12)
    canvas.disc((0.0, 0.0), 4, PAPER)
    share = float(np.ravel(state.last_u)[0]) / float(params.max_torque)
    _arc(canvas, 0.35 * length, share)
    return canvas.pixels()


def _arc(canvas: Canvas, radius: float, share: float) -> None:
    """An arrow around the hinge from the top, counter-clockwise if positive."""
    if abs(share) < 0.02:
        return
    sweep = 0.75 * math.pi * max(-1.0, min(1.0, share))
    angles = [math.pi / 2 + sweep * i / 24 for i in range(25)]
    canvas.line([_polar(radius, angle) for angle in angles], ORANGE, 3)
    size, turn = 7 / canvas.scale, math.copysign(1.0, share)
    end = angles[-1]
    head = (
        _polar(radius + size, end),
        _polar(radius - size, end),
        _polar(radius, end + turn * 1.6 * size / radius),
    )
    canvas.shape(head, ORANGE)


def _polar(radius: float, angle: float) -> tuple[float, float]:
    return radius * math.cos(angle), radius * math.sin(angle)


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
    canvas.line([(-wide, 1.0), (wide, 1.0)], GREEN, 2)
    one = float(state.joint_angle1)
    two = one + float(state.joint_angle2)
    elbow = (first * math.sin(one), -first * math.cos(one))
    tip = (elbow[0] + second * math.sin(two), elbow[1] - second * math.cos(two))
    canvas.line([(0.0, 0.0), elbow], BLUE, 10)
    canvas.line([elbow, tip], SKY, 10)
    for joint in ((0.0, 0.0), elbow):
        canvas.disc(joint, 4, PAPER, DARK)
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
    canvas.shape([*hill, *bottom], SOFT)
    canvas.line(hill, LINE, 2)
    goal = float(params.goal_position)
    top = _height(goal) + 0.28
    canvas.line([(goal, _height(goal)), (goal, top)], DARK, 2)
    canvas.shape([(goal, top), (goal + 0.14, top - 0.05), (goal, top - 0.1)], GREEN)
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

    canvas.turned_box(at(0, 12), (17 * unit, 6 * unit), angle, BLUE)
    canvas.turned_box(at(-2, 20), (9 * unit, 4 * unit), angle, SKY)
    for along in (-9, 9):
        canvas.disc(at(along, 5), 5, DARK)
        canvas.disc(at(along, 5), 2, SOFT)


def _height(position: float) -> float:
    """Height of the track, from which the slope in its physics follows."""
    return 0.45 * math.sin(3 * position) + 0.55
