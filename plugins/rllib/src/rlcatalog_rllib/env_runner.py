"""Environment runners that tell the driver why they cannot run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ray.rllib.algorithms.algorithm import Algorithm
from ray.rllib.algorithms.algorithm_config import AlgorithmConfig
from ray.rllib.env.env_runner import EnvRunner
from ray.rllib.env.multi_agent_env_runner import MultiAgentEnvRunner
from ray.rllib.env.single_agent_env_runner import SingleAgentEnvRunner

from rlcatalog.errors import CatalogError
from rlcatalog_rllib.worker_deaths import forget_starts, record_start

#: Key for the error in the spaces that a runner reports.
_FAILURE = "rlcatalog_failure"


class _ReportingRunner:
    """Ray environment runner that stays alive to report missing parts, or processes that died
    repeatedly.

    If Ray restarts failed runners, as it does by default, it only logs errors from a runner's
    constructor. It then reads the first runner's spaces, and fails with an IndexError or waits
    forever. This runner returns the error instead, and the driver raises it.

    Args:
        config: The algorithm's config.
        **kwargs: Ray's other arguments.
    """

    def __init__(self, *, config: AlgorithmConfig, **kwargs: Any) -> None:
        self._is_remote = bool(kwargs.get("worker_index"))  # 0 in the driver's process
        self._has_gathered = False
        self._failure: CatalogError | None = None
        if self._is_remote:
            self._failure = record_start()  # an error if too many processes have died
            if self._failure is not None:
                return
        try:
            super().__init__(config=config, **kwargs)  # type: ignore[call-arg]
        except CatalogError as error:
            if not self._is_remote:
                raise
            self._failure = error

    def apply(self, func: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Call a function with the runner.

        An error ends a healthy runner's process, and Ray restarts it.
        """
        if self._failure is not None:
            return func(self, *args, **kwargs)
        return super().apply(func, *args, **kwargs)  # type: ignore[misc]

    def get_spaces(self) -> dict[str, Any]:
        """Return the environment's and the module's spaces, or the error in place of them."""
        if self._failure is not None:
            return {_FAILURE: self._failure}
        spaces: dict[str, Any] = super().get_spaces()  # type: ignore[misc]
        return spaces

    def assert_healthy(self) -> None:
        """Raise an error, which ends the process, if the runner is unhealthy.

        A runner with an error stays alive.
        """
        if self._failure is None:
            super().assert_healthy()  # type: ignore[misc]

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Set the weights and the connectors' states.

        Ray only logs an error from another process, and then collects with the old weights for
        ever. So a remote runner keeps the error, and raises it when it is asked for experience.
        """
        if self._failure is not None:
            return
        try:
            super().set_state(state)  # type: ignore[misc]
        except CatalogError as error:
            if not self._is_remote:
                raise
            self._failure = error

    def sample(self, **kwargs: Any) -> Any:
        """Collect experience, or raise the error that made this impossible."""
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


class CatalogEnvRunner(_ReportingRunner, SingleAgentEnvRunner):
    """Runner for a single agent."""


class CatalogAgentsEnvRunner(_ReportingRunner, MultiAgentEnvRunner):
    """Runner for several agents."""


def check_spaces(spaces: Mapping[str, Any] | None) -> None:
    """Raise the error that a runner reported in place of spaces.

    Raises:
        CatalogError: The runner's error.
    """
    if spaces and _FAILURE in spaces:
        raise spaces[_FAILURE]


def check_runners(*, algorithm: Algorithm, **_: Any) -> None:
    """Raise the error from a remote runner that cannot run.

    Ray calls this after it has created or restarted runners.

    Raises:
        CatalogError: The runner's error.
    """
    config: Any = algorithm.config
    for group in (algorithm.env_runner_group, algorithm.eval_env_runner_group):
        if group is None:
            continue
        failures = group.foreach_env_runner(
            _failure_of,
            local_env_runner=False,
            healthy_only=False,
            timeout_seconds=config.env_runner_health_probe_timeout_s,
        )
        for failure in failures:
            if failure is not None:
                raise failure


def _failure_of(runner: EnvRunner) -> CatalogError | None:
    """Return the error that a runner reports, if it is one of this file's runners."""
    return runner._failure if isinstance(runner, _ReportingRunner) else None
