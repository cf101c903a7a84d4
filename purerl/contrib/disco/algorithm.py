"""DiscoRL: an agent whose rule of learning was discovered (Oh et al. 2025).

"Discovering state-of-the-art reinforcement learning algorithms", Nature,
doi:10.1038/s41586-025-09761-x. A network puts out a policy `pi(s)`, a prediction
`y(s)`, and of every action a prediction `z(s, a)`, a categorical value `Q(s, a)` and
the policy of the next observation `p(s, a)`. A rule reads trajectories from a buffer
and says what `pi`, `y` and `z` shall become; then one gradient step minimises the mean
over the steps of

    policy_coef KL(pi_hat || pi(s)) + y_coef KL(y_hat || y(s))
    + z_coef KL(z_hat || z(s, a)) + value_coef CE(G, Q(s, a))
    + model_coef (1 - terminated) KL(pi(s') || p(s, a))

with the target `G` of Retrace(lambda), made of a target network and written as a
two-hot distribution. `s'` is the observation before any reset. `pi_hat`, `y_hat`,
`z_hat`, `G` and `pi(s')` are constants of the gradient. The target network then moves
by `1 - target_decay` of the way to the network before the step.

The rule is a leaf of the config, and carries a memory from update to update.
`rules.DiscoRule` reads the published weights Disco103 from a file; the default,
`rules.CMPORule`, was written by hand and needs none. Other defaults are those of the
authors' code (github.com/google-deepmind/disco_rl): `get_settings_disco` in its
`agent.py`, and its notebook's two environments, trajectories of 29 steps, batches of 64
of the last 1,024, and one gradient step for each two of them.
"""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from purerl import auto, networks
from purerl.accelerator.kernels import traced_for_cpu
from purerl.acting import rollout
from purerl.acting.rollout import Transition
from purerl.algorithms import checks, network_config, on_policy
from purerl.algorithms.network_config import ACTIVATION, NetworkConfig
from purerl.config import (
    AUTO,
    DECAY,
    FRACTION,
    LAYERS,
    NON_NEGATIVE,
    POSITIVE,
    POSITIVE_OR_NONE,
    SIZES,
    Check,
    ConfigError,
    config_dataclass,
    dynamic,
    static,
)
from purerl.contrib.disco.learner import (
    ActionModel,
    Learner,
    MovingMoments,
    Parts,
    improve,
    init_moments,
    make_optimiser,
    predict,
    scaled_like,
)
from purerl.contrib.disco.rules import CMPORule
from purerl.envs.base import Environment
from purerl.keys import init_keys, update_keys
from purerl.learning import optimiser
from purerl.learning.averages import after
from purerl.learning.branches import change_if, change_where
from purerl.metrics import BATCH, averages
from purerl.networks import observe
from purerl.networks.distributions import make_head
from purerl.networks.observe import obs_shape, to_features
from purerl.optimisers import Adam
from purerl.replay import uniform as ring
from purerl.types import Algorithm, Array, Hosted, Metrics, PyTree

# Sizes where the rule has no network that reads predictions.
PREDICTION_SIZE = 1
AT_LEAST_TWO = Check(lambda x: x >= 2, "must be 2 or greater")


