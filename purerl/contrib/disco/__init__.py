"""DiscoRL: an agent that asks a rule what to learn, and the rules (Oh et al. 2025)."""

from purerl.algorithms import Entry
from purerl.contrib.disco.algorithm import DiscoConfig as DiscoConfig
from purerl.contrib.disco.algorithm import make, validate
from purerl.contrib.disco.rules import CMPORule as CMPORule
from purerl.contrib.disco.rules import DiscoInputs as DiscoInputs
from purerl.contrib.disco.rules import DiscoRule as DiscoRule
from purerl.contrib.disco.rules import DiscoTargets as DiscoTargets
from purerl.contrib.disco.rules import Predictions as Predictions
from purerl.contrib.disco.rules import Values as Values

ENTRY = Entry(DiscoConfig, validate, make)
