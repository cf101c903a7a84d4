"""What is refused of networks, policies, losses, rules and optimisers before tracing.

Here is what the algorithms ask of the fields of `network_config`, of `memory` and of
`policy_gradient`, of the environment that they are to fit, and of the parts of a
config, which are tried on shapes. Learning imports none of it: `train.bind` asks by the
`validate` of an algorithm's `Entry`.
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from purerl.algorithms import memory, network_config
from purerl.algorithms.own_terms import terms_of
from purerl.config import (
    ConfigError,
    check_idle,
    nearest_divisors,
    part_kind,
    shown,
    tried,
)
from purerl.envs.base import Environment
from purerl.envs.spaces import num_choices
from purerl.learning.optimiser import is_in, name_leaves
from purerl.losses.value import ClippedSquaredError
from purerl.networks import memories, modules, observe
from purerl.networks.distributions import Head, MixedHead, is_discrete, make_policy_head
from purerl.networks.memories.kinds import check_module
from purerl.networks.observe import MASK, obs_shape
from purerl.optimisers import OPTIMISERS
from purerl.registry import check_part, loaded
from purerl.rules.known import RuleInputs, Targets
from purerl.types import PyTree

_KNOWN = tuple(loaded(OPTIMISERS).values())
_OPTIMISER = "purerl.optimisers.Adam(b1=0.9)"
Wanted = Mapping[str, tuple[Any, str]]
"""By a network's field the shapes of its outputs, as `modules.check` has them, and what
they are in words."""


def check_networks(
    config: Any, env: Environment, wanted: Wanted, judged: tuple[int, ...] | None = None
) -> None:
    """Refuse networks that fit neither the observations nor a memory of them.

    Args:
        config: Config of the agent.
        env: Environment with the observations.
        wanted: Outputs of the networks that the agent has.
        judged: Shape of an action that the critic takes beside an observation, if any.
    """
    shape = check_observations(config, env)
    if memory.has_memory(config):
        shape = (_check_memory(config, env, tuple(wanted)),)
    else:
        for field in wanted:
            if network_config.own(config, field) is None:
                check_torso(config, env, field)
    for field, (outputs, words) in wanted.items():
        module = network_config.own(config, field)
        if module is not None:
            more = [judged] if judged and field == "critic" else []
            seen = observe.visible(shape, network_config.keys_of(config, field))
            modules.check(field, module, [seen, *more], outputs, words)


def check_torso(config: Any, env: Environment, field: str) -> None:
    """Refuse the torso of a network that does not fit what the network sees."""
    shape = obs_shape(env.observation_space(env.default_params))
    sizes = getattr(config, "critic_hidden_sizes", None) if field == "critic" else None
    try:
        network_config.torso_of(config, shape, field, sizes or None)
    except ValueError as error:
        raise ConfigError(f"{env.name}: {error}") from None
    if isinstance(network_config.chosen_torso(config, field), nn.Module):
        words = "features [N, F] of observations [N, *obs_shape]"
        seen = observe.visible(shape, network_config.keys_of(config, field))
        modules.check("torso", config.torso, [seen], (None,), words)


def check_observations(config: Any, env: Environment) -> Any:
    """Return the shape of observations; refuse keys and masks that do not fit them."""
    space: Any = env.observation_space(env.default_params)
    try:
        shape = obs_shape(space)
    except ValueError as error:
        raise ConfigError(f"{env.name}: {error}") from None
    there = observe.part_keys(shape) if isinstance(shape, Mapping) else ()
    for field in ("actor_keys", "critic_keys"):
        keys = getattr(config, field, ())
        if not isinstance(keys, tuple) or not set(keys) <= set(there):
            raise ConfigError(
                f'{field} must name keys of the observation, such as ("observation",), '
                f"got {keys!r}; {env.name} has {', '.join(there) or 'none'}."
            )
    actions = env.action_space(env.default_params)
    has_mask = observe.has_mask(shape)
    mask: Any = space["action_mask"] if has_mask else None
    is_flags = hasattr(mask, "bits") or (
        hasattr(mask, "low") and np.dtype(mask.dtype).kind in "biu"
    )
    size = (num_choices(actions),)
    is_fit = is_flags and tuple(mask.shape) == size and there
    if _is_hidden(space) or (has_mask and not is_fit):
        raise ConfigError(
            f"{env.name} has a mask of the actions {actions} in {mask or space}. A "
            "mask is for Discrete and MultiDiscrete actions, one truth value for each "
            f"choice, under {MASK!r} at the top and beside an observation: "
            'Dict({"observation": ..., "action_mask": envs.spaces.MultiBinary(A)}).'
        )
    return shape


def _is_hidden(space: Any, depth: int = 0) -> bool:
    """Return whether there is a mask's key below the top of a composite space."""
    parts = getattr(space, "spaces", ())
    if isinstance(parts, dict) and depth and MASK in parts:
        return True
    inner = parts.values() if isinstance(parts, dict) else parts
    return any(_is_hidden(part, depth + 1) for part in inner)