@config_dataclass
class DiscoConfig(NetworkConfig):
    """DiscoRL: an agent that asks a rule what to learn from a buffer."""

    num_envs: int = static(2, "Environments of one agent.", POSITIVE)
    num_steps: int = static(29, "Steps of a trajectory, T.", POSITIVE)
    buffer_size: int = static(1_024 * 29, "Steps that are kept.", POSITIVE)
    batch_size: int = static(64, "Trajectories of one gradient step.", POSITIVE)
    learning_starts: int = static(64 * 29, "Steps of the warm-up.", NON_NEGATIVE)
    gamma: float = dynamic(0.997, "Discount per step.", FRACTION)
    trace_decay: float = dynamic(0.95, "Lambda of Retrace.", FRACTION)
    rule: Any = dynamic(CMPORule(), "Rule that makes the targets.")
    prediction_size: int = static(AUTO, "Size of y, z; auto: the rule's.", POSITIVE)
    num_bins: int = static(601, "Bins of an action value.", AT_LEAST_TWO)
    max_abs_value: float = dynamic(300.0, "Largest value's root.", POSITIVE, stays=True)
    policy_coef: float = dynamic(1.0, "Weight of the policy's loss.", NON_NEGATIVE)
    y_coef: float = dynamic(1.0, "Weight of the loss of y.", NON_NEGATIVE)
    z_coef: float = dynamic(1.0, "Weight of the loss of z.", NON_NEGATIVE)
    model_coef: float = dynamic(1.0, "Weight of the model's loss.", NON_NEGATIVE)
    value_coef: float = dynamic(0.2, "Weight of the action value's loss.", NON_NEGATIVE)
    target_decay: float = dynamic(0.9, "Share of the target kept.", FRACTION)
    advantage_decay: float = dynamic(0.99, "Share of the moments kept.", DECAY)
    learning_rate: float = dynamic(3e-4, "Step size of the optimiser.", POSITIVE)
    optimiser: Any = dynamic(Adam(), "Optimiser of the network.")
    max_grad_norm: float | None = dynamic(None, "Gradient clipping.", POSITIVE_OR_NONE)
    max_update: float | None = dynamic(1.0, "Largest step, in rates.", POSITIVE_OR_NONE)
    hidden_sizes: tuple[int, ...] = static(
        (512, 512), "Units of each hidden layer.", LAYERS
    )
    activation: str = static("relu", "Activation of hidden layers.", ACTIVATION)
    torso_gain: float = static(1.0, "First gain of the torso.", POSITIVE)
    model_size: int = static(128, "Units of the recurrent model.", POSITIVE)
    head_sizes: tuple[int, ...] = static((128,), "Units of prediction layers.", SIZES)

    @property
    def sequential_steps(self) -> int:
        """Dependent operations of one update: the rollout, its way back, one step."""
        return 2 * self.num_steps + 1

    @property
    def capacity(self) -> int:
        """Trajectories that the buffer holds.

        A multiple of `num_envs`, so that every environment has slots of its own.
        """
        return self.buffer_size // self.steps_per_update * self.num_envs

    @property
    def first_update(self) -> int:
        """Number of the update that learns first: the one that ends the warm-up."""
        return max(0, -(-self.learning_starts // self.steps_per_update) - 1)

    def automatic(self, env: Environment) -> dict[str, Any]:
        """Return the size of the predictions that the rule is made for."""
        del env
        return {
            "prediction_size": getattr(self.rule, "prediction_size", PREDICTION_SIZE)
        }


def validate(config: DiscoConfig, env: Environment) -> None:
    """Check the network, the rule and the buffer against the environment.

    Raises:
        ConfigError: naming the fields, their values, the constraint and the remedy.
    """
    calls = "init() and __call__(inputs, memory, axis_name)"
    checks.check_kind(
        config.rule, config.prediction_size, calls, "purerl.rules.CMPORule()"
    )
    space = env.action_space(env.default_params)
    if not hasattr(space, "n"):
        raise ConfigError(
            f"DiscoConfig needs discrete actions, got {space} of {env.name}; use "
            "PPOConfig."
        )
    if not network_config.is_auto(config, "critic"):
        raise ConfigError(
            "critic must be auto for DiscoConfig, which has one network, got "
            f"{network_config.described(config, 'critic')}; give its layers as torso."
        )
    # The last of the sizes is that of the embedding, after the torso.
    below = config.replace(hidden_sizes=config.hidden_sizes[:-1])
    checks.check_torso(below, env, "torso")
    if observe.has_mask(checks.check_observations(config, env)):
        raise ConfigError(
            f"{env.name} says which actions are valid, and DiscoConfig's rules know "
            "nothing of that; use PPOConfig or LPGConfig."
        )
    if config.buffer_size < config.steps_per_update:
        raise ConfigError(
            "buffer_size must hold the num_envs * num_steps = "
            f"{config.steps_per_update} steps of an update, got {config.buffer_size}."
        )
    updates = config.total_timesteps // config.steps_per_update
    if updates and config.first_update >= updates:
        raise ConfigError(
            f"learning_starts must be at most {updates * config.steps_per_update}, "
            f"the steps that are run, got {config.learning_starts}."
        )


class DiscoState(NamedTuple):
    """Everything that training carries, arrays only.

    Attributes:
        params: Parameters of the network.
        target_params: Parameters of the target network.
        opt_state: State of the optimiser.
        rule_memory: The rule's memory of the agent's updates.
        advantage_moments: Moving moments of the advantages.
        buffer: Trajectories, leaves `[C / B, B, T, ...]`, with the logits of the policy
            that acted in the place of log-probabilities.
        envs: The environments between two steps.
        key: Random key of the agent, which never changes.
        update: `[]` int32, number of updates done.
    """

    params: PyTree
    target_params: PyTree
    opt_state: PyTree
    rule_memory: PyTree
    advantage_moments: MovingMoments
    buffer: Transition
    envs: rollout.EnvCarry
    key: Array
    update: Array


def make(
    config: DiscoConfig, env: Environment, axis_name: str | None = None
) -> Algorithm:
    """Build DiscoRL's agent for a config and an environment; see `build`.

    Args:
        axis_name: Mapped axis over which this agent's environments are spread, if any.
    """
    parts = build(config, env, axis_name)
    return Algorithm(
        partial(init, parts),
        partial(step, parts),
        partial(act, parts),
        hosted=partial(hosted, parts),
    )


def build(config: DiscoConfig, env: Environment, axis_name: str | None = None) -> Parts:
    """Build network and environment of a config: what the functions below work with.

    Args:
        axis_name: Mapped axis over which this agent's environments are spread.
    """
    config = auto.resolve(config, env)
    stepper = rollout.make_stepper(config, env, axis_name)
    obs_space = env.observation_space(stepper.params)
    head = make_head(env.action_space(stepper.params), "categorical")
    *inner, last = config.hidden_sizes
    shape = obs_shape(obs_space)
    network = ActionModel(
        torso=network_config.torso_of(config, shape, hidden_sizes=tuple(inner)),
        num_actions=head.num_outputs,
        prediction_size=config.prediction_size,
        num_bins=config.num_bins,
        embedding_size=last,
        model_size=config.model_size,
        head_sizes=config.head_sizes,
    )
    return Parts(config, stepper, obs_space, head, network)


def init(parts: Parts, key: Array) -> DiscoState:
    """Make a fresh network, its copy as the target, an empty buffer."""
    config, axis = parts.config, parts.stepper.axis_name
    keys = init_keys(key, 3)
    num_envs = rollout.per_device(config.num_envs, axis)
    example = observe.example(parts.obs_space)
    network = {"network": (parts.network, [example])}
    params = networks.init_params(keys[:2], network)["network"]
    inner = params["params"]
    if "torso" in inner and isinstance(config.torso, str):
        inner = {**inner, "torso": scaled_like(inner["torso"])}
    params = {**params, "params": inner}
    envs = rollout.init_envs(parts.stepper, keys[2], num_envs)
    capacity = rollout.per_device(config.capacity, axis)
    shapes = jax.eval_shape(partial(_example, parts), envs)
    return DiscoState(
        params=params,
        target_params=params,
        opt_state=make_optimiser(config, params).init(optimiser.flatten(params)[0]),
        rule_memory=config.rule.init(),
        advantage_moments=init_moments(),
        buffer=ring.by_env(ring.init(shapes, capacity), num_envs),
        envs=envs,
        key=key,
        update=jnp.int32(0),
    )


def _example(parts: Parts, envs: rollout.EnvCarry) -> Transition:
    """Return one trajectory of the right shapes `[T, ...]`."""
    num = parts.config.num_steps
    obs = jax.tree.map(lambda x: jnp.broadcast_to(x[:1], (num, *x.shape[1:])), envs.obs)
    logits = jnp.zeros((num, parts.head.num_outputs))
    flag = jnp.zeros(num, bool)
    action = parts.head.mode(logits)
    return Transition(obs, action, logits, jnp.zeros(num), obs, flag, flag)


def step(parts: Parts, state: DiscoState) -> tuple[DiscoState, Metrics]:
    """Make one update: collect trajectories, remember them, take one gradient step."""
    keys = update_keys(state, on_policy.NUM_KEYS)
    num_steps = parts.config.num_steps
    played = rollout.collect(
        parts.stepper, state.envs, (), policy(parts, state), keys[:3], num_steps
    )
    return learn(parts, state, played, keys)


def policy(parts: Parts, state: DiscoState) -> rollout.Player:
    """Return how the network of a state chooses actions while it is trained."""

    def act(features: Any, memory: PyTree, noise: Array) -> Any:
        logits = predict(parts, state.params, features).logits
        raw = parts.head.choose(logits, noise)
        return (raw, logits, parts.head.to_env(raw)), memory

    return rollout.Player(act, partial(to_features, parts.obs_space), parts.head.noise)


def act(parts: Parts, state: DiscoState, obs: Array, key: Array | None = None) -> Array:
    """Return the policy's action on observations `[..., *obs_shape]`.

    Args:
        state: State of one agent.
        obs: Observations as the environment gives them.
        key: Random key, consumed; without one the action is the deterministic one.
    """
    logits = predict(parts, state.params, to_features(parts.obs_space, obs)).logits
    head = parts.head
    return head.to_env(head.mode(logits) if key is None else head.sample(logits, key))


def learn(
    parts: Parts, state: DiscoState, played: rollout.Played, keys: Array
) -> tuple[DiscoState, Metrics]:
    """Remember a rollout, and learn from a batch of trajectories where that is due.

    Args:
        state: State with which the rollout was collected.
        played: The rollout, with the policy's logits in its transitions.
        keys: Keys of the update, the first three of which the rollout has used.
    """
    config, axis = parts.config, parts.stepper.axis_name
    envs, transitions, episodes = played.envs, played.transitions, played.episodes
    num_envs = envs.episode_return.shape[0]
    before = state.update.astype(jnp.uint32) * jnp.uint32(num_envs)
    trajectories = jax.tree.map(lambda x: jnp.swapaxes(x, 0, 1), transitions)
    buffer = ring.add(ring.in_order(state.buffer), trajectories, before)

    due = state.update >= config.first_update
    change = partial(_learn, parts, buffer, before + jnp.uint32(num_envs), keys[3])
    learner = Learner(*(getattr(state, name) for name in Learner._fields))
    if traced_for_cpu():
        learner, sums = change_if(due, change, learner, like=state.key)
    else:
        learner, sums = change_where(due, change, learner)

    losses = averages(sums, {"gradient_steps": due.astype(jnp.int32)})
    # Averages over devices must come one after another: see `averages`.
    episodes = after(episodes, losses["policy_loss"], axis)
    done = (state.update + 1).astype(jnp.uint32)
    metrics = {
        "env_steps": done * jnp.uint32(config.steps_per_update),
        "gradient_steps": jnp.maximum(0, state.update + 1 - config.first_update).astype(
            jnp.uint32
        ),
        **rollout.episode_metrics(episodes, axis),
        **losses,
    }
    if config.metrics:
        shown: Any = transitions
        metrics[BATCH] = shown
    new = state._replace(
        **learner._asdict(),
        buffer=ring.by_env(buffer, num_envs),
        envs=envs,
        update=state.update + 1,
    )
    return new, metrics


def _learn(
    parts: Parts, buffer: Transition, added: Array, key: Array, learner: Learner
) -> tuple[Learner, Metrics]:
    """Take the gradient step of a batch of trajectories from the buffer."""
    if parts.stepper.axis_name is not None:
        key = jax.random.fold_in(key, jax.lax.axis_index(parts.stepper.axis_name))
    num = rollout.per_device(parts.config.batch_size, parts.stepper.axis_name)
    bits = jax.random.bits(key, (num,), jnp.uint32)
    numbers = ring.sample(bits, added, ring.capacity_of(buffer))
    found = ring.gather(buffer, numbers)
    return improve(parts, learner, jax.tree.map(lambda x: jnp.swapaxes(x, 0, 1), found))


def hosted(parts: Parts, update: Array) -> Hosted:
    """Return an update in pieces, for environments on the host.

    Args:
        update: `[]` int32, number of updates done; nothing here depends on it.
    """
    del update

    def restart(state: Any, obs: Any) -> Any:
        return state._replace(envs=rollout.first_step(state.envs, obs))

    return on_policy.of_rollout(
        parts.config, partial(policy, parts), partial(learn, parts), restart
    )
