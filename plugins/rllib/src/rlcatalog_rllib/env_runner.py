"""The environment runners: Ray's own, which also tell the driver why they cannot run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ray.rllib.env.multi_agent_env_runner import MultiAgentEnvRunner
from ray.rllib.env.single_agent_env_runner import SingleAgentEnvRunner

from rlcatalog.errors import CatalogError
from rlcatalog_rllib.worker_deaths import forget_starts, record_start

#: Among the spaces that a runner reports: why it has none.
_FAILURE = "rlcatalog_failure"


class _Telling:
    """A runner of Ray's, kept alive where parts are missing, or where its processes have died again and again.

    While failed runners are to be restarted (Ray's default), Ray only logs what goes wrong when one is made, and ends
    with an IndexError over the spaces it then asks the first of them for, or waits for good. Here the runner answers
    with the error, and the driver raises it.

    Args:
        config: The algorithm's config.
        **kwargs: What Ray passes on.
    """

    def __init__(self, *, config: Any, **kwargs: Any) -> None:
        self._is_remote = bool(kwargs.get("worker_index"))
        self._has_gathered = False
        self._failure: CatalogError | None = record_start() if self._is_remote else None
        if self._failure is not None:
            return
        try:
            super().__init__(config=config, **kwargs)  # type: ignore[call-arg]
        except CatalogError as error:
            if not self._is_remote:
                raise
            self._failure = error

    def apply(self, func: Any, *args: Any, **kwargs: Any) -> Any:
        """Call a function with the runner; an error ends its process, for Ray to restart, if it was complete."""
        if self._failure is not None:
            return func(self, *args, **kwargs)
        return super().apply(func, *args, **kwargs)  # type: ignore[misc]

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
        samples = super().sample(**kwargs)  # type: ignore[misc]
        if self._is_remote and not self._has_gathered:
            self._has_gathered = True
            forget_starts()
        return samples

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


def check_runners(*, algorithm: Any, **_: Any) -> None:
    """Raise the error of a remote runner that cannot run; a callback for when Ray has made or restarted some.

    Raises:
        CatalogError: Whatever a runner met.
    """
    for group in (algorithm.env_runner_group, algorithm.eval_env_runner_group):
        if group is None:
            continue
        for failure in group.foreach_env_runner(
            lambda runner: getattr(runner, "_failure", None), local_env_runner=False, healthy_only=False,
            timeout_seconds=algorithm.config.env_runner_health_probe_timeout_s,
        ):  # fmt: skip
            if failure is not None:
                raise failure
