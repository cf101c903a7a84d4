#!/usr/bin/env bash
# Make .venv-peers-flashbax: flashbax 0.1.3 and purerl's replay, for replay_speed.py.
#
#   PYTHON=.venv/bin/python experiments/benchmarks/setup_replay_peer.sh
set -euo pipefail
cd "$(dirname "$0")/../.."
PYTHON=${PYTHON:-python3}
PEER=${PEER:-.venv-peers-flashbax}

same_as_purerl=$("$PYTHON" -c '
from importlib.metadata import version
for name in ("jax", "jaxlib", "flax", "chex", "numpy"):
    print(f"{name}=={version(name)}")
')
"$PYTHON" -m venv "$PEER"
pip=("$PEER/bin/python" -m pip install --disable-pip-version-check -q)
"${pip[@]}" flashbax==0.1.3 $same_as_purerl
# Replay needs jax alone; the rest of purerl's dependencies stay out.
"${pip[@]}" --no-deps -e .
"$PEER/bin/python" -c 'import flashbax, purerl.replay.prioritised' && echo "$PEER is ready."
