"""Writes `disco_reference.npz`: what the authors' code makes of the case.

It needs a checkout of https://github.com/google-deepmind/disco_rl (Apache-2.0) with
what that needs (dm-haiku, rlax), and is run as

    JAX_ENABLE_X64=1 python -m tests.contrib.disco_reference CHECKOUT

from the repository's root. With the published weights it also writes what they make.
"""

import sys
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from purerl.contrib.disco.meta_network import Sizes
from tests.contrib import disco_case as known

OUT = Path(__file__).with_name("disco_reference.npz")
COSTS = ("pi_cost", "y_cost", "z_cost", "aux_policy_cost")


def main(checkout: str) -> None:
    """Write the file."""
    sys.path.insert(0, checkout)
    file = Path(checkout) / "disco_rl/update_rules/weights/disco_103.npz"
    with np.load(file) as found:
        published = {name: found[name].astype(float) for name in found.files}
    small = run(known.SIZES, known.published())
    whole = run(Sizes(), published)
    agent = gradients()
    kept = {f"published/{call}/pi": whole[f"{call}/pi"] for call in range(known.CALLS)}
    for name in ("y", "z"):  # of 600 numbers the first of each step
        last = whole[f"{known.CALLS - 1}/{name}"]
        kept[f"published/{known.CALLS - 1}/{name}"] = last[..., :4]
    arrays: dict[str, Any] = {**small, **kept, **agent}
    np.savez_compressed(OUT, **arrays)


