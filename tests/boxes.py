"""Environments with observations of several parts, masks, and several actions."""

import dataclasses

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from purerl import envs
from purerl.envs import probe
from purerl.envs.cartpole import CartPole
from purerl.envs.probe import ChainMDP
from purerl.envs.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Tuple

PACKED = "test/packed-cartpole"
MASKED = "test/masked-doors"
MIXED = "test/mixed-actions"


@dataclasses.dataclass(unsafe_hash=True)
class PackedCartPole(CartPole):
    """CartPole with its vector in a dictionary, in the same order."""

    def observation_space(self, params=None):
        inner = super().observation_space(params)
        return Dict(
            {
                "cart": Box(inner.low[:2], inner.high[:2], (2,)),
                "pole": Tuple(
                    (
                        Box(inner.low[2], inner.high[2], ()),
                        Box(inner.low[3], inner.high[3], ()),
                    )
                ),
            }
        )

    def reset_env(self, key, params):
        obs, state = super().reset_env(key, params)
        return pack(obs), state

    def step_env(self, key, state, action, params):
        obs, *rest = super().step_env(key, state, action, params)
        return (pack(obs), *rest)


def pack(obs):
    return {"cart": obs[:2], "pole": (obs[2], obs[3])}


@struct.dataclass
class MaskedState(envs.EnvState):
    """Which actions are valid now, and a number that names the situation."""

    mask: jax.Array
    cue: jax.Array


@dataclasses.dataclass(unsafe_hash=True)
class Masked(envs.Environment):
    """Valid actions change with every step; an invalid one ends the episode.

    An episode is eight steps. A valid action pays 1 where it is the valid one with the
    lowest number and 0.5 otherwise, and an invalid one pays `-100`. `kind` is that of
    the actions, and `on_end` what the mask of the last observation is.

    Attributes:
        kind: `one` or `several`.
        on_end: `some` or `none`: the valid actions of an observation of no action.
    """

    kind: str = "one"
    on_end: str = "none"

    @property
    def name(self):
        return MASKED

    @property
    def default_params(self):
        return envs.EnvParams(max_steps_in_episode=8)

    @property
    def sizes(self):
        return (6,) if self.kind == "one" else (3, 2)

    def action_space(self, params=None):
        del params
        return Discrete(6) if self.kind == "one" else MultiDiscrete(self.sizes)

    def observation_space(self, params=None):
        del params
        num = sum(self.sizes)
        vector = Box(-1.0, 1.0, (num,))
        return Dict({"observation": vector, "action_mask": MultiBinary(num)})

    def _draw(self, key, time):
        masks = []
        for part, size in zip(
            jax.random.split(key, len(self.sizes)), self.sizes, strict=True
        ):
            key_all, key_one = jax.random.split(part)
            some = jax.random.bernoulli(key_all, 0.3, (size,))
            sure = jnp.arange(size) == jax.random.randint(key_one, (), 0, size)
            masks.append(some | sure)
        mask = jnp.concatenate(masks)
        cue = jnp.where(mask, 1.0, -1.0) * jnp.cos(jnp.arange(mask.size) + 1.0)
        return MaskedState(time, mask, cue.astype(jnp.float32))

    def _obs(self, state, over=False):
        mask = state.mask
        if self.on_end == "none":
            mask = mask & ~jnp.asarray(over)
        return {"observation": state.cue, "action_mask": mask.astype(jnp.int8)}

    def reset_env(self, key, params):
        del params
        state = self._draw(key, jnp.int32(0))
        return self._obs(state), state

    def step_env(self, key, state, action, params):
        del params
        starts = np.cumsum((0, *self.sizes[:-1]))
        taken = jnp.reshape(action, -1) + starts
        is_valid = state.mask[taken].all()
        firsts = jnp.stack(
            [
                jnp.argmax(state.mask[start : start + size])
                for start, size in zip(starts, self.sizes, strict=True)
            ]
        )
        best = (jnp.reshape(action, -1) == firsts).all()
        reward = jnp.where(is_valid, jnp.where(best, 1.0, 0.5), -100.0)
        new = self._draw(key, state.time + 1)
        over = ~is_valid | (new.time >= 8)
        return self._obs(new, over), new, reward.astype(jnp.float32), ~is_valid, {}


@struct.dataclass
class PrivilegedState(envs.EnvState):
    """What the next step pays, `[]`."""

    pays: jax.Array


@dataclasses.dataclass(unsafe_hash=True)
class Privileged(envs.Environment):
    """The agent sees a number, and training knows three more; pays the last of these.

    Attributes:
        is_discrete: Whether actions are one of two, or a number in [-1, 1].
    """

    is_discrete: bool = True

    @property
    def default_params(self):
        return envs.EnvParams(max_steps_in_episode=4)

    def action_space(self, params=None):
        del params
        return Discrete(2) if self.is_discrete else Box(-1.0, 1.0, (1,))

    def observation_space(self, params=None):
        del params
        return Dict({"obs": Box(-4.0, 4.0, (1,)), "state": Box(-4.0, 4.0, (3,))})

    def reset_env(self, key, params):
        del params
        obs, state = jnp.split(jax.random.uniform(key, (4,)), [1])
        return {"obs": obs, "state": state}, PrivilegedState(jnp.int32(0), state[2])

    def step_env(self, key, state, action, params):
        del action
        obs, new = self.reset_env(key, params)
        new = new.replace(time=state.time + 1)
        return obs, new, state.pays, jnp.bool_(False), {}


