"""Acting in an environment: policies, exploration, rollouts, evaluation."""
