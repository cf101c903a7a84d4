"""The rows of docs/results.md: what is trained, and the published number beside it."""

from typing import Any, NamedTuple


class Anchor(NamedTuple):
    """A published number of the same task.

    Attributes:
        words: the number, and at which step, over how many seeds and on what, as far as
            its source says so.
        source: who published it, and where.
        value: the number; None where it is of another task, scale or budget, so that
            ours cannot be above or below it.
    """

    words: str
    source: str
    value: float | None = None


class Row(NamedTuple):
    """One learning result.

    Attributes:
        title: Algorithm and task.
        preset: Name of the preset that the config begins with.
        goal: Least mean evaluation; None for a curve that is only to rise.
        anchor: Number that others published; None where nothing was found.
        note: Sentence that a reader should know.
        changes: Fields that differ from the preset.
        seeds: Number of agents.
        not_run: Reason why it is not trained with all rows, if so.
    """

    title: str
    preset: str
    goal: float | None = None
    anchor: Anchor | None = None
    note: str = ""
    changes: dict[str, Any] | None = None
    seeds: int = 10
    not_run: str = ""


JAX_RL = "README of henry-prior/jax-rl, read off its plot"
JAX_4 = '"JAX 4 Deep RL" (Glazer-Cavanagh and Aguilar-Lussier 2023)'
OTHER_ENGINE = (
    "brax's spring backend here, MuJoCo's HalfCheetah-v2 there: returns of the two "
    "are not comparable"
)
CROSSQ = (
    "SAC of the row above with CrossQ's critics, policy delay, step size and Adam; "
    "542 more than SAC (95% interval by Welch's t: 190 to 893)"
)
BESIDE = "much else ran on the machine, so that the time is longer than it takes"
OPTIMUM = Anchor(
    "optimum 15.21, the mean return of shortest paths", "arithmetic over all starts"
)


def _zoo(words: str, value: float, algorithm: str) -> Anchor:
    return Anchor(
        f"{words}, mean and standard deviation over the episodes of one agent",
        f"model card sb3/{algorithm}-Pendulum-v1 of RL Baselines3 Zoo",
        value,
    )


