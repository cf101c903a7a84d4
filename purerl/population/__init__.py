"""Populations that are trained together: PBT, successive halving, Hyperband."""
