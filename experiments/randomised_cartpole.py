"""CartPole trained on ranges of its physics, judged inside and outside of them.

    python experiments/randomised_cartpole.py [--seeds 10] [--steps 300000]

Ten PPO agents learn with CartPole's own numbers and ten with pole length, pole mass and
gravity drawn for every episode. Both are played with the numbers of CartPole, with
draws from the ranges, and with numbers outside of them. Prints a table of mean returns
with 95% intervals over seeds; writes experiments/results/randomised-cartpole.json.
"""

from functools import partial
from typing import Any

import jax
import numpy as np
from frame import interval_text, keep, options, show

import purerl
from purerl.acting.environment import bind_params
from purerl.acting.evaluate import evaluate
from purerl.train import bind

RANGES = {
    "length": purerl.randomisation.LogUniform(0.25, 1.0),
    "masspole": purerl.randomisation.LogUniform(0.05, 0.4),
    "gravity": purerl.randomisation.Uniform(7.0, 13.0),
}
TRAINED_ON = {"CartPole's numbers": None, "ranges": RANGES}
PLAYED_WITH: dict[str, dict[str, Any] | None] = {
    "CartPole's numbers": None,
    "draws from the ranges": RANGES,
    "length 0.1": {"length": 0.1},
    "length 2": {"length": 2.0},
    "masspole 1": {"masspole": 1.0},
    "masspole 2": {"masspole": 2.0},
    "gravity 20": {"gravity": 20.0},
    "gravity 20, masspole 1": {"gravity": 20.0, "masspole": 1.0},
    "length 0.1, gravity 20": {"length": 0.1, "gravity": 20.0},
}
EPISODES = 32


def player(config: purerl.PPOConfig, numbers: Any) -> tuple[Any, Any]:
    """Return `play(states [S, ...], params) -> [S]` mean returns, and the params."""
    act = purerl.make_algorithm(config).act
    bound = bind(config.replace(env_params=numbers))

    @jax.jit
    @partial(jax.vmap, in_axes=(0, None))
    def play(state: Any, params: Any) -> Any:
        return evaluate(
            bound.env,
            params,
            partial(act, state),
            jax.random.key(12345),
            num_episodes=EPISODES,
            max_steps=bound.plan.eval_max_steps,
        ).episode_return.mean()

    return play, bind_params(bound.env, numbers)


def main() -> None:
    """Train, play, print and write."""
    asked = options(
        __doc__, seeds=(10, "agents of each kind"), steps=(300_000, "steps of each")
    )
    scores: dict[str, dict[str, list[float]]] = {}
    configs, states, programs = {}, {}, {}
    for name, numbers in TRAINED_ON.items():
        config = purerl.PPOConfig(
            env_params=numbers, total_timesteps=asked.steps, num_evaluations=0
        )
        configs[name], scores[name] = purerl.serialise.to_dict(config), {}
        states[name] = purerl.run(config, seeds=asked.seeds, progress=False).state
    for where, numbers in PLAYED_WITH.items():
        for name, agents in states.items():
            # One program for all plain numbers, and one for the ranges.
            kind = "ranges" if numbers is RANGES else "numbers"
            config = purerl.PPOConfig(total_timesteps=asked.steps)
            fresh, params = player(config, numbers)
            play = programs.setdefault(kind, fresh)
            scores[name][where] = np.asarray(play(agents, params)).tolist()
    seconds = asked.seconds()
    show(
        f"{asked.seeds} seeds each, {seconds:.0f} s",
        ["played with", *(f"trained on {name}" for name in TRAINED_ON)],
        [
            [where, *(interval_text(scores[name][where], 0) for name in TRAINED_ON)]
            for where in PLAYED_WITH
        ],
    )
    numbers = {"configs": configs, "episodes": EPISODES, "scores": scores}
    keep("randomised-cartpole", asked, {**numbers, "seconds": round(seconds, 1)})


if __name__ == "__main__":
    main()