def check_values(config: Any, env: Environment, outputs: int | None = None) -> None:
    """Refuse environments and networks without a value for every action.

    Args:
        config: Config of the agent.
        env: Environment with the actions.
        outputs: Numbers of each action's return, or None for its mean.
    """
    space: Any = env.action_space(env.default_params)
    if not hasattr(space, "n"):
        several = "one discrete action at a time"
        needed = several if is_discrete(space) else "discrete actions"
        raise ConfigError(
            f"{type(config).__name__} needs {needed}, got {space} of {env.name}; use "
            f"{instead_of_values(space)}."
        )
    each = "values" if outputs is None else f"{outputs} numbers of the return of each"
    sizes = (int(space.n),) if outputs is None else (int(space.n), outputs)
    check_networks(config, env, {"critic": (sizes, f"{each} of {space.n} actions")})


def instead_of_values(space: Any) -> str:
    """Return what learns in an action space that has no value for every action."""
    if is_discrete(space) or hasattr(space, "spaces"):
        return "PPOConfig, whose policy has a factor for each component"
    return "SACConfig or TD3Config"


def check_rows(config: Any) -> None:
    """Refuse rollouts that do not fall into minibatches of one size."""
    minibatches, steps = config.num_minibatches, config.num_steps
    total = config.samples_per_update
    rows = f"num_envs * num_steps ({config.num_envs} * {steps} = {total})"
    if memory.has_memory(config):
        length, burn_in = config.sequence_length, config.burn_in
        if steps % length:
            raise ConfigError(
                f"num_steps ({steps}) must be divisible by sequence_length, got "
                f"{length}; nearest: {nearest_divisors(steps, length)}."
            )
        if burn_in and (length == steps or burn_in > length):
            raise ConfigError(
                "burn_in must be 0 where a sequence is a whole rollout, and at most "
                f"sequence_length ({length}) elsewhere, got {burn_in}."
            )
        rows = f"num_envs * num_steps / sequence_length ({total}), whole sequences,"
    else:
        check_idle(config, ("head_sizes", "burn_in"), "memory", "memory='gru'")
    if total % minibatches:
        raise ConfigError(
            f"{rows} must be divisible by num_minibatches, got {minibatches}; "
            f"nearest: {nearest_divisors(total, minibatches)}."
        )


