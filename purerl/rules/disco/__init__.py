"""Rules of DiscoRL's kind: what policy, predictions and values shall become.

Such a rule sees trajectories of a buffer and what two networks make of them, and
remembers something of the agent's whole life: see `purerl.algorithms.disco`.
"""

from purerl.rules.disco.inputs import DiscoInputs as DiscoInputs
from purerl.rules.disco.inputs import DiscoTargets as DiscoTargets
from purerl.rules.disco.inputs import Outputs as Outputs
from purerl.rules.disco.inputs import Values as Values
from purerl.rules.disco.known import CMPORule as CMPORule
from purerl.rules.disco.learned import DiscoRule as DiscoRule
