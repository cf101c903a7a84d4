"""Drawings of what moves in a plane: gymnax's Pong, Reacher, PointRobot, Swimmer."""

import math
from typing import Any

import numpy as np

from purerl.report.drawing.canvas import (
    BLUE,
    DARK,
    DUSK,
    GREEN,
    GREY,
    LINE,
    NIGHT,
    ORANGE,
    PAPER,
    SKY,
    SOFT,
    YELLOW,
    Canvas,
)
from purerl.report.drawing.grids import Draw


def pong(env: Any) -> Draw:
    """Make the drawing of Pong on a field of any size."""
    width, height = int(env.wrapped.width), int(env.wrapped.height)
    half = int(env.wrapped.paddle_half_height)

    def draw(state: Any, params: Any) -> np.ndarray:
        del params
        canvas = Canvas((width / 2, -height / 2), (width + 2, height + 2), NIGHT)
        canvas.box((0, -height), (width, 0), DUSK)
        canvas.line([(width / 2, -height), (width / 2, 0)], GREY, 1)
        for column, centre, colour in zip(
            (0, width - 1), np.asarray(state.paddle_centers), (SKY, ORANGE), strict=True
        ):
            row = math.floor(float(centre))
            low = (column, -min(row + half + 1, height))
            canvas.box(low, (column + 1, -max(row - half, 0)), colour, 2)
        row, column = np.floor(np.asarray(state.ball_position, float))
        middle = (min(max(column, 0), width - 1) + 0.5, -(row + 0.5))
        canvas.disc(middle, 0.7 * canvas.scale, YELLOW)
        return canvas.pixels()

    return draw


def reacher(state: Any, params: Any) -> np.ndarray:
    """Draw Reacher: links of length 1 from the centre, and the goal.

    Args:
        state: State of one environment; angles are from the x axis, each by itself.
        params: Numbers of the environment, which the picture does not use.
    """
    del params
    angles = np.asarray(state.angles, float)
    reach = 2.3 * len(angles)
    canvas = Canvas((0.0, 0.0), (reach, reach))
    canvas.ring((0.0, 0.0), len(angles), SOFT, 2)
    canvas.disc(np.asarray(state.goal_xy, float), 7, GREEN)
    steps = np.stack([np.cos(angles), np.sin(angles)], axis=-1)
    joints = np.concatenate([np.zeros((1, 2)), np.cumsum(steps, axis=0)])
    canvas.line(joints.tolist(), BLUE, 8)
    for joint in joints:
        canvas.disc(joint, 3, PAPER, DARK)
    return canvas.pixels()


def point_robot(state: Any, params: Any) -> np.ndarray:
    """Draw PointRobot: the semi-circle of goals, the goal and its radius, the robot.

    Args:
        state: State of one environment.
        params: Numbers of the environment.
    """
    radius = float(params.circle_radius)
    canvas = Canvas((0.0, 0.0), (3.2 * radius, 2.9 * radius))
    arc = [math.pi * i / 60 for i in range(61)]
    canvas.line([(radius * math.cos(a), radius * math.sin(a)) for a in arc], LINE, 2)
    goal, place = np.asarray(state.goal, float), np.asarray(state.pos, float)
    canvas.disc(goal, float(params.goal_radius) * canvas.scale, "#bfe3d8")
    canvas.disc(goal, 3, GREEN)
    canvas.disc(place, 6, BLUE, DARK)
    return canvas.pixels()


def swimmer(state: Any, params: Any) -> np.ndarray:
    """Draw Swimmer: the urchins to avoid, the goal, the swimmer.

    Args:
        state: State of one environment.
        params: Numbers of the environment, which the picture does not use.
    """
    del params
    canvas = Canvas((0.0, 0.0), (3.2, 2.6), "#e3eff7")
    for urchin in np.asarray(state.urchin_xys, float):
        for turn in range(6):
            angle = math.pi * turn / 6
            spike = 9 / canvas.scale * np.array([math.cos(angle), math.sin(angle)])
            canvas.line([urchin - spike, urchin + spike], DARK, 1.5)
        canvas.disc(urchin, 5, DARK)
    canvas.disc(np.asarray(state.goal_xy, float), 8, GREEN)
    canvas.disc(np.asarray(state.xy, float), 7, ORANGE, PAPER)
    return canvas.pixels()
