"""Devices that need not be here: what they are, what programs would cost on them."""
