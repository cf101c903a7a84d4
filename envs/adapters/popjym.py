"""Memory tasks of POPJym (Lu et al. 2023); the only module that imports it."""

# Without the package pyright takes this file for it.
# pyright: reportAttributeAccessIssue=false
from __future__ import annotations

from typing import Any

from popjym import registration

from .adapt import FiveValueEnvironment
from .packages import check_name


class PopjymEnvironment(FiveValueEnvironment):
    """A task of POPJym, POPGym (Morad et al. 2023) in JAX.

    Games of cards end with the last card, which terminates them. Carts and pendulums
    have a time limit, which truncates.
    """

    def __init__(self, popjym_name: str, **options: Any) -> None:
        """Make the task.

        Args:
            popjym_name: Name of the task, such as `RepeatPreviousEasy`.
            **options: Keywords of its class.

        Raises:
            ValueError: there is no such task or option.
        """
        check_name("POPJym", popjym_name, registration.REGISTERED_ENVS)
        self.id = f"popjym/{popjym_name}"
        made: Any = registration.make(popjym_name, **options)[0]
        if hasattr(made, "is_terminal"):  # Its name in gymnax before 1.0.
            made.is_terminated = made.is_terminal
        super().__init__(made, getattr(made, "max_steps_in_episode", None))

    @property
    def note(self) -> str:
        """Says nothing: POPJym's limits are known."""
        return ""
