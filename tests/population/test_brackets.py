from purerl.population.halving import choose_lanes, make_plan
from purerl.scale.devices import make_workers


def test_hyperband_is_the_table_of_its_article():
    """Li et al. 2018, table 1: R = 81, eta = 3."""
    plan = make_plan(81, 1, 3, None, "hyperband")
    assert plan.rungs == (1, 3, 9, 27, 81)
    sizes = [
        [b.size, *(plan.survivors(n, rung) for rung in range(b.first_rung, 4))]
        for n, b in enumerate(plan.brackets)
    ]
    assert sizes == [[81, 27, 9, 3, 1], [34, 11, 3, 1], [15, 5, 1], [8, 2], [5]]


def test_the_end_of_the_run_is_the_last_rung_whatever_the_power():
    plan = make_plan(100, 2, 3, None, "one")
    assert plan.rungs == (2, 6, 18, 100)
    assert [b.size for b in plan.brackets] == [27]
    assert all(milestone % 2 == 0 for milestone in plan.milestones)
    assert set(plan.rungs) <= set(plan.milestones)
    assert (
        max(b - a for a, b in zip(plan.milestones, plan.milestones[1:], strict=False))
        <= 6
    )


def test_alive_counts_all_brackets():
    plan = make_plan(9, 1, 3, None, "hyperband")
    assert [b.size for b in plan.brackets] == [9, 5, 3]
    # All start; the first bracket is judged at 1, the second at 3, the third never.
    assert [plan.alive(until) for until in (1, 2, 3, 4, 9)] == [17, 11, 11, 5, 5]


def test_points_scale_all_brackets():
    plan = make_plan(9, 1, 3, 20, "hyperband")
    assert [b.size for b in plan.brackets] == [20, 10, 7]
    assert plan.bracket_of().tolist() == [0] * 20 + [1] * 10 + [2] * 7


def test_one_member_of_a_bracket_always_goes_on():
    plan = make_plan(27, 1, 3, 2, "one")
    assert [plan.survivors(0, rung) for rung in range(4)] == [1, 1, 1, 1]


def test_lanes_are_narrow_where_few_go_on():
    workers = make_workers()
    wide = make_plan(27, 1, 3, 64, "one")
    assert choose_lanes(wide, 1, workers) < choose_lanes(wide, 32, workers)


def test_the_end_of_the_run_drops_nobody():
    plan = make_plan(81, 1, 3, None, "hyperband")
    last = len(plan.rungs) - 1
    for number in range(len(plan.brackets)):
        assert plan.survivors(number, last) == plan.survivors(number, last - 1)
