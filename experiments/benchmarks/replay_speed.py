"""The speed of replay, next to flashbax 0.1.3, in one process.

flashbax is no dependency of purerl: run this in an environment that has both, made by
`setup_replay_peer.sh`.

    python experiments/benchmarks/replay_speed.py compare   # next to flashbax
    python experiments/benchmarks/replay_speed.py copies    # does capacity cost time?

`compare`: a jitted scan, its state donated, in which every agent of a vmap adds items,
samples a batch and reads all of it, and with priorities gives it new ones. flashbax's
item buffer stores what ours stores. Contenders take turns; a figure is a ratio of
medians. `copies`: the same loop with buffers of 10^3 to 10^6 items. A buffer that is
copied shows as time in proportion to its capacity.
"""

import itertools
import sys
from functools import partial
from typing import Any

import bench
import jax
import jax.numpy as jnp
from replay_contenders import Case, Contender, Item, flashbax, ours, random_items

ITERATIONS = 200


def iterations(
    case: Case,
    contender: Contender,
    is_branch: bool,
    state: Any,
    items: Item,
    key: jax.Array,
    added: jax.Array,
) -> tuple[Any, jax.Array]:
    """The timed loop of one agent.

    Args:
        case: Sizes of the buffer and of what is added and read.
        contender: The library whose buffer is timed.
        is_branch: Whether to learn inside a `lax.cond`, as an algorithm with a warm-up
            does.
        state: State of a full buffer.
        items: `[ITERATIONS, add, ...]` items that are added.
        key: Random key, consumed.
        added: Number of items added before, uint32 `[]`, one for all agents of a vmap.
    """

    def one(state: Any, xs: tuple) -> tuple[Any, jax.Array]:
        index, items, key = xs
        before = added + index * jnp.uint32(case.add)
        after = before + jnp.uint32(case.add)
        state = contender.add(state, items, before)
        if not is_branch:
            return contender.learn(state, key, after)
        if not isinstance(state, tuple):
            raise ValueError("only purerl's loop has a branch.")
        # The buffer is read inside the branch; only the priorities come out of it.
        buffer, priorities = state

        def learn(priorities: Any) -> tuple[Any, jax.Array]:
            (_, new), number = contender.learn((buffer, priorities), key, after)
            return new, number

        priorities, number = jax.lax.cond(
            index % 50 != 0, learn, lambda p: (p, jnp.float32(0)), priorities
        )
        return (buffer, priorities), number

    indices = jnp.arange(ITERATIONS, dtype=jnp.uint32)
    keys = jax.random.split(key, ITERATIONS)
    state, numbers = jax.lax.scan(one, state, (indices, items, keys))
    return state, numbers.sum()


