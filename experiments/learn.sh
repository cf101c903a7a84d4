#!/usr/bin/env bash
# Learning results of PPO, one command each; see experiments/README.md for the numbers.
#     experiments/learn.sh cartpole|pendulum|doors|minatar|halfcheetah [more flags]
set -euo pipefail
case "${1:-}" in
cartpole) set -- --preset ppo-cartpole --seeds 16 "${@:2}" ;;
pendulum) set -- --preset ppo-pendulum --seeds 4 "${@:2}" ;;
doors) set -- --preset ppo-doors --seeds 4 "${@:2}" ;;
minatar) set -- --preset ppo-minatar --env Breakout-MinAtar --seeds 2 \
  --total-timesteps 2000000 "${@:2}" ;;
halfcheetah) set -- --preset ppo-halfcheetah --seeds 2 "${@:2}" ;;
*)
  sed -n '2,3p' "$0" >&2
  exit 2
  ;;
esac
exec purerl train "$@"
