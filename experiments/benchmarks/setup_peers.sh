#!/usr/bin/env bash
# Make .venv-peers: rejax 0.1.3 with the gymnax it needs (0.0.9), for speed.py.
#
# gymnax 1.x changed the step API under rejax, so the two cannot share purerl's
# environment. Everything else is pinned to purerl's own versions: same compiler.
#
#   PYTHON=.venv/bin/python experiments/benchmarks/setup_peers.sh
set -euo pipefail
cd "$(dirname "$0")/../.."
PYTHON=${PYTHON:-python3}
PEERS=${PEERS:-.venv-peers}

same_as_purerl=$("$PYTHON" -c '
from importlib.metadata import version
for name in ("jax", "jaxlib", "flax", "optax", "chex", "distrax", "numpy"):
    print(f"{name}=={version(name)}")
')
packages=(rejax==0.1.3 gymnax==0.0.9)

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
