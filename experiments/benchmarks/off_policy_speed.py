"""The speed of TD3, SAC and DQN, next to their peers, in one run.

    experiments/benchmarks/setup_peers.sh
    python experiments/benchmarks/off_policy_speed.py --rounds 3 --out results/off

TD3 and SAC: Pendulum-v1, one environment, a gradient step per environment step,
networks of 256-256, batch 256. DQN: 20,000 steps of one CartPole-v1 environment, a
gradient step each, at the settings that rejax's DQN can have too (two layers of 64; its
target moves every 10 environment steps). Contenders take turns, each with the machine
for itself; compilation and warm-up are apart; a figure is a ratio of medians. A peer's
environment is its own (Gymnasium's in Python; gymnax's).

Wide: SAC with the numbers of brax's own on brax's inverted double pendulum, by purerl,
rejax and brax, and purerl's presets for hundreds of environments with four times the
steps. A round is another seed; returns are of 16 episodes at the end, of the policy's
mean (rejax: of its samples).

    NPROC=1 taskset -c 0 python experiments/benchmarks/off_policy_speed.py \
        --only wide --rounds 5
"""

from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import bench
import brax_peer
import numpy as np

import purerl
from purerl import presets

ACTOR_CRITICS = {"td3": purerl.TD3Config, "sac": purerl.SACConfig}
SIZES = {"hidden_sizes": (256, 256), "batch_size": 256, "learning_rate": 3e-4}
DQN = purerl.DQNConfig(
    total_timesteps=20_000,
    num_envs=1,
    gamma=0.9,
    learning_rate=1e-3,
    buffer_size=512,
    batch_size=32,
    learning_starts=512,
    epsilon_start=0.3,
    epsilon_end=0.01,
    epsilon_steps=10_000.0,
    target_update_interval=10,
    hidden_sizes=(64, 64),
    num_evaluations=0,
)
WIDE_STEPS, SIZES_OF_WIDE = 100_000, (128, 128)
TASK = ("inverted_double_pendulum", "spring")
ON_TASK = {
    "env": f"brax/{TASK[0]}",
    "env_kwargs": {"backend": TASK[1]},
    "normalize_observations": True,
    "reset_scheme": "pool",
    "num_evaluations": 1,
    "eval_episodes": 16,
    "eval_share": 1.0,
}
# purerl's preset -> what it needs here.
WIDE: dict[str, dict[str, Any]] = {
    "sac-swingup-wide": {},
    "td3-swingup-wide": {"value_min": -1_000.0, "value_max": 1_000.0},
}
ARTICLE = 15_807  # steps per second of the source article's DQN, its own hardware


def actor_critic(name: str, steps: int, warm_up: int) -> purerl.TrainConfig:
    """Pendulum with a gradient step per step, after a warm-up of random steps."""
    return ACTOR_CRITICS[name](
        env="Pendulum-v1",
        total_timesteps=warm_up + steps,
        num_envs=1,
        learning_starts=warm_up,
        buffer_size=50_000,
        num_evaluations=0,
        **SIZES,
    )


def measure_actor_critic(name: str, asked: bench.Asked) -> list[bench.Row]:
    """Seconds per 1000 steps of one agent and its peers, and of several agents."""
    steps, warm_up = asked.steps, 300
    config = actor_critic(name, steps, warm_up)
    ours, compiled = bench.train(config, score=bench.last_returns)
    measures = {
        "purerl": ours,
        "several": bench.train(config, asked.agents, asked.lanes)[0],
    }
    with ExitStack() as stack:
        request = {"algorithm": name, "steps": steps, **SIZES}
        for library in ("sb3", "sbx"):
            measures[library], _ = bench.peer_program(
                stack, asked.sb3, "peer_sb3.py", library=library, **request
            )
        runs = bench.alternate(measures, asked.rounds)
    seconds = {
        who: [value * 1000 / steps for value in bench.seconds_of(found)]
        for who, found in runs.items()
    }
    one, each = seconds["purerl"], [x / asked.agents for x in seconds["several"]]
    title = f"{name.upper()}, 1000 steps with a gradient step each"
    note = f"compile {compiled:.1f} s; {bench.cpu_seconds(runs)}"
    more: dict[str, Any] = {"note": note, "rounds": seconds}
    sbx = bench.beside(title, "s", one, seconds["sbx"], "sbx", **more)
    words = "Stable-Baselines3"
    sb3 = bench.beside(title, "s", one, seconds["sb3"], words, **more)
    title = f"  the same, each of {asked.agents} agents, W={asked.lanes}"
    return [sbx, sb3, bench.beside(title, "s", each, one, "one agent")]


def dqn_numbers(config: purerl.DQNConfig) -> dict[str, Any]:
    """Return the numbers of a config that rejax's DQN takes."""
    return {
        name: getattr(config, name)
        for name in (
            "total_timesteps num_envs gamma learning_rate buffer_size batch_size "
            "learning_starts epsilon_start epsilon_end epsilon_steps max_grad_norm "
            "target_update_interval tau double activation"
        ).split()
    }


