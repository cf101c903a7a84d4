"""Evolve the numbers of PQN, DQN and SAC over tasks, and judge them on others.

    python experiments/evolve_values.py evolve           # all, one after the other
    python experiments/evolve_values.py evolve dqn
    python experiments/evolve_values.py judge

It is `evolve_ppo.py tuned` for algorithms that learn action values. PQN and DQN have
its five tasks, its length of runs and its unseen tasks. SAC, whose every step is an
update, has three continuous tasks and others to be judged on, runs of a fifth of the
length, and small networks. The strategy is the same, and so are the units: 0 for a
policy that does not learn and 1 for the evolved numbers.

Everything goes on where it was stopped with the same command. `judge` prints a table
for each algorithm and writes experiments/results/evolve-values.json.
"""

import json
from pathlib import Path
from typing import Any, NamedTuple

import evolve_ppo
from evolve_ppo import STEPS, TASKS, TRAINING, Scored, task
from frame import RESULTS, ROOT, Words, hardware, options, read, show_table, write

import purerl
from purerl.randomisation import Uniform

STORE = RESULTS / "evolve-values.json"


class Setting(NamedTuple):
    """An algorithm, and the numbers of it that are evolved.

    Attributes:
        default: Its config before the evolution.
        evolve: Names of the numbers, with scales.
        generations: Generations of the evolution.
        training: Tasks that it goes over, with the returns that count 0 and 1.
        unseen: Tasks that it is judged on.
    """

    default: purerl.TrainConfig
    evolve: dict[str, str]
    generations: int
    training: list[Scored] = TRAINING
    unseen: list[dict[str, Any]] = TASKS["unseen"]


SHARED = {
    "learning_rate": "log",
    "gamma": "logit",
    "max_grad_norm": "log",
    "epsilon_end": "logit",
    "epsilon_steps": "log",
}
# Returns that count 0 and 1: of a random policy, and of a good one after such a run.
CONTINUOUS: list[Scored] = [
    (task("Pendulum-v1", m=Uniform(0.7, 1.3), l=Uniform(0.7, 1.3)), (-1250.0, -150.0)),
    (task("CartpoleSwingup-v0"), (30.0, 500.0)),
    (task("PointRobot-misc", dense_reward=True), (-120.0, -10.0)),
]
SETTINGS = {
    "pqn": Setting(
        # As many updates as PPO has in runs of this length, where PQN's own 2,048
        # steps would leave 20.
        purerl.PQNConfig(
            env="CartPole-v1",
            total_timesteps=STEPS,
            num_evaluations=0,
            num_envs=8,
            num_steps=16,
            num_minibatches=4,
        ),
        {**SHARED, "trace_decay": "logit", "optimiser.eps": "log"},
        32,
    ),
    "dqn": Setting(
        purerl.DQNConfig(env="CartPole-v1", total_timesteps=STEPS, num_evaluations=0),
        {**SHARED, "optimiser.eps": "log"},
        24,
    ),
    "sac": Setting(
        purerl.SACConfig(
            env="Pendulum-v1",
            total_timesteps=8_192,
            num_evaluations=0,
            hidden_sizes=(64, 64),
            batch_size=64,
            buffer_size=8_192,
            learning_starts=500,
            actor_learning_rate=3e-4,
            critic_learning_rate=3e-4,
            temperature_learning_rate=3e-4,
        ),
        {
            "actor_learning_rate": "log",
            "critic_learning_rate": "log",
            "temperature_learning_rate": "log",
            "gamma": "logit",
            "tau": "logit",
            "temperature_init": "log",
            "entropy_per_dimension": "linear",
        },
        16,
        CONTINUOUS,
        [
            task("Pendulum-v1", g=5.0),
            task("CartpoleBalance-v0"),
            task("CartpoleSwingup-v0", pole_mass=0.3),
            task("Reacher-misc"),
            task("Swimmer-misc"),
            task("PointRobot-misc"),
        ],
    ),
}


def judge(name: str, out: Path, seeds: int) -> dict[str, object]:
    """Train with the evolved numbers, without and not at all on the unseen tasks."""
    result = purerl.load_evolution(out / name)
    rates = [n for n in result.solution if n.endswith("learning_rate")]
    nothing = dict.fromkeys(rates, 1e-12)
    compared = purerl.compare(
        SETTINGS[name].default,
        {"tuned": result, "default": {}, "no learning": nothing},
        environments=SETTINGS[name].unseen,
        baseline="default",
        seeds=seeds,
        measures=("training_curve",),
        out=out / f"judged-{name}",
        progress=False,
    )
    show_table(compared.table(), 200)
    scores = evolve_ppo.normalised(compared)
    evolve_ppo.show_scores(
        f"{name}: 0 no learning, 1 its evolved numbers, {seeds} seeds", scores
    )
    return {**evolve_ppo.numbers_of(result), "seeds": seeds, "scores": scores}


def main() -> None:
    """Evolve or judge, as asked for."""
    asked = options(
        __doc__,
        is_cached=True,
        out=ROOT / "runs" / "evolve-values",
        what=Words(["evolve", "judge"], "COMMAND", is_one=True),
        names=Words(SETTINGS, "ALGORITHM"),
        seeds=(evolve_ppo.SEEDS, "of the judgement"),
    )
    for name in asked.names or SETTINGS:
        if asked.what == "judge":
            judged = {name: judge(name, asked.out, asked.seeds)}
            write(STORE, read(STORE) | judged | hardware())
            continue
        setting = SETTINGS[name]
        result = purerl.evolve(
            setting.default,
            setting.evolve,
            strategy="cma-es(sigma=0.3)",
            population=16,
            generations=setting.generations,
            out=asked.out / name,
            progress=False,
            **evolve_ppo.over_tasks(setting.training, is_numbered=False),
        )
        evolve_ppo.print_course(name, result, asked.load_before)
        print(json.dumps(result.solution, default=float), flush=True)


if __name__ == "__main__":
    main()
