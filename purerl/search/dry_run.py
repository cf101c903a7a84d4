"""purerl.dry_run: what a search would cost here, before anything of it is trained."""

from purerl.config import ConfigError
from purerl.execution.dry_run import Part, show
from purerl.precision import in_32_bits
from purerl.scale.devices import as_count
from purerl.search.check import check_request, check_search
from purerl.search.drive import own_lanes
from purerl.search.protocol import Search


@in_32_bits
def dry_run(
    search: Search, *, lanes: int | None = None, segment_updates: int | None = None
) -> None:
    """Print what a search would cost here, and train nothing of it.

    A block of the members that it asks for first is compiled and timed for half a
    second. The environment steps are those that it plans (`search.steps`), without
    fresh evaluations. Nothing is written, and no folder is read.

    Args:
        search: The search, as `purerl.drive` takes it.
        lanes: The width of a block, W; the search's own where not given.
        segment_updates: The number of updates of one compiled call, K; the search's own
            where not given.

    Raises:
        ConfigError: the search cannot be carried out as it stands, or an agent cannot
            fit the memory.
    """
    lanes = as_count("lanes", lanes)
    segment_updates = as_count("segment_updates", segment_updates)
    check_search(search)
    length = segment_updates or search.segment_updates
    request = search.ask(search.init())
    if request is None:
        raise ConfigError(
            f"the {search.kind} search asks for nothing: ask must return a request in "
            "the state that init gives."
        )
    check_request(request, None, search.bound.plan, length)
    members = request.members
    part = Part(search.bound, members.size, sum(search.steps), members)
    note = "; fresh evaluations that it asks for take more"
    show([part], lanes or own_lanes(search, length), length, note)