@dataclasses.dataclass(unsafe_hash=True)
class WatchedChain(ChainMDP):
    """The chain, of whose places the agent sees two, and training sees all."""

    def observation_space(self, params=None):
        place = super().observation_space(params)
        return Dict({"place": place, "some": Box(0.0, 1.0, (2,))})

    def _observe(self, position):
        place = super()._observe(position)
        return {"place": place, "some": place[:2]}


@dataclasses.dataclass(unsafe_hash=True)
class Told(probe.MemoryProbe):
    """The end pays the sign, whatever is done; training is told it at the beginning.

    The agent sees 0 throughout.
    """

    def observation_space(self, params=None):
        told = super().observation_space(params)
        return Dict({"obs": told, "told": told})

    def reset_env(self, key, params):
        told, state = super().reset_env(key, params)
        return {"obs": jnp.zeros(1), "told": told}, state

    def step_env(self, key, state, action, params):
        obs, new, _, over, info = super().step_env(key, state, action, params)
        reward = jnp.where(over, state.sign, 0.0)
        return {"obs": obs, "told": obs}, new, reward, over, info


@struct.dataclass
class AimedState(envs.EnvState):
    """What the next action is to be: a door and a number."""

    door: jax.Array
    aim: jax.Array


@dataclasses.dataclass(unsafe_hash=True)
class Aimed(envs.Environment):
    """Choose the door that is seen, and a number near the one that is seen.

    An action is a door, two switches and a number in [0, 4]. The door pays 1, a switch
    that is off pays a quarter, and the distance of the number costs.
    """

    @property
    def name(self):
        return MIXED

    @property
    def default_params(self):
        return envs.EnvParams(max_steps_in_episode=4)

    def action_space(self, params=None):
        del params
        gear = Tuple((MultiBinary(2), Box(0.0, 4.0, (1,))))
        return Dict({"door": Discrete(3), "gear": gear})

    def observation_space(self, params=None):
        del params
        return Dict({"aim": Box(-1.0, 1.0, ()), "door": Discrete(3)})

    def reset_env(self, key, params):
        del params
        key_door, key_aim = jax.random.split(key)
        door = jax.random.randint(key_door, (), 0, 3)
        aim = jax.random.uniform(key_aim, minval=-1.0, maxval=1.0)
        return {"aim": aim, "door": door}, AimedState(jnp.int32(0), door, aim)

    def step_env(self, key, state, action, params):
        switches, number = action["gear"]
        cost = jnp.abs(number[0] - (2.0 + state.aim))
        off = 0.25 * (switches == 0).sum()
        reward = (action["door"] == state.door) + off - cost
        obs, new = self.reset_env(key, params)
        new = new.replace(time=state.time + 1)
        return obs, new, reward.astype(jnp.float32), jnp.bool_(False), {}


class Wide(CartPole):
    """CartPole whose space of actions has a second part."""

    def action_space(self, params=None):
        return Dict({"push": super().action_space(params), "more": MultiBinary(1)})


class Vector(nn.Module):
    """A torso of `PackedCartPole`: the vector that it was, then one of a vector."""

    inner: nn.Module

    @nn.compact
    def __call__(self, obs):
        parts = [obs["cart"], obs["pole"][0][:, None], obs["pole"][1][:, None]]
        return self.inner(jnp.concatenate(parts, -1))


class Echo(nn.Module):
    """A network whose outputs are the observation, times a number that it learns."""

    @nn.compact
    def __call__(self, obs):
        return obs["observation"] * self.param("scale", nn.initializers.ones, (1, 1))


envs.register(PACKED, PackedCartPole)
envs.register(MASKED, Masked)
envs.register(MIXED, Aimed)


@dataclasses.dataclass(unsafe_hash=True)
class Odd(Privileged):
    """Masks that do not fit: only the spaces are read.

    Attributes:
        what: What is wrong with it.
    """

    what: str = ""

    def __init__(self, what):
        super().__init__(is_discrete=what != "continuous")
        self.what = what

    def observation_space(self, params=None):
        del params
        mask, x = MultiBinary(2), Box(-1.0, 1.0, (2,))
        return {
            "size": Dict({"x": x, "action_mask": MultiBinary(3)}),
            "floats": Dict({"x": x, "action_mask": x}),
            "alone": Dict({"action_mask": mask}),
            "inside": Dict({"x": Dict({"y": x, "action_mask": mask})}),
            "continuous": Dict({"x": x, "action_mask": MultiBinary(1)}),
        }[self.what]
