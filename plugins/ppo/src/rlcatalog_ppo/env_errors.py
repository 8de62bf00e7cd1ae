"""Errors that name the environment of the batch row that caused them."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Any

from rlcatalog import Policy
from rlcatalog.errors import CatalogError, NonFiniteError, ObservationError, reason
from rlcatalog.observations import Array, rows


class EnvErrors(AbstractContextManager[Any]):
    """Context manager that adds the environment and the step of its episode to an error about a
    row.

    The collector enters it twice per step, and a class takes a quarter of the time that a generator
    would.

    Args:
        lengths: Number of steps taken in each episode `[N]`, which is read when an error is raised.
        rows: Indices of the environments that the rows belong to. If None, all environments.
    """

    def __init__(self, lengths: Array, rows: Array | None = None) -> None:
        self._lengths = lengths
        self._rows = rows

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        if isinstance(error, NonFiniteError) and error.row is not None:
            env = error.row if self._rows is None else int(self._rows[error.row])
            raise NonFiniteError(f"{self._describe(env)}: {error}", env) from error

    def encode(self, policy: Policy, env_obs: Any, update: bool | Array = False) -> Array:
        """Return the encoded observations of all environments (see `Policy.preprocess`).

        Raises:
            ObservationError, NonFiniteError: An observation is invalid; the message names its
                environment.
        """
        try:
            with self:
                return policy.preprocess(env_obs, update=update)
        except ObservationError as error:
            raise self._error_with_env(error, policy, env_obs) from error

    def _error_with_env(
        self, error: ObservationError, policy: Policy, env_obs: Any
    ) -> ObservationError:
        """Return the error of the first environment whose observation alone is invalid."""
        for env, obs in enumerate(rows(policy.resolution.request.obs, env_obs)):
            try:
                policy.preprocess([obs])
            except ObservationError as error_of_one:
                return ObservationError(f"{self._describe(env)}: {error_of_one}")
        return error

    def _describe(self, env: int) -> str:
        return (
            f"environment {env} of {len(self._lengths)}, after {self._lengths[env]} steps of its"
            " episode"
        )


def call_env(
    make_error: Callable[[str], Exception], method: Callable[..., Any], *args: Any, **kwargs: Any
) -> Any:
    """Call an environment's method and return its result.

    Args:
        make_error: Callable that creates the error from a description of the problem.
        method: The method.
        *args: Its arguments.
        **kwargs: Its keyword arguments.

    Raises:
        EnvironmentFaultError: The method raised an exception; the message names the file and the
            line.
    """
    try:
        return method(*args, **kwargs)
    except CatalogError:  # it comes from one of our wrappers, and already explains the problem
        raise
    except (Exception, SystemExit) as error:
        innermost = traceback.extract_tb(error.__traceback__)[-1]
        line = f"{innermost.filename}:{innermost.lineno}, in {innermost.name}"
        if _takes_no_seed(method, error):
            raise make_error(
                f"does not take a seed: {reason(error)}. In gym's older interface, reset had no"
                " arguments; write reset(self, *, seed=None, options=None), and return observation,"
                " {}"
            ) from error
        raise make_error(f"raised {reason(error)} ({line})") from error


def _takes_no_seed(method: Callable[..., Any], error: BaseException) -> bool:
    """Return whether a call failed because `reset` does not take what Gymnasium passes to it."""
    is_reset = getattr(method, "__name__", "") == "reset"  # any callable of a user's environment
    return (
        is_reset
        and isinstance(error, TypeError)
        and "unexpected keyword argument" in str(error)
        and ("'seed'" in str(error) or "'options'" in str(error))
    )
