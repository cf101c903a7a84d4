"""The speed of TD3, SAC and DQN, next to Stable-Baselines3, sbx and rejax, in one run.

    experiments/benchmarks/setup_peers.sh
    python experiments/benchmarks/off_policy_speed.py --rounds 3 --out results/off

TD3 and SAC: Pendulum-v1, one environment, a gradient step per environment step,
networks of 256-256, batch 256. DQN: 20,000 steps of one CartPole-v1 environment, a
gradient step each, at the settings that rejax's DQN can have too (two layers of 64; its
target moves every 10 environment steps). Contenders take turns, each with the machine
for itself; compilation and warm-up are apart; a figure is a ratio of medians. A peer's
environment is its own (Gymnasium's in Python; gymnax's). Nothing here fails when a goal
is missed: it says so.
"""

import argparse
import os
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import jax
import numpy as np
from peer import ROOT, Peer
from report import (
    Goal,
    Measure,
    Row,
    Run,
    alternate,
    compare,
    cpu_seconds,
    hardware,
    mean_score,
    save,
    spread,
    text,
)

import purerl
from purerl.config import TrainConfig

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
    num_evaluations=1,
    eval_episodes=1,
    eval_max_steps=1,
)
ARTICLE = 15_807  # steps per second of the source article's DQN, its own hardware
Options = argparse.Namespace


