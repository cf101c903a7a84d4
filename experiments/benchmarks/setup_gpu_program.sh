#!/usr/bin/env bash
# Make .venv-gpu-program: purerl with XLA's CUDA compiler, for gpu_program.py, and
# .venv-gpu-peers: rejax 0.1.3 with the gymnax it needs (0.0.9), distrax, flax and brax
# for PureJaxRL's files, and the same compiler. Neither needs a GPU.
#
#   PYTHON=.venv/bin/python experiments/benchmarks/setup_gpu_program.sh
set -euo pipefail
cd "$(dirname "$0")/../.."
PYTHON=${PYTHON:-python3}
OWN=${OWN:-.venv-gpu-program}
PEERS=${PEERS:-.venv-gpu-peers}

pinned() { sed -n "s/^$1==//p" constraints.txt; }
jax=$(pinned jax)
compiler=("jax-cuda12-plugin==$jax" "jax-cuda12-pjrt==$jax" nvidia-cuda-nvcc-cu12)

"$PYTHON" -m venv "$OWN"
"$OWN/bin/python" -m pip install --disable-pip-version-check -q \
  -c constraints.txt -e . "${compiler[@]}"
echo "$OWN is ready."

same=()
for name in jax jaxlib flax optax chex distrax brax numpy; do
  same+=("$name==$(pinned "$name")")
done
"$PYTHON" -m venv "$PEERS"
"$PEERS/bin/python" -m pip install --disable-pip-version-check -q \
  rejax==0.1.3 gymnax==0.0.9 "${same[@]}" "${compiler[@]}"
echo "$PEERS is ready."
