"""Refuses another package called `envs`, before anything is imported from it."""

import envs

if not getattr(envs, "__purerl__", False):
    raise ImportError(
        f"purerl needs its own package `envs`, but Python found another one at "
        f"{getattr(envs, '__file__', envs)}. Rename that one, or put it later on the "
        "path."
    )
