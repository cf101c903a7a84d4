"""Prioritised level replay against domain randomisation, judged on held-out mazes.

    python experiments/level_replay.py [--seeds 10] [--steps 409600]

Agents learn in random mazes of 9 x 9 cells: in new levels in every update (domain
randomisation), by PLR with its defaults, with less preference for the highest scores
("flatter"), and with another score, and by robust PLR with its defaults, all of them
with the same steps in the environment. They are then played, with sampled actions, in
mazes that none of them has seen: random ones that can be solved, and those of them that
take the most actions. Prints a table of the share of mazes that are solved and of mean
returns, with 95% intervals over seeds (the range below ten); writes
experiments/results/level-replay.json.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from frame import interval_text, keep, options, show

import purerl
from purerl import PLRConfig, envs
from purerl.acting.evaluate import evaluate
from purerl.replay.levels import replay_probabilities

SIZE, LIMIT, MAZES, LONG = (9, 9), 80, 256, 20
SHARED: dict[str, Any] = {
    "env_kwargs": {"size": SIZE},
    "env_params": {"max_steps_in_episode": LIMIT},
    "num_envs": 32,
    "num_steps": LIMIT,
    "hidden_sizes": (64, 64),
    "learning_rate": 1e-3,
    "buffer_size": 512,
    "num_evaluations": 0,
}
SETTINGS: dict[str, dict[str, Any]] = {
    "domain randomisation": {"replay_probability": 0.0, "learn_on_new": True},
    "PLR": {"learn_on_new": True},
    "PLR, flatter": {"learn_on_new": True, "temperature": 1.0},
    "PLR, flatter, value loss": {
        "learn_on_new": True,
        "temperature": 1.0,
        "score": "positive_value_loss",
    },
    "robust PLR": {},
}


def held_out(key: jax.Array) -> dict[str, Any]:
    """Return solvable mazes `[MAZES, ...]`: random ones, and those with long ways."""
    env = envs.Maze(SIZE)
    params = env.default_params.replace(max_steps_in_episode=LIMIT)  # type: ignore[attr-defined]
    draw = jax.vmap(env.draw_level, (0, None))
    drawn = jax.jit(draw)(jax.random.split(key, 100 * MAZES), params)
    far = np.asarray(jax.jit(jax.vmap(env.shortest_path))(drawn))
    print(f"drawn: {(far <= LIMIT).mean():.1%} can be solved")
    kinds = {"random": far <= LIMIT, "long": (far >= LONG) & (far <= LIMIT)}
    chosen = {name: np.flatnonzero(kind)[:MAZES] for name, kind in kinds.items()}
    assert {len(places) for places in chosen.values()} == {MAZES}
    for name, places in chosen.items():
        print(f"{name}: the shortest way takes {far[places].mean():.1f} actions")
    return {
        name: jax.tree.map(lambda x, p=places: jnp.asarray(x)[p], drawn)
        for name, places in chosen.items()
    }


def player(config: PLRConfig) -> Callable[[Any, Any], Any]:
    """Return `play(states, mazes) -> [S, MAZES]`, returns of S agents in every maze.

    Settings differ in how an agent learns, and not in how it acts.
    """
    env, act = envs.Maze(SIZE), purerl.make_algorithm(config).act

    def one(state: Any, level: Any, key: jax.Array) -> jax.Array:
        def sample(obs: jax.Array, keys: jax.Array) -> tuple[jax.Array, jax.Array]:
            now, after = jax.random.split(keys[0])
            return act(state, obs, now), after[None]

        return evaluate(
            env, level, sample, key, num_episodes=1, max_steps=LIMIT, memory=key[None]
        ).episode_return[0]

    keys = jax.random.split(jax.random.key(54321), MAZES)
    each = jax.vmap(jax.vmap(one, (None, 0, 0)), (0, None, None))
    return jax.jit(lambda states, mazes: each(states, mazes, keys))


def kept(config: PLRConfig, states: Any) -> dict[str, float]:
    """Describe the levels that S agents would replay next, weighed by how likely."""
    env, buffer = envs.Maze(SIZE), states.level_buffer
    numbers = config.temperature, config.staleness_coef
    far = np.asarray(jax.jit(jax.vmap(jax.vmap(env.shortest_path)))(buffer.levels))
    chances = jax.vmap(replay_probabilities, (0, 0, None, None))
    weight = np.asarray(chances(buffer, states.update, *numbers))
    solvable = far <= LIMIT
    return {
        "solvable": float((weight * solvable).sum() / weight.sum()),
        "actions": float((weight * far)[solvable].sum() / weight[solvable].sum()),
    }


def main() -> None:
    """Train, play, print and write."""
    asked = options(
        __doc__, seeds=(10, "agents of each kind"), steps=(409_600, "steps of each")
    )
    mazes = held_out(jax.random.key(2**20))
    play = player(PLRConfig(total_timesteps=asked.steps, **SHARED))
    scores: dict[str, dict[str, list[float]]] = {}
    configs: dict[str, Any] = {}
    updates: dict[str, float] = {}
    replays: dict[str, dict[str, float]] = {}
    for name, fields in SETTINGS.items():
        config = PLRConfig(total_timesteps=asked.steps, **SHARED, **fields)
        result = purerl.run(config, seeds=asked.seeds, progress=False)
        # Rows of a run are means over updates.
        replayed = float(np.mean(result.metrics["replayed"]))
        learned = 1.0 if config.learn_on_new else replayed
        updates[name] = learned * (asked.steps // config.steps_per_update)
        configs[name], scores[name] = purerl.serialise.to_dict(config), {}
        if config.replay_probability > 0:
            replays[name] = kept(config, result.state)
        for kind, levels in mazes.items():
            returns = np.asarray(play(result.state, levels))
            scores[name][f"{kind}, solved"] = (returns > 0).mean(1).tolist()
            scores[name][f"{kind}, return"] = returns.mean(1).tolist()
    seconds = asked.seconds()
    show(
        f"{asked.seeds} seeds each, {seconds:.0f} s",
        ["trained by", "policy updates", *next(iter(scores.values()))],
        [
            [name, f"{updates[name]:.0f}", *(interval_text(x, 3) for x in row.values())]
            for name, row in scores.items()
        ],
    )
    for name, found in replays.items():
        print(
            f"{name}: {found['solvable']:.1%} of what would be replayed next can be "
            f"solved; its shortest way takes {found['actions']:.1f} actions"
        )
    numbers = {
        "configs": configs,
        "updates_of_the_policy": updates,
        "replayed_next": replays,
        "scores": scores,
        "seconds": round(seconds, 1),
    }
    keep("level-replay", asked, numbers)


if __name__ == "__main__":
    main()
