"""Meta-evolution: losses, hyperparameters and environments found by evolution."""
