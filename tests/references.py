"""Packages that tests compare with, and that the library does not import."""

import warnings

with warnings.catch_warnings():  # its imports use names that jax has deprecated
    warnings.simplefilter("ignore", DeprecationWarning)
    import distrax

__all__ = ("distrax",)
