"""The agents that a run begins with, read from the folder of another run."""

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from purerl.config import ConfigError
from purerl.execution.format import with_noun
from purerl.runner import manifest
from purerl.runner.arguments import seeds_named
from purerl.storage import checkpoint
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

NETWORKS = "networks"
_BY_FOLDER = "--from-parts {part}, or purerl.Start(folder, '{part}')"
# One step of a path, as checkpoints name arrays: `['key']`, `.field` or `[0]`.
_STEP = re.compile(r"\['([^']*)'\]|\.(\w+)|\[(\d+)\]")


class Start(NamedTuple):
    """The agents that a run begins with.

    Attributes:
        folder: The folder of the run whose agents are taken.
        parts: `networks`, or names of parts of them with commas, such as
            `actor.torso`.
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
        put: Makes the states to begin with of fresh ones, both on the host.
    """

    described: dict[str, Any]
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
    networks = _networks(flat, start.parts)
    check_scale(networks, bound.config)
    networks = taken_by(networks, shapes)
    one = {name: array[0] for name, array in networks.items()}
    check_networks(one, shapes, _BY_FOLDER)
    return Begun(described, lambda fresh: put_networks(fresh, networks))


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
