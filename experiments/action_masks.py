"""The worth of a mask of valid actions: PPO with one and without, in a row of locks.

    python experiments/action_masks.py

There are eight locks in a row and 64 keys. Four keys fit each lock, always the same
ones, and one of them opens it. With the mask only keys that fit can be chosen. Without
it the same truth values are a part of the observation, and a key that does not fit
changes nothing. A step costs 0.01, the last lock pays 1 and ends the episode, and after
64 steps it is cut. So the best return is 0.92.

Both agents are evaluated with their greedy policy. It prints a table, and with `--out`
writes a JSON file.
"""

import dataclasses
import time
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct
from frame import mean_interval, options, write

import purerl
from purerl import envs
from purerl.envs.spaces import Dict, Discrete, MultiBinary

LOCKS, KEYS, FITTING, STEPS = 8, 64, 4, 64
# The keys of each lock; the first of them opens it.
_RING = np.stack(
    [np.random.default_rng(i).choice(KEYS, FITTING, False) for i in range(LOCKS + 1)]
)
_FITS = np.stack([np.isin(np.arange(KEYS), keys) for keys in _RING])


@dataclasses.dataclass(frozen=True)
class Locks(envs.Environment["LocksState", envs.EnvParams]):
    """Open a row of locks, each with one of the keys that fit it.

    Attributes:
        mask_key: Key of the truth values of the keys that fit.
    """

    mask_key: str = "action_mask"

    @property
    def default_params(self) -> envs.EnvParams:
        return envs.EnvParams(max_steps_in_episode=STEPS)

    def action_space(self, params: Any = None) -> Any:
        return Discrete(KEYS)

    def observation_space(self, params: Any = None) -> Any:
        return Dict({"lock": Discrete(LOCKS + 1), self.mask_key: MultiBinary(KEYS)})

    def reset_env(self, key: jax.Array, params: Any) -> tuple[Any, "LocksState"]:
        state = LocksState(jnp.int32(0), jnp.int32(0))
        return self._obs(state), state

    def step_env(
        self, key: jax.Array, state: "LocksState", action: jax.Array, params: Any
    ) -> tuple[Any, "LocksState", jax.Array, jax.Array, dict[str, Any]]:
        opens = action == jnp.asarray(_RING)[state.lock, 0]
        new = LocksState(state.time + 1, state.lock + opens)
        done = new.lock == LOCKS
        return self._obs(new), new, jnp.where(done, 1.0, 0.0) - 0.01, done, {}

    def _obs(self, state: "LocksState") -> dict[str, jax.Array]:
        fits = jnp.asarray(_FITS)[state.lock].astype(jnp.int8)
        return {"lock": state.lock, self.mask_key: fits}


@struct.dataclass
class LocksState(envs.EnvState):
    """The number `[]` of the lock that comes next."""

    lock: jax.Array


def train(mask_key: str, seeds: int, steps: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns and lengths of the last evaluation, `[seeds]` each."""
    config = purerl.PPOConfig(
        env=Locks(mask_key),
        total_timesteps=steps,
        num_envs=16,
        num_evaluations=1,
        eval_episodes=64,
    )
    keys = jax.random.split(jax.random.key(0), seeds)
    result = jax.jit(jax.vmap(purerl.make_train(config)))(keys)
    returns, lengths = (
        np.asarray(result.evaluation[name])[:, -1].mean(-1)
        for name in ("episode_return", "episode_length")
    )
    return returns, lengths


def main() -> None:
    """Train both, print the table, write the file."""
    asked = options(__doc__, seeds=10, steps=200_000, out=Path)
    found: dict[str, Any] = {"seeds": asked.seeds, "steps": asked.steps}
    for name, key in (("masked", "action_mask"), ("unmasked", "fits")):
        start = time.perf_counter()
        returns, lengths = train(key, asked.seeds, asked.steps)
        seconds = time.perf_counter() - start
        ends = mean_interval(returns)
        found[name] = {
            "returns": returns.tolist(),
            "lengths": lengths.tolist(),
            "return": float(returns.mean()),
            "low": float(ends.low),
            "high": float(ends.high),
            "seconds": seconds,
        }
        print(
            f"{name}: return {returns.mean():.2f} ({ends.low:.2f} to {ends.high:.2f}), "
            f"length {lengths.mean():.1f}, {seconds:.0f} s",
            flush=True,
        )
    if asked.out is not None:
        write(asked.out, found)


if __name__ == "__main__":
    main()