def _check_memory(config: Any, env: Environment, fields: tuple[str, ...]) -> int:
    """Return the features that heads see of a memory; refuse one that does not fit."""
    try:
        kind = memories.kind_of(config.memory, config.memory_size)
    except ValueError as error:
        raise ConfigError(
            f"memory_size must fit the memory {config.memory}, got "
            f"{config.memory_size}: {error}."
        ) from None
    for field in fields:
        is_named = network_config.own(config, field) is None
        if is_named and not network_config.is_auto(config, field):
            raise ConfigError(
                f"{field} must be auto or a flax module of memories [N, {kind.size}], "
                f"got {getattr(config, field)!r}, a torso of observations; give it as "
                "torso."
            )
    space = env.observation_space(env.default_params)
    for field in ("torso", "critic"):
        check_torso(config, env, field)
        if isinstance(config.memory, nn.Module):
            torso = network_config.torso_of(config, obs_shape(space), field)
            features, _ = jax.eval_shape(
                torso.init_with_output, jax.random.key(0), observe.example(space)
            )
            check_module(config.memory, features.shape[-1])
    return kind.size


def policy_gradient(config: Any, env: Environment) -> None:
    """Check the networks, the head and the value loss against the environment."""
    check_loss("value_loss", config.value_loss, 3, "SquaredError()")
    _check_standardised(config)
    try:
        head = make_policy_head(env.action_space(env.default_params), config.policy)
    except ValueError as error:
        raise ConfigError(f"{env.name}: {error}") from None
    check_shared(config)
    wanted = {"actor": _outputs(head), "critic": ((), "one value per observation")}
    check_networks(config, env, wanted)


def _outputs(head: Head) -> tuple[Any, str]:
    """The shapes of what a head takes of a whole network, and these in words."""
    num = head.num_outputs
    if head.is_discrete:
        return (num,), f"logits of {num} actions"
    if isinstance(head, MixedHead):
        words = f"a pair of {num} logits and means, and {num} log standard deviations"
        return [(num,), (num,)], words
    return [(num,), (num,)], f"a pair of mean and log standard deviation of {num}"


def _check_standardised(config: Any) -> None:
    """Refuse advantages that are standardised one by one."""
    if not getattr(config, "normalize_advantages", False):
        return
    samples, sizes = config.num_envs * config.num_steps, "num_envs * num_steps"
    if not getattr(config, "normalize_whole_batch", True):
        samples, sizes = samples // config.num_minibatches, f"{sizes} / num_minibatches"
    if samples == 1:
        raise ConfigError(
            f"normalize_advantages=True needs two samples, and {sizes} leaves one, "
            "whose advantage would be 0; set normalize_advantages=False."
        )


def check_shared(config: Any) -> None:
    """Refuse to share a torso between networks that do not have one in common."""
    if not config.shared_torso:
        return
    is_auto = all(
        network_config.is_auto(config, field) for field in ("actor", "critic")
    )
    has_one = is_auto and config.actor_keys == config.critic_keys
    if memory.has_memory(config) or not has_one:
        raise ConfigError(
            "shared_torso needs actor and critic to be auto, with the same keys and "
            "without a memory, which they share already."
        )


def ppo(config: Any, env: Environment) -> None:
    """Check what fields have to do with one another and with the environment."""
    check_rows(config)
    policy_gradient(config, env)
    check_loss("policy_loss", config.policy_loss, 2, "ClipDrift(0.2)")


def check_loss(name: str, loss: Any, num_inputs: int, example: str) -> None:
    """Refuse what is no loss of its kind: called once on shapes, nothing computed.

    Args:
        name: Name of the config's field.
        loss: Value of the config's field.
        num_inputs: Number of arrays `[N]` that a loss of this kind takes.
        example: Name of a loss that would do, for the message.

    Raises:
        ConfigError: it is no dataclass, cannot be called so, or does not return
            `[N]`.
    """
    check_part(name, loss, example)
    sample = jax.ShapeDtypeStruct((3,), jnp.float32)
    words = f"be a loss of {num_inputs} arrays [N], such as {example}"
    call = partial(jax.eval_shape, loss, *[sample] * num_inputs)
    result = tried(name, loss, words, call)
    shape = jax.tree.map(lambda x: x.shape, result)
    if shape != (3,):
        raise ConfigError(
            f"{name} must return one number per sample [N], such as {example} does; "
            f"{shown(loss)} returned shape {shape} for N = 3."
        )


