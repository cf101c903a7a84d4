"""What sweeps and searches vary: axes, designs of points, and points in a config."""