def run(sizes: Sizes, arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """What the authors' rule makes of the calls, one after the other."""
    rule = _rule(sizes)
    params = _by_layer(arrays)
    state = rule.init_meta_state(jax.random.PRNGKey(0), {})
    state = jax.tree.map(lambda x: jnp.asarray(x, float), state)
    costs = dict.fromkeys(COSTS, 0.0) | {
        "value_cost": 1.0,
        "value_fn_td_lambda": known.TRACE_DECAY,
        "target_params_coeff": 0.9,
    }
    found = {}
    for call in range(known.CALLS):
        inputs, target = _inputs(known.case(call, sizes))
        out, state = rule.unroll_meta_net(
            params, {}, None, state, inputs, costs, lambda *_, t=target: (t, None), None
        )
        for name in ("pi", "y", "z", "q_target", "adv", "normalized_adv"):
            found[f"{call}/{name}"] = out[name]
        for name in ("qv_adv", "normalized_qv_adv"):
            found[f"{call}/{name}"] = out[name][:-1]
        found[f"{call}/memory"] = state["rnn_state"]["lstm"]["meta_rnn_state"].hidden
        for name in COSTS:
            alone = costs | {name: 1.0}
            found[f"{call}/{name}"] = rule.agent_loss(inputs, out, alone, False)[0]
        found[f"{call}/value_cost"] = rule.agent_loss_no_meta(inputs, out, costs)[0]
    return {name: np.asarray(array) for name, array in found.items()}


def gradients() -> dict[str, np.ndarray]:
    """The loss of the authors' agent, and its gradient by layer."""
    from disco_rl import agent as agents  # type: ignore[import-not-found]
    from disco_rl import types
    from dm_env import specs

    settings = agents.get_settings_disco()
    settings.update_rule = {
        "net": _net(known.SIZES),
        "value_discount": known.GAMMA,
        "max_abs_value": known.TOP,
        "num_bins": known.BINS,
    }
    settings.hyper_params.value_fn_td_lambda = known.TRACE_DECAY
    settings.net_settings.net_args = {
        "dense": known.LAYERS,
        "model_arch_name": "lstm",
        "head_w_init_std": 1e-2,
        "model_kwargs": {"head_mlp_hiddens": (known.HEAD,), "lstm_size": known.MODEL},
    }
    agent = agents.Agent(
        single_observation_spec={"o": specs.Array((known.OBS_SIZE,), float)},
        single_action_spec=specs.BoundedArray((), np.int32, 0, known.ACTIONS - 1),
        agent_settings=settings,
        batch_axis_name=None,
    )
    played = jax.tree.map(jnp.asarray, known.played())
    rollout = types.ActorRollout(
        observations={"o": played.obs},
        actions=played.action,
        rewards=played.reward,
        discounts=played.discount,
        agent_outs={"logits": played.behaviour},
        states={},
        logits=played.behaviour,
    )
    params, target = (_by_layer(_flat(known.network(seed))) for seed in (0, 1))
    state = agent.update_rule.init_meta_state(jax.random.PRNGKey(0), params)
    state = jax.tree.map(lambda x: jnp.asarray(x, float), state)
    state["target_params"] = target
    out, _ = agent.unroll_net(params, {}, rollout)
    inputs = types.UpdateRuleInputs(
        observations=rollout.observations,
        actions=rollout.actions,
        rewards=played.reward[1:],
        is_terminal=played.discount[1:] == 0,
        behaviour_agent_out=rollout.agent_outs,
        agent_out=out,
    )
    asked, _ = agent.update_rule.unroll_meta_net(
        _by_layer(known.published()),
        params,
        {},
        state,
        inputs,
        settings.hyper_params.to_dict(),
        agent._network.unroll,
        None,
    )
    differentiate = jax.value_and_grad(agent._loss, has_aux=True)
    (loss, _), grads = differentiate(params, {}, state, rollout, asked, False)
    named = {f"agent/{n}/{k}": x for n, pair in grads.items() for k, x in pair.items()}
    return {"agent/loss": np.asarray(loss)} | {
        n: np.asarray(x) for n, x in named.items()
    }


def _flat(layers: dict[str, Any]) -> dict[str, np.ndarray]:
    named = (
        (f"{n}/{k}", x)
        for n, pair in layers.items()
        for k, x in zip("wb", pair, strict=True)
    )
    return dict(named)


def _by_layer(arrays: dict[str, np.ndarray]) -> dict[str, Any]:
    params: dict[str, Any] = {}
    for name, array in arrays.items():
        layer, _, kind = name.rpartition("/")
        params.setdefault(layer, {})[kind] = jnp.asarray(array)
    return params


def _net(sizes: Sizes) -> Any:
    from disco_rl.update_rules import disco  # type: ignore[import-not-found]
    from ml_collections import config_dict

    units, embedding = (sizes.units, 1), (sizes.units, sizes.embedding)
    return config_dict.ConfigDict(
        {
            "name": "lstm",
            "prediction_size": sizes.prediction,
            "hidden_size": sizes.hidden,
            "embedding_size": units,
            "policy_target_channels": (sizes.units,),
            "policy_channels": embedding,
            "output_stddev": 0.3,
            "aux_stddev": 0.3,
            "policy_target_stddev": 0.3,
            "state_stddev": 1.0,
            "meta_rnn_kwargs": {
                "policy_channels": embedding,
                "embedding_size": (sizes.units,),
                "pred_embedding_size": units,
                "hidden_size": sizes.lifetime,
            },
            "input_option": disco.get_input_option(),
        }
    )


def _rule(sizes: Sizes) -> Any:
    from disco_rl.update_rules import disco  # type: ignore[import-not-found]

    return disco.DiscoUpdateRule(
        net=_net(sizes),
        value_discount=known.GAMMA,
        max_abs_value=known.TOP,
        num_bins=known.BINS,
        moving_average_decay=known.DECAY,
    )


def _inputs(case: known.Case) -> tuple[Any, Any]:
    from disco_rl import types  # type: ignore[import-not-found]

    def outs(made: known.Made) -> dict[str, Any]:
        named = made._asdict()
        named["aux_pi"] = named.pop("next_logits")
        return {name: jnp.asarray(x) for name, x in named.items()}

    def longer(x: np.ndarray) -> Any:
        return jnp.concatenate([jnp.asarray(x), jnp.zeros_like(jnp.asarray(x[:1]))])

    inputs = types.UpdateRuleInputs(
        observations=jnp.zeros((known.STEPS + 1, known.BATCH)),
        actions=longer(case.action),
        rewards=jnp.asarray(case.reward),
        is_terminal=jnp.asarray(case.terminated),
        behaviour_agent_out={"logits": longer(case.behaviour)},
        agent_out=outs(case.online),
    )
    return inputs, outs(case.target)


if __name__ == "__main__":
    main(sys.argv[1])
