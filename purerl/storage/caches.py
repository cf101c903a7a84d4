"""Where this user's caches are: what is found again, and can be lost."""

import os
from pathlib import Path


def cache_base() -> Path | None:
    """Return the folder of this user's caches, or None where there is none.

    `XDG_CACHE_HOME` wins; without it a user who has no home has no caches.
    """
    given = os.environ.get("XDG_CACHE_HOME")
    try:
        return Path(given) if given else Path.home() / ".cache"
    except RuntimeError:  # The user has no home, as in some containers.
        return None
