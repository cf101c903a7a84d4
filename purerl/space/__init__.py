"""Spaces of sweeps and searches: axes, designs of points, and points in a config."""