class Timer:
    """A contender's loop, compiled, on full buffers of its own.

    Args:
        case: Sizes of the buffer and of what is added and read.
        contender: The library whose buffer is timed.
        is_branch: Whether to learn inside a branch, as in `iterations`.
    """

    def __init__(self, case: Case, contender: Contender, is_branch: bool = False):
        self._case = case
        agents = jnp.arange(case.agents)

        def fill(_: jax.Array) -> Any:
            def add(state: Any, index: jax.Array) -> tuple[Any, None]:
                items = random_items(jax.random.key(index), case.add)
                added = index * jnp.uint32(case.add)
                return contender.add(state, items, added), None

            rounds = jnp.arange(-(-case.capacity // case.add), dtype=jnp.uint32)
            return jax.lax.scan(add, contender.init(), rounds)[0]

        self._state = jax.jit(jax.vmap(fill))(agents)
        self._added = jnp.uint32(-(-case.capacity // case.add) * case.add)
        shape = (case.agents, ITERATIONS, case.add)
        total = case.agents * ITERATIONS * case.add
        self._items = jax.tree.map(
            lambda x: x.reshape(*shape, *x.shape[1:]),
            random_items(jax.random.key(1), total),
        )
        loop = jax.vmap(
            partial(iterations, case, contender, is_branch), in_axes=(0, 0, 0, None)
        )
        self._run = (
            jax.jit(loop, donate_argnums=0)
            .lower(self._state, self._items, self._keys(0), self._added)
            .compile()
        )

    def _keys(self, seed: int) -> jax.Array:
        return jax.random.split(jax.random.key(seed), self._case.agents)

    def __call__(self, seed: int) -> bench.Run:
        """Run the loop once."""
        keys = jax.block_until_ready(self._keys(seed))
        (self._state, _), run = bench.clocked(
            lambda: self._run(self._state, self._items, keys, self._added)
        )
        self._added = self._added + jnp.uint32(ITERATIONS * self._case.add)
        return run


def microseconds(
    timers: dict[str, Timer], rounds: int, agents: int
) -> dict[str, list[float]]:
    """Microseconds of an iteration of an agent in every round, after one more."""
    for timer in timers.values():
        timer(0)  # warms up
    runs = bench.alternate(timers, rounds, sys.stderr)
    scale = 1e6 / ITERATIONS / agents
    return {
        n: [x * scale for x in bench.seconds_of(found)] for n, found in runs.items()
    }


def compare_both(rounds: int, capacity: int) -> None:
    """Print the table of both contenders."""
    print(f"capacity {capacity}, microseconds per agent and iteration: median")
    bench.print_table(
        "replay | agents | add | batch | purerl | flashbax | times (min-max)"
    )
    for is_prioritised, agents, (add, batch) in itertools.product(
        (False, True), (1, 8, 64), ((1, 128), (8, 256))
    ):
        case = Case(agents, capacity, add, batch, is_prioritised)
        timers = {
            "purerl": Timer(case, ours(case)),
            "flashbax": Timer(case, flashbax(case)),
        }
        # A slow pair gets fewer rounds.
        is_slow = is_prioritised and agents == 64
        count = max(3, rounds // 5) if is_slow else rounds
        mine, theirs = microseconds(timers, count, agents).values()
        medians = [f"{bench.spread(values).median:.1f}" for values in (mine, theirs)]
        name = "prioritised" if is_prioritised else "uniform"
        bench.print_row(
            name,
            agents,
            add,
            batch,
            *medians,
            bench.with_range(bench.compare(theirs, mine)),
        )


def copies(rounds: int, agents: int) -> None:
    """Print the time of an iteration against the capacity."""
    capacities = (1_000, 10_000, 100_000, 1_000_000)
    print(f"{agents} agents, add 3, batch 256; microseconds per agent and iteration")
    bench.print_table(
        " | ".join(["replay", "learns in", *(f"{c:,}" for c in capacities)])
    )
    for is_prioritised, is_branch in itertools.product((False, True), (False, True)):
        timers = {}
        for capacity in capacities:
            case = Case(agents, capacity, 3, 256, is_prioritised)
            timers[str(capacity)] = Timer(case, ours(case), is_branch)
        found = microseconds(timers, rounds, agents)
        name = "prioritised" if is_prioritised else "uniform"
        medians = (f"{bench.spread(v).median:.1f}" for v in found.values())
        bench.print_row(name, "a branch" if is_branch else "the loop", *medians)


def main() -> None:
    """Time the contenders, and print a table."""
    asked = bench.options(
        __doc__,
        section=bench.Words(("compare", "copies"), "SECTION", is_one=True),
        rounds=15,
        capacity=(10_000, "of `compare`"),
        agents=(1, "of `copies`"),
    )
    print(
        bench.machine_line(
            bench.machine(("purerl", "jax", "jaxlib", "flashbax", "numpy"))
        )
    )
    if asked.section == "compare":
        compare_both(asked.rounds, asked.capacity)
    else:
        copies(asked.rounds, asked.agents)


if __name__ == "__main__":
    main()
