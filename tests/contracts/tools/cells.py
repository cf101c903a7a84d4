"""The columns of the grid. Adding a tool is adding a function to `TOOLS`."""

from collections.abc import Callable

from tests.contracts.tools import searching, training
from tests.contracts.tools.subject import Subject as Subject

Tool = Callable[[Subject], str | None]
TOOLS: dict[str, Tool] = {
    tool.__name__: tool
    for tool in (
        training.vmap,
        training.run,
        training.resume,
        searching.sweep,
        searching.tune,
        searching.pbt,
        searching.halving,
        searching.evolve,
        searching.evolve_loss,
        searching.compare,
        training.data_parallel,
        training.evaluation,
        training.command_line,
    )
}
# They need programs of their own for every algorithm: `make test` tries the others.
SLOW = ("evolve_loss", "compare", "data_parallel")
