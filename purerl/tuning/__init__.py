"""Search with Optuna: trials in batches, each batch with its seeds one vmapped call."""
