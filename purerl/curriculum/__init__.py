"""Curricula: which levels of an environment an agent is trained in, and when."""

from purerl.curriculum.plr import ENTRY as ENTRY
from purerl.curriculum.plr import PLRConfig as PLRConfig
