"""The algorithms of evosax that can be used here, and why the others cannot."""

from typing import Any

# Algorithms of evosax that cannot be used here, with the reason.
EXCLUDED = {
    "RandomSearch": "it needs a sampling function",
    "SV_CMA_ES": "its populations are several",
    "SV_Open_ES": "its populations are several",
    "LES": "its weights are pickled files",
    "LGA": "its weights are pickled files",
    "LearnedGA": "its weights are pickled files",
    "EvoTF_ES": "its weights are pickled files",
    "CMAAnchoredLES": "its weights are pickled files",
}

# Algorithms that are told what a part of a training run was worth.
TRUNCATED = ("PersistentES", "NoiseReuseES")

# Algorithms with a mean that compare fitness with that of earlier generations.
COMPARING = (
    "GradientlessDescent",
    "HillClimbing",
    "Rm_ES",
    "SimulatedAnnealing",
    "iAMaLGaM_Full",
    "iAMaLGaM_Univariate",
)


def algorithms() -> dict[str, Any]:
    """Return every algorithm that can be used here, by its name in evosax."""
    from evosax import algorithms as known

    return {name: cls for name, cls in known.algorithms.items() if name not in EXCLUDED}
