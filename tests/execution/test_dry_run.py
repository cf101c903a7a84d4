"""What a dry run says of the time, without training."""

from types import SimpleNamespace

import pytest

from purerl.execution import dry_run
from purerl.scale.devices import make_workers
from purerl.train import bind
from tests.helpers import tiny_config


@pytest.mark.parametrize(
    ("agents", "lanes", "turns"),
    [(1, 1, 1), (1, 16, 1), (8, 8, 1), (9, 8, 2), (17, 8, 3), (16, 8, 2)],
)
def test_lanes_that_only_fill_a_block_take_their_time(
    monkeypatch, agents, lanes, turns
):
    program = SimpleNamespace(member_shapes=dict)
    cache = SimpleNamespace(get=lambda *arguments: program)
    monkeypatch.setattr(dry_run, "current_cache", lambda: cache)
    monkeypatch.setattr(dry_run, "make_workers", lambda: make_workers()[:1])
    monkeypatch.setattr(dry_run, "rate", lambda *arguments: 1_000.0)
    bound = bind(tiny_config())
    part = dry_run.whole_runs(bound, agents)
    speed, _ = dry_run._measured(part, lanes, None)
    # A block of W lanes takes W thousandths of a second for a step of each.
    assert agents / speed == pytest.approx(turns * lanes / 1_000.0)
