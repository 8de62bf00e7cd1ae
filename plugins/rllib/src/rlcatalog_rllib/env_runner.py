"""The environment runners: Ray's own, which also tell the driver why they could not be made."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ray.rllib.env.multi_agent_env_runner import MultiAgentEnvRunner
from ray.rllib.env.single_agent_env_runner import SingleAgentEnvRunner

from rlcatalog.errors import CatalogError

#: Among the spaces that a runner reports: why it has none.
_FAILURE = "rlcatalog_failure"


class _Telling:
    """A runner of Ray's, kept alive where parts are missing.

    While failed runners are to be restarted (Ray's default), Ray only logs what goes wrong when one is made, and ends
    with an IndexError over the spaces it then asks the first of them for. Here that one answers with the error, and
    the driver raises it.

    Args:
        config: The algorithm's config.
        **kwargs: What Ray passes on.
    """

    def __init__(self, *, config: Any, **kwargs: Any) -> None:
        self._failure: CatalogError | None = None
        try:
            super().__init__(config=config, **kwargs)  # type: ignore[call-arg]
        except CatalogError as error:
            if not kwargs.get("worker_index"):  # in the driver's own process
                raise
            self._failure = error

    def get_spaces(self) -> dict[str, Any]:
        """Return the spaces of environment and module, or why there are none."""
        if self._failure is not None:
            return {_FAILURE: self._failure}
        found: dict[str, Any] = super().get_spaces()  # type: ignore[misc]
        return found

    def assert_healthy(self) -> None:
        """Raise unless the runner is complete, or can say why it is not: raising ends its process."""
        if self._failure is None:
            super().assert_healthy()  # type: ignore[misc]

    def sample(self, **kwargs: Any) -> Any:
        """Gather experience, or raise what went wrong when the runner was made."""
        if self._failure is not None:
            raise self._failure
        return super().sample(**kwargs)  # type: ignore[misc]

    def stop(self) -> None:
        """Close the environment."""
        if self._failure is None:
            super().stop()  # type: ignore[misc]


class CatalogEnvRunner(_Telling, SingleAgentEnvRunner):
    """The runner for one agent."""


class CatalogAgentsEnvRunner(_Telling, MultiAgentEnvRunner):
    """The runner for several agents."""


def check_spaces(spaces: Mapping[str, Any] | None) -> None:
    """Raise the error that a runner reported in place of spaces.

    Raises:
        CatalogError: Whatever a runner met.
    """
    if spaces and _FAILURE in spaces:
        raise spaces[_FAILURE]