ROWS = {
    "ppo-cartpole": Row(
        "PPO, CartPole-v1",
        "ppo-cartpole",
        490,
        Anchor(
            "488.75 ± 18.40, returns in training at 500,000 steps (OpenAI Baselines "
            "there: 497.54 ± 4.02)",
            "CleanRL's documentation, ppo.py",
            488.75,
        ),
        seeds=16,
    ),
    "recurrent-ppo-cartpole": Row(
        "Recurrent PPO, CartPole-v1",
        "recurrent-ppo-cartpole",
        note="the source, PureJaxRL's ppo_rnn.py, publishes no number for it",
    ),
    "a2c-cartpole": Row(
        "A2C (PPO with one step), CartPole-v1",
        "a2c-cartpole",
        475,
        Anchor(
            "500.00 ± 0.00, one agent at 500,000 steps",
            "model card sb3/a2c-CartPole-v1 of RL Baselines3 Zoo",
            500.0,
        ),
    ),
    "vpg-cartpole": Row("VPG, CartPole-v1", "vpg-cartpole", 450, seeds=16),
    "dqn-cartpole": Row(
        "DQN, CartPole-v1",
        "dqn-cartpole",
        475,
        Anchor(
            "488.69 ± 16.11, returns in training at 500,000 steps",
            "CleanRL's documentation, dqn.py",
            488.69,
        ),
        seeds=16,
    ),
    "pqn-cartpole": Row("PQN, CartPole-v1", "pqn-cartpole", 475, seeds=16),
    "dqn-cartpole-20k": Row(
        "DQN, CartPole-v1, one environment, 20,000 steps",
        "dqn-cartpole-20k",
        195,
        note="the goal is 195 by at least 8 of 10 seeds",
    ),
    "dqn-jym": Row(
        "DQN, the same with the source article's numbers",
        "dqn-jym",
        anchor=Anchor(
            "393 steps in the longest episode of one run, more than 100 after about 45 "
            "episodes; 20,000 steps",
            '"A Gentle Introduction to Deep Reinforcement Learning in JAX" (Pegoud)',
        ),
        note="discount 0.9, buffer of 512; there episodes have no limit of 500 steps",
    ),
    **{
        f"{name}-doors": Row(
            f"{name.upper()}, Doors-v0, limit 60",
            f"{name}-doors",
            14.5,
            OPTIMUM,
            "mean of few evaluation episodes with random starts, so it may lie above "
            "the optimum's mean",
        )
        for name in ("ppo", "dqn", "pqn")
    },
    "ppo-pendulum": Row(
        "PPO, Pendulum-v1",
        "ppo-pendulum",
        -300,
        _zoo("-230.42 ± 142.54", -230.42, "ppo"),
    ),
    "td3-pendulum": Row(
        "TD3, Pendulum-v1",
        "td3-pendulum",
        -200,
        _zoo("-195.99 ± 119.03, 20,000 steps", -195.99, "td3"),
    ),
    "sac-pendulum": Row(
        "SAC, Pendulum-v1",
        "sac-pendulum",
        -200,
        _zoo("-176.33 ± 101.55", -176.33, "sac"),
    ),
    "mpo-pendulum": Row("MPO, Pendulum-v1", "mpo-pendulum", -200),
    "tqc-pendulum": Row("TQC (SAC with quantiles), Pendulum-v1", "tqc-pendulum", -200),
    "redq-pendulum": Row(
        "REDQ (SAC with ten critics), Pendulum-v1, 10,000 steps", "redq-pendulum", -200
    ),
    "crossq-pendulum": Row(
        "CrossQ (SAC with batch normalisation), Pendulum-v1", "crossq-pendulum", -200
    ),
    "mpo-cartpole": Row("MPO with discrete actions, CartPole-v1", "mpo-cartpole", 475),
    **{
        f"{name}-swingup": Row(
            f"{name.upper()}, CartpoleSwingup-v0",
            f"{name}-swingup",
            750,
            Anchor(f"about {value}, 250,000 steps", JAX_RL, float(value)),
            f"other settings than the source's, which preset `{name}-jaxrl` has",
        )
        for name, value in (("td3", 470), ("sac", 770), ("mpo", 740))
    },
    **{
        f"{name}-jaxrl": Row(
            f"{name.upper()}, CartpoleSwingup-v0, jax-rl's numbers",
            f"{name}-jaxrl",
            anchor=Anchor(
                f"about {value}, 250,000 steps" + (", band 260 to 670" * (value < 500)),
                JAX_RL,
                float(value),
            ),
            note=BESIDE if name == "td3" else "",
            not_run=f"ten agents of 250,000 steps are {hours} hours of two cores, at "
            f"the {seconds} s per 1,000 steps that `studies/jaxrl.py` printed; about "
            f"{gpu} on an H200 by `purerl plan --preset {name}-jaxrl --seeds 10 "
            f"--device h200 --no-compile`; `--at-once 1` trains them one by one",
        )
        for name, value, seconds, hours, gpu in (
            ("td3", 470, 3.08, 2.1, "two minutes"),
            ("sac", 770, 12.0, 8.3, "seven minutes"),
            ("mpo", 740, 95.6, 66, "31 minutes"),
        )
    },
    "recurrent-ppo-memory-chain": Row(
        "Recurrent PPO, MemoryChain-bsuite",
        "recurrent-ppo-memory-chain",
        0.9,
        Anchor("1, and 0 for a policy without memory", "the environment's rule", None),
    ),
    "vpg-halfcheetah": Row(
        "VPG, HalfCheetah (brax, spring)",
        "vpg-halfcheetah",
        anchor=Anchor("-50 ± 50 at 750,000 steps, 3 seeds", JAX_4),
        note=OTHER_ENGINE,
    ),
    "vpg-halfcheetah-wide": Row(
        "VPG with 128-128-128, HalfCheetah (brax, spring)",
        "vpg-halfcheetah",
        note="the best cell by mean of the grid of the studies, which has its first "
        "three agents",
        changes={"hidden_sizes": (128, 128, 128)},
    ),
    "td3-halfcheetah": Row(
        "TD3, HalfCheetah (brax, spring)",
        "td3-halfcheetah",
        anchor=Anchor("5,000 ± 300 at 1,200,000 steps, 3 seeds", JAX_4),
        note=OTHER_ENGINE,
        not_run="ten agents of 1,200,000 steps take about 15.7 hours of two cores, at "
        "the 470 s per 100,000 steps, environment and compilation included, that "
        "`studies/halfcheetah_td3.py` measured; about 3 hours 22 minutes on an H200 by "
        "`purerl plan --preset td3-halfcheetah --seeds 10 --device h200 --no-compile`, "
        "probably less, because kernels are counted from array shapes and not from a "
        "compiled program, which has fewer; that study has one agent's first 100,000 "
        "steps, beside PyTorch's",
    ),
    **{
        name: Row(f"{title}, HalfCheetah (brax, spring), a short run", name, note=note)
        for name, title, note in (
            ("ppo-halfcheetah", "PPO", ""),
            ("td3-halfcheetah-cpu", "TD3", BESIDE),
            ("sac-halfcheetah-cpu", "SAC", ""),
            ("tqc-halfcheetah-cpu", "TQC", ""),
            ("redq-halfcheetah-cpu", "REDQ", ""),
            ("crossq-halfcheetah-cpu", "CrossQ", CROSSQ),
        )
    },
    "ppo-brax": Row(
        "PPO, Hopper (brax, positional)",
        "ppo-brax",
        anchor=Anchor(
            "about 1,400 to 1,650 in training at 50,000,000 steps, one seed, 2.5 "
            "minutes on an A40",
            "PureJaxRL's notebook, read off its plot",
        ),
        not_run="2,048 environments and 50 million steps are for a GPU: about two "
        "minutes for one agent on an H200 by `purerl plan --preset ppo-brax --seeds 1 "
        "--device h200 --no-compile`, probably less, because kernels are counted from "
        "array shapes and not from a compiled program, which has fewer: that of "
        "`ppo-halfcheetah` has 22% of them",
    ),
}