def measure_dqn(asked: bench.Asked) -> list[bench.Row]:
    """20,000 steps of DQN against rejax's, and against the article's rate."""
    ours, own = bench.train(DQN, score=bench.last_returns)
    with ExitStack() as stack:
        request = {"agents": 1, "devices": 1, "dqn": dqn_numbers(DQN)}
        theirs, other = bench.peer_program(stack, asked.peers, **request)
        runs = bench.alternate({"purerl": ours, "rejax": theirs}, asked.rounds)
    rounds = {who: bench.seconds_of(found) for who, found in runs.items()}
    mine = rounds["purerl"]
    rate = [DQN.total_timesteps / value for value in mine]
    scores = {who: f"{bench.mean_score(found):.0f}" for who, found in runs.items()}
    note = (
        f"compile: purerl {own:.1f} s, rejax {other:.1f} s; mean return: purerl's last "
        f"quarter of training {scores['purerl']}, rejax evaluated {scores['rejax']}; "
        f"{bench.cpu_seconds(runs)}"
    )
    more: dict[str, Any] = {"note": note, "rounds": rounds}
    name = "DQN, 20,000 CartPole steps"
    name_of_rate = f"  the same, steps per second (article: {ARTICLE:,})"
    share = bench.spread([value / ARTICLE for value in rate])
    return [
        bench.beside(name, "s", mine, rounds["rejax"], "rejax", **more),
        bench.Row(name_of_rate, "steps/s", bench.spread(rate), None, "", share),
    ]


def brax_sac(numbers: dict[str, Any], seed: int) -> bench.Run:
    """Train brax's SAC; its seconds are those of its rate, without compilation."""
    seen = brax_peer.train(
        TASK,
        "SAC",
        SIZES_OF_WIDE,
        **numbers,
        deterministic_eval=True,
        num_evals=5,
        num_eval_envs=16,
        episode_length=1_000,
        seed=seed,
    )
    last = seen[-1][1]
    rate = float(last["training/sps"])
    return bench.Run(
        numbers["num_timesteps"] / rate, float(last["eval/episode_reward"])
    )


def measure_wide(asked: bench.Asked) -> list[bench.Row]:
    """SAC of three libraries with the same numbers, and purerl's wide presets."""
    steps = asked.wide_steps
    numbers = brax_peer.SAC | {
        "num_timesteps": steps,
        "min_replay_size": 5_000,
        "max_replay_size": steps,
    }
    ours = purerl.SACConfig(
        **ON_TASK | brax_peer.sac_fields(numbers), hidden_sizes=SIZES_OF_WIDE
    )
    configs: dict[str, purerl.TrainConfig] = {"purerl": ours}
    for name, changes in WIDE.items():
        changes = ON_TASK | {"total_timesteps": 4 * steps} | changes
        configs[name] = presets.load(name).replace(**changes)
    score = lambda found: float(np.mean(found.evaluation["episode_return"][-1]))  # noqa: E731
    measures = {name: bench.train(of, score=score)[0] for name, of in configs.items()}
    measures["brax"] = partial(brax_sac, numbers)
    sac = {
        "env": ON_TASK["env"],
        "env_params": ON_TASK["env_kwargs"],
        "normalize_observations": True,
        "total_timesteps": steps // 16 * 16,
        "num_envs": 16,
        "num_epochs": 4,  # Gradient steps per round of all environments.
        "batch_size": 256,
        "learning_rate": 1e-3,
        "gamma": 0.99,
        "fill_buffer": 5_000,
        "buffer_size": steps,
        "hidden_layer_sizes": SIZES_OF_WIDE,
    }
    with ExitStack() as stack:
        request = {"agents": 1, "devices": 1, "sac": sac}
        measures["rejax"], _ = bench.peer_program(stack, asked.peers, **request)
        runs = bench.alternate(measures, asked.rounds)
    returns = {who: [run.score for run in found] for who, found in runs.items()}
    ended = (f"{who} {bench.interval_text(x, 0)}" for who, x in returns.items())
    note = f"returns: {'; '.join(ended)}; {bench.cpu_seconds(runs)}"
    seconds = {who: bench.seconds_of(found) for who, found in runs.items()}
    mine, title = seconds.pop("purerl"), f"SAC, {steps:,} steps of {TASK[0]}"
    named = {
        who: f"{who}, {4 * steps:,} steps" if who in WIDE else who for who in seconds
    }
    rows = [bench.beside(title, "s", mine, x, named[who]) for who, x in seconds.items()]
    rows[0].note = note
    return rows


SECTIONS = {
    "dqn": measure_dqn,
    "td3": partial(measure_actor_critic, "td3"),
    "sac": partial(measure_actor_critic, "sac"),
    "wide": measure_wide,
}


def main() -> None:
    """Measure the sections that were asked for and print one table."""
    asked = bench.options(
        __doc__,
        only=(["dqn", "td3", "sac"], SECTIONS),
        rounds=(3, "turns of each"),
        steps=(2_000, "of TD3 and SAC"),
        wide_steps=WIDE_STEPS,
        agents=8,
        lanes=(1, "width of their blocks"),
        peers=bench.PEERS,
        sb3=bench.SB3,
        out=(Path, "write OUT.md and OUT.json"),
    )
    rejax, sb3 = ("peer_rejax.py", asked.peers), ("peer_sb3.py", asked.sb3)
    has_rejax = ("dqn", "wide")
    peers = dict(rejax if name in has_rejax else sb3 for name in asked.only)
    bench.measure_sections(asked, SECTIONS, peers)


if __name__ == "__main__":
    main()
