"""A search of your own: random search with restarts, as two pure functions.

    python examples/own_search.py      # Ctrl-C, then again: it goes on where it was
    purerl report runs/own-search      # a page of what came of every request

A batch of agents with random settings is trained half way. If none of them is as good
there as the best batch was, the batch is given up and another one starts. `ask` says
what to train next and `tell` takes what came of it; neither trains anything or draws
from a hidden source. For that, purerl trains, saves, resumes, shows and tracks it.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import purerl
from purerl.train import bind

AGENTS, REQUESTS = 8, 6  # in a batch; halves of batches that are trained in all


class State(NamedTuple):
    """The state of the search.

    Attributes:
        told: Number of requests that have been answered.
        batch: Number of the batch that is trained next, or goes on.
        is_half: Whether that batch has been trained half way.
        best_half: The best score half way so far.
        best: The best score at the end of training so far.
        setting: Learning rate and entropy coefficient that have it.
    """

    told: int = 0
    batch: int = 0
    is_half: bool = False
    best_half: float = -np.inf
    best: float = -np.inf
    setting: tuple[float, float] = (np.nan, np.nan)


def random_search(config, seed=0):
    """Make the search; `seed` decides everything that is random."""
    bound = bind(config)
    end = bound.plan.num_updates
    half = end // 2
    key = jax.random.key(seed)

    def settings(batch):
        """Draw a batch's learning rates and entropy coefficients, log-uniformly."""
        rng = np.random.default_rng([seed, batch])
        rates = np.exp(rng.uniform(np.log(1e-4), np.log(1e-2), AGENTS))
        entropy = np.exp(rng.uniform(np.log(1e-4), np.log(1e-1), AGENTS))
        return rates.astype(np.float32), entropy.astype(np.float32)

    def ask(state):
        if state.told == REQUESTS:
            return None  # the search has ended
        rates, entropy = settings(state.batch)
        overrides = {"learning_rate": rates, "entropy_coef": entropy}
        keys = jax.random.split(jax.random.fold_in(key, state.batch), AGENTS)
        # All agents are judged by the same fresh episodes.
        common = jax.random.fold_in(key, 2**31)
        return purerl.Request(
            purerl.Members(keys, overrides),
            until=end if state.is_half else half,
            # Agents without parents begin anew; else each goes on as it was.
            parents=np.arange(AGENTS) if state.is_half else None,
            evaluation_keys=jnp.broadcast_to(common, (AGENTS,)),
        )

    def tell(state, request, outcome):
        score = np.where(outcome.diverged, -np.inf, outcome.fresh.episode_return)
        place = int(score.argmax())
        state = state._replace(told=state.told + 1)
        if not state.is_half:
            if score[place] < state.best_half:  # a restart
                return state._replace(batch=state.batch + 1)
            return state._replace(is_half=True, best_half=float(score[place]))
        state = state._replace(batch=state.batch + 1, is_half=False)
        if score[place] <= state.best:
            return state
        rates, entropy = settings(state.batch - 1)
        setting = (float(rates[place]), float(entropy[place]))
        return state._replace(best=float(score[place]), setting=setting)

    def rows(step):
        """Rows for trackers: every agent's score, where it was judged."""
        score = step.outcome.fresh.episode_return
        return [(number, {"score": float(score[number])}) for number in range(AGENTS)]

    return purerl.Search(
        kind="random search with restarts",
        bound=bound,
        spec={
            "config": purerl.serialise.to_dict(config),
            "options": {"agents": AGENTS, "requests": REQUESTS},
            "seeds": [seed],
        },
        # A batch that is given up saves its second half for another one.
        steps=(AGENTS * half * bound.plan.steps_per_update,) * REQUESTS,
        lanes=AGENTS,
        segment_updates=half,
        init=State,
        ask=ask,
        tell=tell,
        rows=rows,
        names={number: f"agent={number}" for number in range(AGENTS)},
    )


def main(steps=40_960, out="runs/own-search", **options):
    """Search, and print the best setting."""
    config = purerl.PPOConfig(
        env="CartPole-v1", total_timesteps=steps, num_evaluations=0
    )
    finished = purerl.drive(random_search(config), out=out, **options)
    if finished.states is None:
        return None  # it was stopped, and has said how to go on
    state = finished.steps[-1].after
    rate, entropy = state.setting
    print(f"best of {state.batch} batches: return {state.best:.1f} with")
    print(f"learning_rate={rate:.2e}, entropy_coef={entropy:.2e}")
    return finished


if __name__ == "__main__":
    main()
