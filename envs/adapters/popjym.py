"""Memory tasks of POPJym (Lu et al. 2023); the only module that imports it."""

from __future__ import annotations

from typing import Any

from popjym import registration

from .adapt import FiveValueEnvironment
from .packages import refused_options, unknown_name


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
        known = registration.REGISTERED_ENVS
        if popjym_name not in known:
            raise unknown_name("POPJym", popjym_name, known)
        self.id, self.options = f"popjym/{popjym_name}", options
        try:
            made: Any = registration.make(popjym_name, **options)[0]
        except TypeError as error:
            raise refused_options(self.id, options, error) from None
        if hasattr(made, "is_terminal"):  # Its name in gymnax before 1.0.
            made.is_terminated = made.is_terminal
        super().__init__(made, getattr(made, "max_steps_in_episode", None))

    @property
    def note(self) -> str:
        """Says nothing: POPJym's limits are known."""
        return ""
