"""rejax's algorithms and PureJaxRL's PPO, driven over stdin and stdout.

Runs in the interpreter of `.venv-peers` (see `setup_peers.sh`). `serving.py` reads the
requests; between them the process sleeps, so that the other contender has the machine
for itself.

    {"do": "versions"}
    {"do": "prepare", "agents": 64, "devices": 1, "ppo": {...}} -> compile seconds
    {"do": "prepare", "agents": 1, "devices": 1, "dqn": {...}} -> compile seconds
    {"do": "prepare", "agents": 1, "devices": 1, "sac": {}} -> compile seconds
    {"do": "prepare", "agents": 8, "devices": 1, "purejaxrl": {"path": "PATH/ppo.py"}}
    {"do": "run", "seed": 0} -> seconds, cpu_seconds, mean final return
"""

import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import peer_programs
from serving import clocked, serve

EVAL_EPISODES = 16
# purerl's name of a number -> rejax's, where they differ.
NAMES = {
    "clip": "clip_eps",
    "entropy_coef": "ent_coef",
    "value_coef": "vf_coef",
    "learning_starts": "fill_buffer",
    "epsilon_start": "eps_start",
    "epsilon_end": "eps_end",
    "target_update_interval": "target_update_freq",
    "double": "ddqn",
    "env_kwargs": "env_params",
}
SCORED = "CartPole-v1"


def make(name: str, numbers: dict[str, Any]) -> Any:
    """Rejax's PPO or DQN (64-64, which it fixes) with our numbers, another with its.

    Args:
        name: Name of the algorithm.
        numbers: Of PPO and DQN all, in purerl's words; CartPole where there is no
            `env`. Of others, and of DQN without, what differs from
            `peer_programs.REJAX`.
    """
    if "activation" not in numbers:
        return peer_programs.rejax(name, **peer_programs.REJAX[name] | numbers)
    agent = {"activation": numbers.pop("activation")}
    if name == "ppo":
        agent["hidden_layer_sizes"] = tuple(numbers.pop("hidden_sizes"))
    else:
        share = numbers.pop("epsilon_steps") / numbers["total_timesteps"]
        numbers |= {"exploration_fraction": share, "polyak": 1.0 - numbers.pop("tau")}
    renamed = {NAMES.get(field, field): value for field, value in numbers.items()}
    return peer_programs.rejax(name, agent_kwargs=agent, **{"env": SCORED} | renamed)


def train_of(**request: dict[str, Any]) -> Callable[[jax.Array], Any]:
    """Return the training of a request: `purejaxrl`, or an algorithm, with numbers."""
    ((name, numbers),) = request.items()
    if name == "purejaxrl":
        return peer_programs.purejaxrl(Path(numbers.pop("path")), **numbers)
    return make(name, numbers).train


def make_score(algo: Any, name: str) -> Callable[[Any, jax.Array], jax.Array]:
    """Mean return over fresh episodes: of PPO's most likely or DQN's own actions."""
    from rejax.evaluate import evaluate

    def score(state: Any, key: jax.Array) -> jax.Array:
        def most_likely(obs: jax.Array, key: jax.Array) -> jax.Array:
            del key
            params = state.actor_ts.params
            return algo.actor.apply(params, obs[None], method="_action_dist").mode()[0]

        act = most_likely if name == "ppo" else algo.make_act(state)
        _, returns = evaluate(act, key, algo.env, algo.env_params, EVAL_EPISODES, 1_000)
        return returns.mean()

    return score


class Case:
    """One compiled training program: `agents` of them on `devices` host devices.

    Args:
        agents: Number of agents.
        devices: Number of devices.
        purejaxrl: `path` of its ppo.py, and some of its own numbers.
        **numbers: Name of an algorithm of rejax, with its numbers.
    """

    def __init__(
        self,
        agents: int,
        devices: int,
        purejaxrl: dict[str, Any] | None = None,
        **numbers: dict[str, Any],
    ) -> None:
        self.agents, self.devices, self.score = agents, devices, None
        if purejaxrl:
            train = train_of(purejaxrl=purejaxrl)
        else:
            ((name, chosen),) = numbers.items()
            env = chosen.get("env", SCORED)
            is_scored = (env == SCORED and name in ("ppo", "dqn")) or "brax" in env
            algo = make(name, chosen)
            train = algo.train
            if is_scored:
                self.score = jax.jit(jax.vmap(make_score(algo, name)))
        if agents == 1:
            program = jax.jit(train)
        elif devices == 1:
            program = jax.jit(jax.vmap(train))
        else:
            program = jax.pmap(jax.vmap(train))
        start = time.perf_counter()
        self.program = program.lower(self.keys(0)).compile()
        self.compile_seconds = time.perf_counter() - start

    def keys(self, seed: int) -> jax.Array:
        """One key, or `[N]`, or `[D, N / D]` of them."""
        key = jax.random.PRNGKey(seed)
        if self.agents == 1:
            return key
        keys = jax.random.split(key, self.agents)
        if self.devices == 1:
            return keys
        return keys.reshape(self.devices, -1, *keys.shape[1:])

    def run(self, seed: int) -> dict[str, float]:
        """Train once; the clock stops when every result is there."""
        keys = jax.block_until_ready(self.keys(seed))
        result, found = clocked(lambda: self.program(keys))
        return {**found, "score": self._score_of(result, keys)}

    def _score_of(self, result: Any, keys: jax.Array) -> float:
        """The mean return of the trained agents, if it is known."""
        if isinstance(result, dict):  # PureJaxRL: of the episodes that ended last.
            returns = result["metrics"]["returned_episode_returns"]
            updates = returns.shape[self.agents > 1]
            first = updates - max(1, updates // 10)
            return float(returns[..., first:, :, :].mean())
        if self.score is None:
            return float("nan")
        state, _ = result
        lead = keys.ndim - 1  # An old-style key is two numbers.
        # Through numpy: what pmap leaves on several devices is scored on one.
        states = jax.tree.map(
            lambda x: jnp.asarray(jax.device_get(x)).reshape(-1, *jnp.shape(x)[lead:]),
            state,
        )
        scores = self.score(
            states, jax.random.split(jax.random.PRNGKey(7), self.agents)
        )
        return float(scores.mean())


def prepare(devices: int, **request: Any) -> Case:
    """Compile what a request asks for, on so many devices."""
    if devices > 1:
        jax.config.update("jax_num_cpu_devices", devices)
    return Case(devices=devices, **request)


def versions() -> dict[str, Any]:
    """Return the versions of what is measured, and whether jax was changed."""
    names = ("rejax", "gymnax", "jax", "jaxlib", "flax", "optax")
    return {name: version(name) for name in names} | {"shimmed": peer_programs.SHIMMED}


if __name__ == "__main__":
    serve(prepare, versions)
