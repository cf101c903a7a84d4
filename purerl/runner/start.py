"""The agents that a run begins with, read from the folder of another run."""

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from purerl.config import ConfigError, TrainConfig
from purerl.execution.format import with_noun
from purerl.execution.programs import rekey
from purerl.runner import manifest
from purerl.runner.arguments import seeds_named
from purerl.storage import checkpoint, folders
from purerl.train import Bound, make_segment
from purerl.types import HostMetrics, PyTree
from purerl.warm_start import (
    check_finite,
    check_networks,
    check_scale,
    choose,
    put_networks,
    taken_by,
)

NETWORKS, EVERYTHING = "networks", "all"
_BY_FOLDER = "--from-parts {part}, or purerl.Start(folder, '{part}')"
# One step of a path, as checkpoints name arrays: `['key']`, `.field` or `[0]`.
_STEP = re.compile(r"\['([^']*)'\]|\.(\w+)|\[(\d+)\]")


class Start(NamedTuple):
    """The agents that a run begins with.

    Attributes:
        folder: The folder of the run whose agents are taken.
        parts: `networks`, with which a run begins; `all`, with which it goes on; or
            names of parts of the networks with commas, such as `actor.torso`.
        seed: The seed of the one agent that all begin with; None gives each seed the
            agent of the same seed.
    """

    folder: str | Path
    parts: str = NETWORKS
    seed: int | None = None


class Begun(NamedTuple):
    """A start that was read, and fits.

    Attributes:
        described: Description of the start in the manifest.
        first_update: Updates that the agents have done in the run that begins.
        put: Makes the states to begin with of fresh ones, both on the host.
    """

    described: dict[str, Any]
    first_update: int
    put: Callable[[PyTree], PyTree]

    def sentence(self) -> str:
        """Return what a run says of it."""
        about = self.described
        agents = with_noun(len(set(about["seeds"])), "agent")
        return (
            f"starting from {agents} in {about['run']} after update "
            f"{about['update']:,} ({about['parts']})"
        )


def as_start(start: str | Path | Start | None) -> Start | None:
    """Return what was given as `start`, with the folder as a path.

    Raises:
        ConfigError: neither a folder nor a `Start`.
    """
    if start is None:
        return None
    if not isinstance(start, str | Path | Start):
        raise ConfigError(
            "start must be the folder of a run, or purerl.Start(folder, ...), got "
            f"{type(start).__name__}."
        )
    start = start if isinstance(start, Start) else Start(start)
    return start._replace(folder=Path(start.folder).expanduser())


def with_values_of_start(start: Start | None, config: TrainConfig) -> TrainConfig:
    """Return the config with the values of the run that it goes on with, if any.

    What `auto` stood for there stays, such as the steps over which exploration decays:
    an agent that goes on does not begin to explore anew.

    Args:
        config: Config of the run that begins.

    Raises:
        ConfigError: there is no run in the folder.
    """
    if start is None or start.parts != EVERYTHING:
        return config
    return manifest.with_values_of(manifest.load_run(Path(start.folder)), config)


def read_start(start: Start, bound: Bound, seeds: Sequence[int]) -> Begun:
    """Read the last checkpoint of the run to start from, and see that it fits.

    Args:
        bound: The run that begins.

    Raises:
        ConfigError: no run or checkpoint there, no agent of a seed, or an array that
            does not fit.
    """
    folder = Path(start.folder)
    stored = manifest.load_run(folder)
    update, flat = checkpoint.restore(folder / "checkpoints")
    sources = [seed if start.seed is None else start.seed for seed in seeds]
    known = list(stored["seeds"])
    if missing := [seed for seed in sources if seed not in known]:
        raise ConfigError(
            f"start: the run in {folder} has no agent of seed {missing[0]}; it has "
            f"{seeds_named(known)}. A seed may be named for all agents."
        )
    rows = [known.index(seed) for seed in sources]
    flat = {name: array[rows] for name, array in flat.items()}
    # It is not known where an algorithm of the user's own has its networks.
    check_finite({n: x for n, x in flat.items() if n.startswith(".params")})
    described = {
        "run": str(folder.resolve()),
        "update": update,
        "parts": start.parts,
        "seeds": sources,
    }
    shapes = jax.eval_shape(make_segment(bound).init, jax.random.key(0))
    if start.parts == EVERYTHING:
        state = _everything(folder, stored, update, flat, bound, shapes)
        is_other = np.array(sources) != np.array(seeds)
        keys = jax.vmap(jax.random.key)(jnp.asarray(seeds, jnp.uint32))
        state = rekey(state, is_other, keys) if is_other.any() else state
        return Begun(described, update, lambda fresh: state)
    networks = _networks(flat, start.parts)
    check_scale(networks, bound.config)
    networks = taken_by(networks, shapes)
    one = {name: array[0] for name, array in networks.items()}
    check_networks(one, shapes, _BY_FOLDER)
    return Begun(described, 0, lambda fresh: put_networks(fresh, networks))


