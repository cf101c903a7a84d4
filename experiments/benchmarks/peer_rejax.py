"""rejax's PPO and DQN, and PureJaxRL's PPO, driven over stdin and stdout.

Runs in the interpreter of `.venv-peers` (see `setup_peers.sh`). `serving.py` reads the
requests; between them the process sleeps, so that the other contender has the machine
for itself.

    {"do": "versions"}
    {"do": "prepare", "agents": 64, "devices": 1, "ppo": {...}} -> compile seconds
    {"do": "prepare", "agents": 1, "devices": 1, "dqn": {...}} -> compile seconds
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
from serving import serve

SHIMMED = not hasattr(jax, "tree_map")
if SHIMMED:  # gymnax 0.0.9 was written for a jax that still had it.
    jax.tree_map = jax.tree.map  # type: ignore[attr-defined]

EVAL_EPISODES = 16


def make_ppo(ppo: dict[str, Any]) -> Any:
    """Rejax's PPO with our numbers, evaluating once and nothing."""
    from rejax import PPO

    algo = PPO.create(
        env="CartPole-v1",
        agent_kwargs={
            "hidden_layer_sizes": tuple(ppo["hidden_sizes"]),
            "activation": ppo["activation"],
        },
        num_envs=ppo["num_envs"],
        num_steps=ppo["num_steps"],
        num_epochs=ppo["num_epochs"],
        num_minibatches=ppo["num_minibatches"],
        learning_rate=ppo["learning_rate"],
        gamma=ppo["gamma"],
        gae_lambda=ppo["gae_lambda"],
        clip_eps=ppo["clip"],
        ent_coef=ppo["entropy_coef"],
        vf_coef=ppo["value_coef"],
        max_grad_norm=ppo["max_grad_norm"],
        total_timesteps=ppo["total_timesteps"],
        eval_freq=ppo["total_timesteps"],
        skip_initial_evaluation=True,
    )
    return algo.replace(eval_callback=lambda algo, state, key: ())


def make_dqn(dqn: dict[str, Any]) -> Any:
    """Rejax's DQN (64-64, which it fixes) with our numbers, evaluating nothing."""
    from rejax import DQN

    algo = DQN.create(
        env="CartPole-v1",
        agent_kwargs={"activation": dqn["activation"]},
        num_envs=dqn["num_envs"],
        buffer_size=dqn["buffer_size"],
        fill_buffer=dqn["learning_starts"],
        batch_size=dqn["batch_size"],
        learning_rate=dqn["learning_rate"],
        gamma=dqn["gamma"],
        max_grad_norm=dqn["max_grad_norm"],
        eps_start=dqn["epsilon_start"],
        eps_end=dqn["epsilon_end"],
        exploration_fraction=dqn["epsilon_steps"] / dqn["total_timesteps"],
        target_update_freq=dqn["target_update_interval"],
        polyak=1.0 - dqn["tau"],
        ddqn=dqn["double"],
        total_timesteps=dqn["total_timesteps"],
        eval_freq=dqn["total_timesteps"],
        skip_initial_evaluation=True,
    )
    return algo.replace(eval_callback=lambda algo, state, key: ())


def make_purejaxrl(path: str, **numbers: Any) -> Callable[[jax.Array], Any]:
    """PureJaxRL's PPO with some of its own numbers changed."""
    import peer_programs

    return peer_programs.purejaxrl(Path(path), **numbers)


def make_dqn_score(algo: Any) -> Callable[[Any, jax.Array], jax.Array]:
    """Mean return of one agent's nearly greedy actions over fresh episodes."""
    from rejax.evaluate import evaluate

    def score(state: Any, key: jax.Array) -> jax.Array:
        act = algo.make_act(state)
        _, returns = evaluate(act, key, algo.env, algo.env_params, EVAL_EPISODES, 500)
        return returns.mean()

    return score


def make_score(algo: Any) -> Callable[[Any, jax.Array], jax.Array]:
    """Mean return of one agent's most likely actions over fresh episodes."""
    from rejax.evaluate import evaluate

    def score(state: Any, key: jax.Array) -> jax.Array:
        def act(obs: jax.Array, key: jax.Array) -> jax.Array:
            del key
            dist = algo.actor.apply(
                state.actor_ts.params, obs[None], method="_action_dist"
            )
            return dist.mode()[0]

        lengths, returns = evaluate(
            act, key, algo.env, algo.env_params, EVAL_EPISODES, 500
        )
        del lengths
        return returns.mean()

    return score


class Case:
    """One compiled training program: `agents` of them on `devices` host devices."""

    def __init__(
        self,
        agents: int,
        devices: int,
        ppo: dict[str, Any] | None = None,
        dqn: dict[str, Any] | None = None,
        purejaxrl: dict[str, Any] | None = None,
    ) -> None:
        self.agents, self.devices = agents, devices
        if purejaxrl:
            train, self.score = make_purejaxrl(**purejaxrl), None
        else:
            algo = make_dqn(dqn) if dqn else make_ppo(ppo or {})
            make = make_dqn_score if dqn else make_score
            train, self.score = algo.train, jax.jit(jax.vmap(make(algo)))
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
        start, cpu_start = time.perf_counter(), time.process_time()
        result = jax.block_until_ready(self.program(keys))
        cpu_seconds = time.process_time() - cpu_start
        seconds = time.perf_counter() - start
        return {
            "seconds": seconds,
            "score": self._score_of(result, keys),
            "cpu_seconds": cpu_seconds,
        }

    def _score_of(self, result: Any, keys: jax.Array) -> float:
        """The mean return of the trained agents."""
        if self.score is None:  # PureJaxRL: of the episodes that ended last.
            returns = result["metrics"]["returned_episode_returns"]
            updates = returns.shape[self.agents > 1]
            first = updates - max(1, updates // 10)
            return float(returns[..., first:, :, :].mean())
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
    return {name: version(name) for name in names} | {"shimmed": SHIMMED}


if __name__ == "__main__":
    serve(prepare, versions)