_INVADERS = Anchor(
    "about 165 to 170 in training at 10,000,000 steps, one seed, 45 s on an A40",
    "PureJaxRL's notebook, read off its plot",
)
ROWS["ppo-minatar"] = Row(
    "PPO, SpaceInvaders-MinAtar, 10,000,000 steps", "ppo-minatar", anchor=_INVADERS
)
_BREAKOUT = Anchor("0.5 by a random policy", "README of MinAtar (Young and Tian 2019)")
_PQN = {"epsilon_steps": 100_000.0, "torso": "mlp", "hidden_sizes": (128, 128)}
for _game, _anchor in (
    ("Breakout", _BREAKOUT),
    ("Asterix", None),
    ("SpaceInvaders", _INVADERS),
    ("Freeway", None),
):
    for _name, _changes in (("ppo", {}), ("pqn", _PQN)):
        ROWS[f"{_name}-minatar-{_game.lower()}"] = Row(
            f"{_name.upper()}, {_game}-MinAtar, 1,000,000 steps",
            f"{_name}-minatar",
            anchor=_anchor if _name == "ppo" or _game == "Breakout" else None,
            note="a tenth of the published budget"
            + (", 128-128 units instead of the CNN" if _changes else ""),
            changes={
                "env": f"{_game}-MinAtar",
                "total_timesteps": 1_000_000,
                **_changes,
            },
        )

# The kinds of DQN, with the atoms of CleanRL's c51.py or as in "Revisiting Rainbow".
_MODEL_CARD = Anchor(
    "500.00 ± 0.00, one agent at 500,000 steps, evaluated",
    "model card cleanrl/CartPole-v1-c51-seed1",
    500.0,
)
ROWS |= {
    "c51-cartpole": Row(
        "C51, CartPole-v1",
        "dqn-cartpole",
        475,
        _MODEL_CARD,
        "atoms as there, 101 from -100 to 100; the other numbers are those of the "
        "preset dqn-cartpole",
        {"values": "categorical"},
    ),
    "rainbow-cartpole": Row(
        "Rainbow, CartPole-v1, 50,000 steps", "rainbow-cartpole", 400
    ),
    **{
        f"{name}-minatar-breakout": Row(
            f"{title}, Breakout-MinAtar, 300,000 steps",
            f"{name}-minatar",
            anchor=_BREAKOUT,
            note="a layer of 128 units in place of the convolution before it; the "
            "published runs have 5,000,000 steps or more",
            changes={"torso": "mlp", "hidden_sizes": (128, 128)},
        )
        for name, title in (
            ("dqn", "DQN"),
            ("qr-dqn", "QR-DQN"),
            ("rainbow", "Rainbow"),
        )
    },
}

# One task of each suite that is an extra.
ROWS |= {
    "ppo-craftax-classic": Row(
        "PPO, Craftax-Classic-Symbolic-v1, 1,000,000 steps",
        "ppo-minatar",
        anchor=Anchor(
            "90% of the optimal reward, which is 22, at 1,000,000,000 steps",
            "Craftax (Matthews et al. 2024, arXiv:2402.16801), abstract",
        ),
        note="a thousandth of the published budget; episodes of the evaluation are cut "
        "after 1,000 steps; the sampling policy had 5.3 in the last tenth of training; "
        "needs the extra `craftax`",
        changes={
            "env": "craftax/Craftax-Classic-Symbolic-v1",
            "total_timesteps": 1_000_000,
            "num_steps": 64,
            "learning_rate": 5e-4,
            "gae_lambda": 0.8,
            "hidden_sizes": (128, 128),
            # Making a world takes far longer than a step in it.
            "reset_scheme": "pool",
            "reset_pool_size": 16,
            # A game lasts up to 10,000 steps, which would be most of the row's time.
            "eval_max_steps": 1_000,
        },
    ),
    "ppo-playground-swingup": Row(
        "PPO, CartpoleSwingup (MuJoCo Playground), 5,000,000 steps",
        "ppo-halfcheetah",
        anchor=Anchor("about 770 by SAC at 250,000 steps, in MuJoCo itself", JAX_RL),
        note="returns lie between 0 and 1,000; step size, entropy bonus and discount "
        "are those of the suite's own PPO, which has 60,000,000 steps; needs the extra "
        "`playground`",
        changes={
            "env": "playground/CartpoleSwingup",
            "env_kwargs": {"impl": "jax"},
            "total_timesteps": 5_000_000,
            "gamma": 0.995,
            "learning_rate": 1e-3,
            "entropy_coef": 1e-2,
            "hidden_sizes": (64, 64),
        },
    ),
}
