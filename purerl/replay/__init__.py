"""Replay: buffers sampled uniformly or by priority, and batches made of them."""
