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

import argparse
import statistics
import time
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from replay_contenders import Case, Contender, Item, flashbax, ours, random_items
from report import hardware

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

    def __call__(self, seed: int) -> float:
        """Microseconds of an iteration, for all agents together."""
        keys = jax.block_until_ready(self._keys(seed))
        start = time.perf_counter()
        self._state, numbers = self._run(self._state, self._items, keys, self._added)
        jax.block_until_ready((self._state, numbers))
        seconds = time.perf_counter() - start
        self._added = self._added + jnp.uint32(ITERATIONS * self._case.add)
        return seconds / ITERATIONS * 1e6


def alternate(timers: dict[str, Timer], rounds: int) -> dict[str, list[float]]:
    """Microseconds of every round; the first round, which warms up, is not counted."""
    found: dict[str, list[float]] = {name: [] for name in timers}
    for index in range(rounds + 1):
        for name, timer in timers.items():
            found[name].append(timer(index))
    return {name: values[1:] for name, values in found.items()}


def compare(rounds: int, capacity: int) -> None:
    """Print the table of both contenders."""
    print(f"capacity {capacity}, microseconds per agent and iteration: median")
    print("| replay | agents | add | batch | purerl | flashbax | times (min-max) |")
    print("|---|---|---|---|---|---|---|")
    for is_prioritised in (False, True):
        for agents in (1, 8, 64):
            for add, batch in ((1, 128), (8, 256)):
                case = Case(agents, capacity, add, batch, is_prioritised)
                timers = {
                    "purerl": Timer(case, ours(case)),
                    "flashbax": Timer(case, flashbax(case)),
                }
                # A slow pair gets fewer rounds.
                slow = is_prioritised and agents == 64
                found = alternate(timers, max(3, rounds // 5) if slow else rounds)
                mine, theirs = found["purerl"], found["flashbax"]
                ratios = [b / a for a, b in zip(mine, theirs, strict=True)]
                medians = [statistics.median(v) / agents for v in (mine, theirs)]
                name = "prioritised" if is_prioritised else "uniform"
                print(
                    f"| {name} | {agents} | {add} | {batch} | {medians[0]:.1f} | "
                    f"{medians[1]:.1f} | {medians[1] / medians[0]:.2f} "
                    f"({min(ratios):.2f}-{max(ratios):.2f}) |",
                    flush=True,
                )


def copies(rounds: int, agents: int) -> None:
    """Print the time of an iteration against the capacity."""
    capacities = (1_000, 10_000, 100_000, 1_000_000)
    print(f"{agents} agents, add 3, batch 256; microseconds per agent and iteration")
    print("| replay | learns in | " + " | ".join(f"{c:,}" for c in capacities) + " |")
    print("|---|---|" + "---|" * len(capacities))
    for is_prioritised in (False, True):
        for is_branch in (False, True):
            timers = {}
            for capacity in capacities:
                case = Case(agents, capacity, 3, 256, is_prioritised)
                timers[str(capacity)] = Timer(case, ours(case), is_branch)
            found = alternate(timers, rounds)
            name = "prioritised" if is_prioritised else "uniform"
            place = "a branch" if is_branch else "the loop"
            medians = (statistics.median(v) / agents for v in found.values())
            cells = " | ".join(f"{m:.1f}" for m in medians)
            print(f"| {name} | {place} | {cells} |", flush=True)


def facts() -> str:
    """Return a line on the machine and the versions of the measurement."""
    found = hardware(("purerl", "jax", "jaxlib", "flashbax", "numpy"))
    versions = ", ".join(f"{k} {v}" for k, v in found["versions"].items())
    return (
        f"{found['date']}; {found['cpu']}, {found['cores']} cores, "
        f"{jax.default_backend()}, load {found['load_before']} before; "
        f"python {found['python']}, {versions}"
    )


def main() -> None:
    """Time the contenders, and print a table."""
    parser = argparse.ArgumentParser(description="Time replay buffers.")
    parser.add_argument("section", choices=("compare", "copies"))
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--capacity", type=int, default=10_000, help="of `compare`")
    parser.add_argument("--agents", type=int, default=1, help="of `copies`")
    options = parser.parse_args()
    print(facts())
    if options.section == "compare":
        compare(options.rounds, options.capacity)
    else:
        copies(options.rounds, options.agents)


if __name__ == "__main__":
    main()