def check_value_loss(loss: Any) -> None:
    """Refuse what is no value loss for values that no rollout has predicted before.

    Args:
        loss: Value of the config's field `value_loss`.

    Raises:
        ConfigError: see `check_loss`; or a loss that keeps values near those of the
            rollout.
    """
    check_loss("value_loss", loss, 3, "SquaredError()")
    if isinstance(loss, ClippedSquaredError):
        raise ConfigError(
            f"value_loss must not be {shown(loss)} here: no rollout has predicted "
            "values to clip to. Use SquaredError() or HuberError()."
        )


def check_terms(config: Any) -> None:
    """Refuse what is no term.

    Raises:
        ConfigError: naming the field, the value, the constraint and the remedy.
    """
    for name, term in terms_of(config).items():
        is_one = not isinstance(config.extra_loss, Mapping)
        where = "extra_loss" if is_one else f"extra_loss.{name}"
        check_part(where, term, "Penalty(coef=0.1)", "coef and __call__")
        coef: Any = getattr(term, "coef", None)
        leaves = [jax.tree_util.keystr(p) for p, _ in jax.tree.leaves_with_path(term)]
        is_number = not isinstance(coef, bool | str) and np.shape(coef) == ()
        if ".coef" not in leaves or not is_number:
            raise ConfigError(
                f"{where} must have a field coef, one number, its weight, got "
                f"{shown(term)}; add coef: float = 0.1 to {type(term).__name__}."
            )
        if not isinstance(coef, Tracer) and not np.isfinite(coef):
            raise ConfigError(f"{where}.coef must be finite, got {coef}.")


# Steps and environments of the rollout that a rule is tried with.
_SHAPE = (3, 2)


def check_rule(rule: Any, prediction_size: int) -> None:
    """Refuse what is no rule: called once on shapes, nothing computed.

    Args:
        rule: Value of the config's field.

    Raises:
        ConfigError: it is no dataclass, cannot be called so, does not return targets of
            the right shapes, or refuses the size of the prediction.
    """
    example = "purerl.rules.ActorCriticRule()"
    check_kind(rule, prediction_size, "__call__(inputs)", example)
    words = f"return targets of a purerl.rules.RuleInputs, as {example} does"

    def of(*shape: int, dtype: Any = jnp.float32) -> Any:
        return jax.ShapeDtypeStruct(shape, dtype)

    number, flag, one = of(*_SHAPE), of(*_SHAPE, dtype=jnp.bool_), of()
    many = of(*_SHAPE, prediction_size)
    inputs = RuleInputs(number, flag, flag, one, number, many, many, one, one)
    targets = tried("rule", rule, words, partial(jax.eval_shape, rule, inputs))
    expected = (_SHAPE, (*_SHAPE, prediction_size))
    is_pair = isinstance(targets, tuple) and len(targets) == len(Targets._fields)
    found = tuple(getattr(x, "shape", None) for x in targets) if is_pair else targets
    if found != expected:
        raise ConfigError(
            f"rule must return purerl.rules.Targets of the shapes {expected}; "
            f"{type(rule).__name__} returned {found}."
        )


def check_kind(rule: Any, prediction_size: int, calls: str, example: str) -> None:
    """Refuse what is no dataclass with certain functions, or is for another size.

    Args:
        rule: Value of the config's field.
        calls: Functions of a rule, as a sentence has them.
        example: A rule, as it is written.
    """
    lacks = "init()" in calls and not hasattr(rule, "init")
    check_part("rule", () if lacks else rule, example, calls)
    size = getattr(rule, "prediction_size", prediction_size)
    if size != prediction_size:
        raise ConfigError(
            f"prediction_size must be that of the rule, {size}, got {prediction_size}; "
            "leave it at auto."
        )


