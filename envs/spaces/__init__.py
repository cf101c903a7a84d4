"""Action and observation spaces: what an environment accepts and what it returns.

A member of `Discrete`, `Box`, `MultiDiscrete` or `MultiBinary` is one array. A member
of `Dict` or `Tuple` is a pytree of members of its parts, which may be a `Dict` or a
`Tuple` again. Attribute names are those of gymnax and Gymnasium (`n`, `nvec`, `low`,
`high`, `spaces`, `shape`, `dtype`), so that code which reads a space works on any
package's.
"""

from .basic import Box as Box
from .basic import Discrete as Discrete
from .basic import Space as Space
from .basic import bounds as bounds
from .basic import without_far_ends as without_far_ends
from .composite import Dict as Dict
from .composite import Tuple as Tuple
from .multi import MultiBinary as MultiBinary
from .multi import MultiDiscrete as MultiDiscrete
