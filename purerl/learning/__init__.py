"""Learning from data: returns, normalisers, minibatches, optimisers, averages."""
