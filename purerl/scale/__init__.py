"""Many members, many devices: the same bits however the work is spread."""
