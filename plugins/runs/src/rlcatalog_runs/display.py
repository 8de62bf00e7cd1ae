"""Display of a run in progress: what a session tells it, whatever the engine."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rlcatalog import Policy


class RunDisplay:
    """Display that shows nothing; subclasses show a run."""

    def begin(self, policy: Policy, device: str) -> None:
        """Show the policy that is trained.

        Args:
            policy: The policy at the start of the run.
            device: The device of the model that is trained, such as `"cpu"` or `"cuda:0"`.
        """

    def advance(self, steps: int) -> None:
        """Show the number of environment steps within an iteration; called after many steps, so it
        must be fast.
        """

    def add_row(self, row: Mapping[str, Any]) -> None:
        """Show a row of metrics, with an evaluation under `"evaluation"` if there was one."""