def check_optimisers(config: Any) -> None:
    """Refuse a config whose fields `optimiser` or `*_optimiser` hold something else.

    An optimiser of one's own is called once on shapes, and makes some steps on small
    networks. None stands for another field's optimiser where it is the default.

    Raises:
        ConfigError: naming the field, its value and what would do.
    """
    for name in optimiser_fields(config):
        value = getattr(config, name)
        if value is not None or config.__dataclass_fields__[name].default is not None:
            check_optimiser(name, value)


def optimiser_fields(config: Any) -> list[str]:
    """Return the names of a config's fields that hold optimisers."""
    names = config.__dataclass_fields__
    return [name for name in names if part_kind(name) == "optimiser"]


def check_optimiser(name: str, optimiser: Any) -> None:
    """Refuse what is no optimiser.

    Args:
        name: Name of the config's field.
        optimiser: Value of the config's field.

    Raises:
        ConfigError: it is no callable dataclass, makes no transformation, or looks at
            layers without `needs_layers`.
    """
    if type(optimiser) in _KNOWN and not hasattr(optimiser, "params"):
        return
    check_part(name, optimiser, _OPTIMISER)
    words = f"return a transformation of layers for a step size, as {_OPTIMISER} does"
    tried(name, optimiser, words, partial(jax.eval_shape, _step, optimiser, _layers()))


def _layers() -> Any:
    """Shapes of small networks with names of PPO's, by which a mask may go."""
    bias, kernel = (jax.ShapeDtypeStruct(x, jnp.float32) for x in ((3,), (2, 3)))
    layer = {"bias": bias, "kernel": kernel}
    torso = {"torso": {"Dense_0": layer}, "log_std": bias}
    return {"actor": {"params": torso}, "critic": {"params": {"Dense_0": layer}}}


def _step(optimiser: Any, layers: Any) -> Any:
    """Make one step of an optimiser; what it returns must be like what it was given."""
    transformation = optimiser(1e-3)
    state = transformation.init(layers)
    updates, after = transformation.update(layers, state, layers)
    if jax.tree.structure(after) != jax.tree.structure(state):
        raise ValueError("the state after a step has another structure than before")
    shapes = [jax.tree.map(jnp.shape, x) for x in (updates, layers)]
    if shapes[0] != shapes[1]:
        raise ValueError(f"updates of {shapes[1]} have the shapes {shapes[0]}")
    return updates


def check_parts(parts: Sequence[str], names: Iterable[str], owner: str) -> None:
    """Refuse parts to which no array belongs.

    Args:
        parts: Names of parts.
        names: Names of the arrays that there are.
        owner: Place where the parts were given, for the message.

    Raises:
        ConfigError: with the names that there are.
    """
    known = list(names)
    for part in parts:
        if not any(is_in(name, part) for name in known):
            arrays = ", ".join(known[:8]) + (", ..." if len(known) > 8 else "")
            words = known[0].split(".")
            examples = repr(".".join(words[:-1] or words))
            raise ConfigError(
                f"{owner}: no array of the networks belongs to {part!r}; give words "
                f"that stand in their names, such as {examples}. The arrays are "
                f"{arrays}."
            )


def check_frozen(parts: Sequence[str], state: PyTree) -> None:
    """Refuse frozen parts that there are not, and freezing everything.

    Args:
        parts: Names of the parts, as in a config's `frozen`.
        state: State of an agent, or its shapes.

    Raises:
        ConfigError: naming the part and what there is.
    """
    params = getattr(state, "params", None)
    if params is None:
        raise ConfigError(
            "frozen: the state of this algorithm has no field params, in which to look "
            "for parts; leave frozen out."
        )
    names = [name for name, _ in name_leaves(params)]
    check_parts(parts, names, "frozen")
    if all(any(is_in(name, part) for part in parts) for name in names):
        raise ConfigError(
            f"frozen: {', '.join(parts)} are all that this agent learns, so that "
            "nothing would be trained; leave a part out."
        )
