"""Environments of XLand-MiniGrid (Nikulin et al. 2024); the only module with them."""

# Without the package pyright takes this file for it.
# pyright: reportAttributeAccessIssue=false
from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import xminigrid
from flax import struct
from xminigrid.core.constants import NUM_TILES
from xminigrid.types import RuleSet

from ..base import Array, EnvParams
from ..options import one_of
from ..spaces import Box, Discrete
from .adapted import Suite, SuiteState
from .packages import check_name


@struct.dataclass
class XLandParams(EnvParams):
    """The time limit and the rules of a world of XLand.

    Attributes:
        goal: `[5]` uint8, XLand's code of what ends the episode.
        rules: `[R, 7]` uint8, XLand's codes of what becomes of objects.
        init_tiles: `[O, 2]` uint8, kind and colour of the objects at the start.
    """

    goal: Any = ()
    rules: Any = ()
    init_tiles: Any = ()


class XMiniGridEnvironment(Suite):
    """A world of XLand-MiniGrid 0.9 under this package's contract.

    * action: to go forward, to turn, to pick up, to put down and to toggle.
    * observation: uint8 `[view, view, 2]`, kind and colour of what lies in each cell
      before the agent.
    * reward: XLand's, `1 - 0.9 * time / max_steps_in_episode` at the goal.
    * terminated: where XLand's discount is 0. truncated: at `max_steps_in_episode`,
      which is XLand's `max_steps`.

    The rules of a world of XLand are among its numbers, so that they can be vmapped.
    With a benchmark its levels are the rulesets of it.

    Attributes:
        wrapped: Environment object of XLand-MiniGrid.
    """

    stochastic_transitions: ClassVar[bool] = False  # XLand's state holds a key.

    def __init__(
        self, xminigrid_name: str, benchmark: str = "", **options: Any
    ) -> None:
        """Make the environment.

        Args:
            xminigrid_name: Name of the environment, such as `XLand-MiniGrid-R1-9x9`.
            benchmark: Name of one of XLand's sets of rules, such as `small-1m`, the
                first of which is the default; none where not given.
            **options: Fields of its parameters, such as `view_size`.

        Raises:
            ValueError: there is no such environment, option or benchmark, or it cannot
                be downloaded.
        """
        known = xminigrid.registered_environments()
        check_name("XLand-MiniGrid", xminigrid_name, known)
        self.id = f"xminigrid/{xminigrid_name}"
        numbers: Any
        self.wrapped, numbers = xminigrid.make(xminigrid_name)
        # Rules are numbers; a file can name the benchmark that they come from.
        has_rules = hasattr(numbers, "ruleset")
        if "ruleset" in options or (benchmark and not has_rules):
            raise TypeError(
                f"rules come from a benchmark, which {self.id} may not have"
            )
        self._numbers = numbers.replace(**options)
        self._rulesets = _downloaded(benchmark) if benchmark else None
        if self._rulesets is not None:
            self._numbers = self._numbers.replace(ruleset=self._rulesets.get_ruleset(0))
        self.limit = self._numbers.max_steps
        self.actions = Discrete(self.wrapped.num_actions(self._numbers))
        shape: Any = self.wrapped.observation_shape(self._numbers)
        # A kind and a colour, of which there are fewer, for each cell that is seen.
        self.observations = Box(0, NUM_TILES - 1, shape, np.uint8)

    @property
    def default_params(self) -> EnvParams:
        """The time limit, and the rules of a world of XLand."""
        if not hasattr(self._numbers, "ruleset"):
            return EnvParams(self.limit)
        return XLandParams(self.limit, **vars(self._numbers.ruleset))

    def begin(self, key: Array, params: EnvParams) -> Any:
        """Return XLand's first timestep; the key is consumed."""
        return self.wrapped.reset(self._theirs(params), key)

    def advance(
        self, key: Array, timestep: Any, action: Array, params: EnvParams
    ) -> Any:
        """Return the next timestep, in which nothing is random."""
        return self.wrapped.step(self._theirs(params), timestep, action)

    def read(self, timestep: Any) -> tuple[Any, Any, Any]:
        """Return observation, reward, and whether XLand's discount is 0."""
        return timestep.observation, timestep.reward, timestep.discount == 0

    @property
    def has_levels(self) -> bool:
        """True with a benchmark."""
        return self._rulesets is not None

    def draw_level(self, key: Array, params: Any) -> Any:
        """Draw a ruleset of the benchmark; the time limit stays."""
        if self._rulesets is None:
            return super().draw_level(key, params)
        return params.replace(**vars(self._rulesets.sample_ruleset(key)))

    def render(self, state: SuiteState, params: Any = None) -> np.ndarray:
        """Draw one state, uint8 `[height, width, 3]` on the host."""
        return np.asarray(self.wrapped.render(self._numbers, state.inner))

    def _theirs(self, params: Any) -> Any:
        """XLand's parameters with our numbers in them."""
        numbers = {"max_steps": params.max_steps_in_episode}
        if isinstance(params, XLandParams):
            rules = RuleSet(params.goal, params.rules, params.init_tiles)
            numbers["ruleset"] = rules
        return self._numbers.replace(**numbers)


def _downloaded(benchmark: str) -> Any:
    """The rulesets of a benchmark, or one sentence on why there are none."""
    one_of("benchmark", benchmark, xminigrid.registered_benchmarks())
    try:
        return xminigrid.load_benchmark(benchmark)
    except OSError as error:
        raise ValueError(
            f"benchmark {benchmark!r} is downloaded from Hugging Face, and could not "
            f"be ({error})."
        ) from None
