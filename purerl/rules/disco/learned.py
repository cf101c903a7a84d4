"""DiscoRL's rule: a network, from a file or drawn at random."""

from pathlib import Path
from typing import Any

from flax import struct

from purerl.config import ConfigError
from purerl.networks.recurrent import LSTMMemory
from purerl.rules.disco import meta_network, weights
from purerl.rules.disco.inputs import DiscoInputs, DiscoTargets
from purerl.types import PyTree


@struct.dataclass
class DiscoRule:
    """A rule that is a recurrent network.

    Oh et al. (2025), "Discovering state-of-the-art reinforcement learning algorithms",
    Nature, doi:10.1038/s41586-025-09761-x.

    The network sees what `features.of_steps` lists: rewards, ends of episodes,
    probabilities of the actions, action values and advantages, and one number of each
    prediction, of the network that learns and of its target network. It never sees an
    observation, and treats all actions alike. See `meta_network` for what it is.

    The published weights are a file that is read by its path: the config keeps the path
    and the SHA-256 of the file, and not 754,778 numbers. Then the rule has no leaves. A
    rule with `params` has its weights as leaves, which can be vmapped.

    Attributes:
        params: Layers by name, see `weights.shapes_of`; None where a file has them.
        path: Path of a file in the authors' format; empty where there are `params`.
        sha256: SHA-256 of the file in hexadecimal digits; empty for any file.
    """

    params: PyTree = None
    path: str = struct.field(pytree_node=False, default="")
    sha256: str = struct.field(pytree_node=False, default="")

    @classmethod
    def load(cls, path: str | Path) -> "DiscoRule":
        """Make the rule of a file of weights, such as the authors' `disco_103.npz`.

        Args:
            path: Path of the file, which every process that trains must be able to
                read.

        Raises:
            ConfigError: there is no such file, or it does not hold such a network.
        """
        path = str(path)
        weights.read(path)
        return cls(path=path, sha256=weights.digest_of(path))

    @classmethod
    def make(
        cls,
        path: str = "",
        sha256: str = "",
        hidden_size: int = 256,
        lifetime_size: int = 128,
        prediction_size: int = 600,
        units: int = 16,
        embedding_size: int = 2,
        seed: int = 0,
    ) -> "DiscoRule":
        """Make a rule from plain values, as a command line or a YAML file writes them.

        Args:
            path: Path of a file of weights; without one they are drawn at random.
            sha256: SHA-256 that the file must have; empty takes that which it has.
            hidden_size: Units of the network that reads trajectories.
            lifetime_size: Units of the network that lives as long as the agent.
            prediction_size: Numbers of the predictions, M.
            units: Units of each hidden layer.
            embedding_size: Numbers of the embedding of an action.
            seed: Seed of random weights.

        Raises:
            ConfigError: the file cannot be used, or a size is no whole number of at
                least 1.
        """
        if path:
            weights.read(path, sha256)
            return cls(path=path, sha256=sha256 or weights.digest_of(path))
        sizes = weights.Sizes(
            hidden_size, lifetime_size, prediction_size, units, embedding_size
        )
        for name, size in sizes._asdict().items():
            if isinstance(size, bool) or not isinstance(size, int) or size < 1:
                raise ConfigError(
                    f"the size {name!r} of DiscoRule must be a whole number of at "
                    f"least 1, got {size!r}."
                )
        return cls(weights.draw(sizes, int(seed)))

    @property
    def prediction_size(self) -> int:
        """Numbers of the predictions, M."""
        return self.layers()["y"][1].shape[-1]

    def layers(self) -> Any:
        """Return the layers by name, from the file where there is one.

        Raises:
            ConfigError: the rule has no weights, or the file cannot be used.
        """
        if self.params is not None:
            return self.params
        if not self.path:
            raise ConfigError(
                "rule must have weights, got DiscoRule(); use "
                'DiscoRule.load("disco_103.npz"), or DiscoRule.make() for random ones.'
            )
        return weights.read(self.path, self.sha256)

    def init(self) -> LSTMMemory:
        """Return what the rule remembers of an agent that is about to begin."""
        return meta_network.init_lifetime(self.layers())

    def __call__(
        self, inputs: DiscoInputs, memory: LSTMMemory, axis_name: str | None = None
    ) -> tuple[DiscoTargets, LSTMMemory]:
        """Return the targets of trajectories, and what is remembered after them.

        Args:
            inputs: The trajectories.
            memory: Memory of the agent's updates before this one.
            axis_name: Mapped axis over which trajectories are spread, if any.
        """
        return meta_network.apply(self.layers(), inputs, memory, axis_name)
