"""Drawings of environments, and videos of them: the only door to Pillow and FFmpeg.

A drawing is a function of a state and the environment's numbers, which returns a
picture. `register` adds one.
"""

from purerl.report.drawing.canvas import Canvas as Canvas
from purerl.report.drawing.scenes import Drawing as Drawing
from purerl.report.drawing.scenes import bars as bars
from purerl.report.drawing.scenes import drawing_of as drawing_of
from purerl.report.drawing.scenes import register as register
from purerl.report.drawing.scenes import registered as registered
