"""Drawings of environments, and videos of them: the only door to Pillow and FFmpeg.

A drawing is a function of a state and the environment's numbers, which returns a
picture. `register` adds one.
"""

from purerl.report.drawing.canvas import Canvas as Canvas
from purerl.report.drawing.film import Panel as Panel
from purerl.report.drawing.film import Take as Take
from purerl.report.drawing.film import write_film as write_film
from purerl.report.drawing.registry import Drawing as Drawing
from purerl.report.drawing.registry import drawing_of as drawing_of
from purerl.report.drawing.registry import register as register
from purerl.report.drawing.registry import registered as registered
from purerl.report.drawing.scenes import bars as bars
