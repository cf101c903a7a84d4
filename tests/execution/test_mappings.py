"""A process holds a limited number of programs: the oldest make room for new ones."""

import weakref

import pytest

from purerl.execution import programs as compiled
from purerl.execution.programs import Program, ProgramCache
from purerl.scale.devices import make_workers


@pytest.mark.parametrize(("used", "is_full"), [(10, False), (11, True)])
def test_half_of_the_mappings_that_linux_allows_are_nearly_all(
    used, is_full, tmp_path, monkeypatch
):
    for name, text in {"_MAPPINGS": "a line\n" * used, "_LIMIT": "20\n"}.items():
        path = tmp_path / name
        path.write_text(text)
        monkeypatch.setattr(compiled, name, path)
    assert compiled.is_nearly_full() == is_full


def test_other_systems_do_not_count_mappings(tmp_path, monkeypatch):
    monkeypatch.setattr(compiled, "_LIMIT", tmp_path / "missing")
    assert not compiled.is_nearly_full()


@pytest.fixture
def alive(monkeypatch):
    """The programs in memory, of which the process has room for three."""
    programs = weakref.WeakSet()
    monkeypatch.setattr(Program, "__init__", lambda self, *a: programs.add(self))
    monkeypatch.setattr(compiled, "is_nearly_full", lambda: len(programs) > 3)
    return programs


def test_programs_that_were_not_asked_for_the_longest_make_room(bound, members, alive):
    programs, workers, block = ProgramCache(), make_workers(), members.block(0, 2)

    def get(length):
        return programs.get(bound, block, length, workers)

    for length in (1, 2, 3, 4):
        get(length)
    get(1)  # The oldest are now 2 and 3.
    assert len(alive) == programs.compilations == 4
    get(5)
    assert len(alive) == len(programs) == 3
    get(1), get(4), get(5)
    assert programs.compilations == 5
    get(2)
    assert programs.compilations == 6


def test_programs_that_are_forgotten_are_compiled_again(bound, members, alive):
    programs, workers, block = ProgramCache(), make_workers(), members.block(0, 2)
    first = programs.get(bound, block, 1, workers)
    second = programs.get(bound, block, 2, workers)
    programs.forget([first])
    assert len(programs) == 1 and programs.get(bound, block, 2, workers) is second
    assert programs.get(bound, block, 1, workers) is not first
