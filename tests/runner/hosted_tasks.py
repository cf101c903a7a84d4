"""Environments of Gymnasium for tests: this package's own, and one that is scripted."""

from typing import Any, NamedTuple

import gymnasium
import jax
import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from purerl import envs
from purerl.acting import rollout
from purerl.acting.environment import bind_params
from purerl.envs.adapters.gymnasium_spaces import to_gym_space
from purerl.keys import init_keys, update_keys

LANES, SCRIPT = "purerl-test/Lanes-v0", "purerl-test/Script-v0"
BROKEN, ARMS = "purerl-test/Broken-v0", "purerl-test/Arms-v0"


class Moment(NamedTuple):
    """What keys are derived from."""

    key: jax.Array
    update: int


class Lanes(VectorEnv):
    """An environment of this package, with the random numbers of a compiled run.

    Args:
        num_envs: number of lanes.
        task: id of `envs.make`.
        limit: its time limit.
        seed: seed of the agent, whose keys are drawn from.
        steps: steps of a lane in an update.
        begun_with: which of the agent's first keys its environments begin with.
    """

    metadata = {"autoreset_mode": AutoresetMode.SAME_STEP}  # noqa: RUF012

    def __init__(self, num_envs, task, limit, seed, steps, begun_with=2, **more):
        env = envs.make(task)
        self.begun_with = begun_with
        params = bind_params(env, {"max_steps_in_episode": limit})
        self.stepper = rollout.Stepper(env, params, "fresh", 64, None)
        self.num_envs, self.steps, self.count = num_envs, steps, 0
        self.agent = jax.random.key(seed)
        self.single_observation_space = to_gym_space(env.observation_space(params))
        self.single_action_space = to_gym_space(env.action_space(params))
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self._step = jax.jit(self._pure_step)

    def reset(self, *, seed=None, options=None):
        begin = jax.jit(lambda key: rollout.init_envs(self.stepper, key, self.num_envs))
        self.carry = begin(init_keys(self.agent, 3)[self.begun_with])
        return jax.device_get(self.carry.obs), {}

    def _drawn(self, update, carry):
        keys = update_keys(Moment(self.agent, update), 3)
        return rollout.draw_randomness(
            self.stepper, carry, keys, self.steps, lambda key, shape: ()
        )

    def _pure_step(self, update, number, carry, action):
        drawn = self._drawn(update, carry)
        now = jax.tree.map(lambda x: x[number], drawn.inputs[1])
        return rollout.step_envs(self.stepper, carry, action, *drawn.restart(now))

    def step(self, actions):
        update, number = divmod(self.count, self.steps)
        self.count += 1
        self.carry, out = self._step(update, number, self.carry, actions)
        out = jax.device_get(out)
        final = np.full(self.num_envs, None, object)
        for i in np.flatnonzero(out.terminated | out.truncated):
            final[i] = jax.tree.map(lambda x, i=i: x[i], out.next_obs)
        return (
            jax.device_get(self.carry.obs),
            out.reward,
            out.terminated,
            out.truncated,
            {"final_obs": final},
        )


class Script(gymnasium.Env):
    """Episodes of 2 steps that terminate and of 3 that are cut, in turn.

    An observation is `[number of the episode, steps taken]`, in one array that it
    writes into again and again. A reward is 10 times the episode plus the step.
    """

    def __init__(self, **options: Any) -> None:
        self.observation_space = gymnasium.spaces.Box(-1e3, 1e3, (2,), np.float64)
        self.action_space = gymnasium.spaces.Discrete(2, start=5)
        self.seen = np.zeros(2)
        self.seen[0] = -1
        self.actions: list[int] = []

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.seen += [1, 0]
        self.seen[1] = 0
        return self.seen, {}

    def step(self, action):
        assert self.action_space.contains(action), action
        self.seen[1] += 1
        episode, step = self.seen
        terminates = episode % 2 == 0
        # An episode that terminates claims to be cut as well.
        terminated = bool(terminates and step == 2)
        truncated = bool(step == (2 if terminates else 3))
        return self.seen, 10.0 * episode + step, terminated, truncated, {}


class Arms(gymnasium.Env):
    """A bandit whose arms 0, 1 and 2 pay 0, 10 and 20, cut after five pulls."""

    def __init__(self) -> None:
        self.observation_space = gymnasium.spaces.Discrete(1)
        self.action_space = gymnasium.spaces.Discrete(3)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.pulls = 0
        return 0, {}

    def step(self, action):
        self.pulls += 1
        return 0, 10.0 * action, False, self.pulls == 5, {}


class Broken(Script):
    """`Script`, which raises at a step of all steps of all such environments.

    Attributes:
        left: Steps until then.
    """

    left: float = np.inf

    def step(self, action):
        Broken.left -= 1
        if Broken.left < 0:
            raise RuntimeError("the simulator has crashed")
        return super().step(action)


def register():
    """Register all of them, again and again."""
    if LANES in gymnasium.registry:
        return
    gymnasium.register(
        LANES,
        entry_point=lambda task, **more: envs.to_gymnasium(task),
        vector_entry_point=Lanes,
    )
    # Gymnasium's checker warns of what `Script` does on purpose, with its one array.
    unchecked = {"disable_env_checker": True}
    gymnasium.register(SCRIPT, entry_point=Script, **unchecked)
    gymnasium.register(BROKEN, entry_point=Broken, **unchecked)
    gymnasium.register(ARMS, entry_point=Arms)