def read_again(described: Mapping[str, Any], bound: Bound, seeds: Any) -> Begun:
    """Read what a manifest says that its run began with.

    Args:
        described: The manifest's entry `start`.
        bound: The run that began with it.

    Raises:
        ConfigError: it is not there any more, or is not the same.
    """
    source = described["seeds"]
    seed = None if source == list(seeds) else source[0]
    start = Start(Path(described["run"]), described["parts"], seed)
    begun = read_start(start, bound, seeds)
    if begun.described != dict(described):
        raise ConfigError(
            f"start: the run in {described['run']} has other agents now than when this "
            "run began with them; start another run."
        )
    return begun


def check_same_start(described: Mapping[str, Any] | None, start: Start | None) -> None:
    """Refuse to resume a run with another start than its own.

    Raises:
        ConfigError: saying what the run began with.
    """
    began = described or {"run": "nothing", "parts": "", "seeds": []}
    if start is None:
        return
    given = (str(Path(start.folder).resolve()), start.parts)
    is_one = start.seed is None or set(began["seeds"]) == {start.seed}
    if given != (began["run"], began["parts"]) or not is_one:
        raise ConfigError(
            f"start is {start.folder}, and the run that is resumed began with "
            f"{began['run']}; leave start out: a run goes on with its own."
        )


def _networks(flat: Mapping[str, np.ndarray], parts: str) -> HostMetrics:
    """The networks among the arrays of a checkpoint."""
    named: dict[str, list[tuple[str, np.ndarray]]] = {}
    for path, array in flat.items():
        field, *words = ("".join(step) for step in _STEP.findall(path))
        prefix = [] if field == "params" else [field]
        words = [word for word in words if word != "params"]
        named.setdefault(field, []).append((".".join([*prefix, *words]), array))
    names = [] if parts == NETWORKS else [part.strip() for part in parts.split(",")]
    return choose(named, [name for name in names if name], "start")


def _everything(
    folder: Path,
    stored: Mapping[str, Any],
    update: int,
    flat: HostMetrics,
    bound: Bound,
    shapes: PyTree,
) -> PyTree:
    """The whole states of agents that go on, where this run can go on with them."""
    folders.check_keys(f"start: {folder}", stored)
    theirs, mine = manifest.read_config(folder, dict(stored)), bound.config
    # Steps that are done are counted by updates. A replay buffer has memories before
    # the burn-in, and priorities of steps that have n_step more after them.
    names = ["steps_per_update"]
    names += ["burn_in", "n_step"] if hasattr(theirs, "buffer_size") else []
    for name in names:
        old, new = getattr(theirs, name, None), getattr(mine, name, None)
        if old != new:
            raise ConfigError(
                f"start: {name} is {old} in the run in {folder} and {new} here; train "
                "with the same one, or begin with the networks alone."
            )
    state = checkpoint.unflatten(
        flat,
        shapes,
        checkpoint.path_of(folder / "checkpoints", update),
        may_grow=stored["config"].get("buffer_size")
        == getattr(mine, "buffer_size", None),
    )
    check_scale(state, mine)
    if update >= bound.plan.num_updates:
        raise ConfigError(
            f"start: the agents have done {update:,} updates, and this run has "
            f"{bound.plan.num_updates:,}: nothing is left to train."
        )
    return state
