#!/usr/bin/env bash
# Make .venv-peers: rejax 0.1.3 with the gymnax it needs (0.0.9), for speed.py, and
# .venv-peers-sb3: Stable-Baselines3 and sbx, for off_policy_speed.py.
#
# gymnax 1.x changed the step API under rejax, so the two cannot share purerl's
# environment. Everything else is pinned to purerl's own versions: same compiler.
#
# With CUDA=cuda12 or CUDA=cuda13 the first one can use a GPU (gpu_day.py).
#
#   PYTHON=.venv/bin/python experiments/benchmarks/setup_peers.sh
set -euo pipefail
cd "$(dirname "$0")/../.."
PYTHON=${PYTHON:-python3}
PEERS=${PEERS:-.venv-peers}
SB3=${SB3:-.venv-peers-sb3}

same_as_purerl=$("$PYTHON" -c '
from importlib.metadata import version
for name in ("jax", "jaxlib", "flax", "optax", "chex", "distrax", "numpy"):
    print(f"{name}=={version(name)}")
')
packages=(rejax==0.1.3 gymnax==0.0.9)
if [ -n "${CUDA:-}" ]; then
  packages+=("jax[$CUDA]")
fi

if command -v uv >/dev/null; then
  uv venv --quiet --allow-existing --python "$PYTHON" "$PEERS"
  uv pip install --quiet --python "$PEERS/bin/python" \
    "${packages[@]}" $same_as_purerl
else
  "$PYTHON" -m venv "$PEERS"
  "$PEERS/bin/python" -m pip install --disable-pip-version-check -q \
    "${packages[@]}" $same_as_purerl
fi
"$PEERS/bin/python" -c 'import rejax' && echo "$PEERS is ready."

# The same jax for sbx as for purerl.
versions=(stable-baselines3==2.9.0 sbx-rl==0.28.0 torch==2.13.0)
same_jax=$("$PYTHON" -c '
from importlib.metadata import version
print(*(f"{name}=={version(name)}" for name in ("jax", "jaxlib")))
')
if command -v uv >/dev/null; then
  uv venv --quiet --allow-existing --python "$PYTHON" "$SB3"
  uv pip install --quiet --python "$SB3/bin/python" "${versions[@]}" $same_jax
else
  "$PYTHON" -m venv "$SB3"
  "$SB3/bin/python" -m pip install --disable-pip-version-check -q \
    "${versions[@]}" $same_jax
fi
"$SB3/bin/python" -W ignore -c 'import sbx' && echo "$SB3 is ready."