def train(config: TrainConfig, agents: int, lanes: int) -> tuple[Measure, float]:
    """Whole trainings of one agent, or of several in blocks: measure, compile seconds.

    Several go through `purerl.pmap`, which uses every core.
    """
    key = jax.random.key(0)
    whole = purerl.make_train(config)
    began = time.perf_counter()
    if agents == 1:
        program: Any = jax.jit(whole).lower(key).compile()
    else:
        program = purerl.pmap(whole, lanes=lanes)
        jax.block_until_ready(program(jax.random.split(key, agents)))
    compiled = time.perf_counter() - began

    def measure(seed: int) -> Run:
        key = jax.random.key(seed)
        keys = key if agents == 1 else jax.random.split(key, agents)
        start, cpu_start = time.perf_counter(), time.process_time()
        result = jax.block_until_ready(program(keys))
        seconds = time.perf_counter() - start
        returns = np.asarray(result.metrics["episode_return"])
        last = returns[..., -returns.shape[-1] // 4 :]
        score = float(np.nanmean(last))
        return Run(seconds, score, time.process_time() - cpu_start)

    return measure, compiled


def actor_critic(name: str, steps: int, warm_up: int) -> TrainConfig:
    """Pendulum with a gradient step per step, after a warm-up of random steps."""
    return ACTOR_CRITICS[name](
        env="Pendulum-v1",
        total_timesteps=warm_up + steps,
        num_envs=1,
        learning_starts=warm_up,
        buffer_size=50_000,
        num_evaluations=1,
        eval_episodes=1,
        eval_max_steps=1,
        **SIZES,
    )


def measure_actor_critic(name: str, options: Options) -> list[Row]:
    """Seconds per 1000 steps of one agent and its peers, and of several agents."""
    steps, warm_up = options.steps, 300
    ours, our_compile = train(actor_critic(name, steps, warm_up), 1, 1)
    many, _ = train(actor_critic(name, steps, warm_up), options.agents, options.lanes)
    per_thousand = 1000 / steps
    with ExitStack() as stack:
        measures = {"purerl": ours, "several": many}
        for library in ("sb3", "sbx"):
            peer = stack.enter_context(Peer(options.sb3, "peer_sb3.py"))
            peer.ask("prepare", library=library, algorithm=name, steps=steps, **SIZES)
            measures[library] = lambda seed, peer=peer: Run(
                **peer.ask("run", seed=seed)
            )
        runs = alternate(measures, options.rounds)
    seconds = {
        who: [run.seconds * per_thousand for run in found]
        for who, found in runs.items()
    }
    title = f"{name.upper()}, 1000 steps with a gradient step each"
    rows = [
        Row(
            name=title,
            unit="s",
            purerl=spread(seconds["purerl"]),
            other=spread(seconds[library]),
            other_name=words,
            figure=compare(seconds[library], seconds["purerl"]),
            goal=goal,
            note=f"compile {our_compile:.1f} s; {cpu_seconds(runs)}",
            rounds=seconds,
        )
        for library, words, goal in (
            ("sbx", "sbx", Goal(True, 1.5)),
            ("sb3", "Stable-Baselines3", Goal(True, 2.0)),
        )
    ]
    each = [value / options.agents for value in seconds["several"]]
    rows.append(
        Row(
            name=f"  the same, each of {options.agents} agents, W={options.lanes}",
            unit="s",
            purerl=spread(each),
            other=spread(seconds["purerl"]),
            other_name="one agent",
            figure=compare(seconds["purerl"], each),
        )
    )
    return rows


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


def measure_dqn(options: Options) -> list[Row]:
    """20,000 steps of DQN against rejax's, and against the article's rate."""
    ours, our_compile = train(DQN, 1, 1)
    with ExitStack() as stack:
        peer = stack.enter_context(Peer(options.peers))
        prepared = peer.ask("prepare", agents=1, devices=1, dqn=dqn_numbers(DQN))
        runs = alternate(
            {
                "purerl": ours,
                "rejax": lambda seed: Run(**peer.ask("run", seed=seed)),
            },
            options.rounds,
        )
    mine, theirs = ([run.seconds for run in runs[who]] for who in ("purerl", "rejax"))
    rate = [DQN.total_timesteps / value for value in mine]
    note = (
        f"compile: purerl {our_compile:.1f} s, rejax {prepared['compile_seconds']:.1f} "
        f"s; mean return: purerl's last quarter of training "
        f"{mean_score(runs['purerl']):.0f}, rejax evaluated "
        f"{mean_score(runs['rejax']):.0f}; {cpu_seconds(runs)}"
    )
    return [
        Row(
            name="DQN, 20,000 CartPole steps",
            unit="s",
            purerl=spread(mine),
            other=spread(theirs),
            other_name="rejax",
            figure=compare(theirs, mine),
            goal=Goal(True, 2.0),
            note=note,
            rounds={"purerl": mine, "rejax": theirs},
        ),
        Row(
            name=f"  the same, steps per second (article: {ARTICLE:,})",
            unit="steps/s",
            purerl=spread(rate),
            other=None,
            other_name="",
            figure=spread([value / ARTICLE for value in rate]),
        ),
    ]


def main() -> None:
    """Measure the sections that were asked for and print one table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    sections = ("dqn", "td3", "sac")
    parser.add_argument("--only", nargs="+", choices=sections, default=sections)
    parser.add_argument("--rounds", type=int, default=3, help="turns of each")
    parser.add_argument("--steps", type=int, default=2_000, help="of TD3 and SAC")
    parser.add_argument("--agents", type=int, default=8)
    parser.add_argument("--lanes", type=int, default=1, help="width of their blocks")
    python = Path("bin") / "python"
    parser.add_argument("--peers", type=Path, default=ROOT / ".venv-peers" / python)
    parser.add_argument("--sb3", type=Path, default=ROOT / ".venv-peers-sb3" / python)
    parser.add_argument("--out", type=Path, help="write OUT.md and OUT.json")
    options = parser.parse_args()

    facts = hardware() | {"rounds": options.rounds}
    rows: list[Row] = []
    for section in options.only:
        print(f"measuring {section} ...", flush=True)
        if section == "dqn":
            rows += measure_dqn(options)
        else:
            rows += measure_actor_critic(section, options)
    facts["load_after"] = round(os.getloadavg()[0], 2)
    with ExitStack() as stack:
        names = []
        for python_of, script in (
            (options.peers, "peer_rejax.py"),
            (options.sb3, "peer_sb3.py"),
        ):
            versions = stack.enter_context(Peer(python_of, script)).ask("versions")
            versions.pop("shimmed", None)
            names += [f"{name} {number}" for name, number in versions.items()]
    facts["peer_versions"] = ", ".join(names)
    print("\n" + text(rows, facts))
    if options.out:
        save(options.out, rows, facts)


if __name__ == "__main__":
    main()
