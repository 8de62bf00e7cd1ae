"""Environments that run in parallel, each in its own process."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import signal
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

import gymnasium
import numpy as np
from gymnasium.vector import AsyncVectorEnv, AutoresetMode
from gymnasium.vector.utils import CloudpickleWrapper

from rlcatalog.errors import CatalogError, ConfigError, EnvironmentFaultError, WorkerError, reason
from rlcatalog_ppo.env_state import Resumable
from rlcatalog_ppo.private_api import forget_calls, is_idle, processes_of

#: Key of the info in which a worker reports a fault, because an exception may not be picklable.
_FAULT = "rlcatalog_fault"

#: Not fork, because threads of PyTorch or TensorFlow may hold locks that a forked process would
#: wait for.
_CONTEXT = "forkserver" if "forkserver" in multiprocessing.get_all_start_methods() else "spawn"


class Workers(AsyncVectorEnv):
    """Gymnasium's `AsyncVectorEnv`, with clearer errors; closing it ends all of its processes.

    Args:
        makes: Functions that each create one environment; cloudpickle is used to send them to the
            processes.

    Raises:
        ConfigError: The functions cannot be pickled.
        WorkerError: A process ended while it was creating its environment.
    """

    def __init__(self, makes: Sequence[Callable[[], Any]]) -> None:
        try:
            for make in makes:
                pickle.dumps(CloudpickleWrapper(make))  # as Gymnasium does, but with a clear error
        except Exception as error:
            raise ConfigError(
                "vector='async': the function that creates environments cannot be sent to a"
                f" process: {reason(error)}. Create the objects that it uses inside the function,"
                " or use vector='sync'."
            ) from error
        makers: list[Callable[[], Any]] = [
            partial(_make_in_process, make, parent=os.getpid()) for make in makes
        ]
        start_processes = partial(
            super().__init__,
            makers,
            copy=False,
            context=_CONTEXT,
            autoreset_mode=AutoresetMode.SAME_STEP,
        )
        try:
            try:
                start_processes(shared_memory=True)
            except (TypeError, ValueError):
                # Spaces of variable size, or of kinds unknown to Gymnasium, cannot be shared.
                start_processes(shared_memory=False)
        except BaseException as error:
            # Before the processes, Gymnasium creates one environment here, to read its spaces.
            failed_before_processes = not processes_of(self)
            if failed_before_processes:
                raise
            if isinstance(error, EOFError | OSError):
                raise self._error_after_end() from error
            self.close(terminate=True)
            raise

    def reset(
        self, *, seed: Any = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Begin an episode in every environment."""
        obs, info = self._answer(super().reset, seed=seed, options=options)
        return obs, info

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """Take a step in every environment."""
        obs, reward, terminated, truncated, info = self._answer(super().step, actions)
        return obs, reward, terminated, truncated, info

    def call(self, name: str, *args: Any, **kwargs: Any) -> tuple[Any, ...]:
        """Call a method of every environment."""
        return tuple(self._answer(super().call, name, *args, **kwargs))

    def close_extras(self, timeout: float | None = None, terminate: bool = False) -> None:
        """Tell the workers to close their environments.

        If one does not answer, end all processes.
        """
        was_idle = is_idle(self)
        forget_calls(self)
        if not terminate and was_idle and self._are_alive():
            with suppress(EOFError, OSError):
                super().close_extras(timeout)
                return
        super().close_extras(terminate=True)

    def _are_alive(self) -> bool:
        return all(process.is_alive() for process in processes_of(self))

    def _answer(self, ask: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Return the workers' answer; raise an error if its infos, the last element, report a
        fault.
        """
        try:
            answer = ask(*args, **kwargs)
        except (EOFError, OSError) as error:
            raise self._error_after_end() from error
        infos = answer[-1]
        if isinstance(infos, dict) and _FAULT in infos:
            has_fault = infos[f"_{_FAULT}"]  # Gymnasium's mask of environments with this info
            first_env = int(np.flatnonzero(has_fault)[0])
            raise EnvironmentFaultError(infos[_FAULT][first_env])
        return answer

    def _error_after_end(self) -> WorkerError:
        """End all processes; return an error that names the ones that had already ended."""
        for process in processes_of(self):
            process.join(timeout=0.5)  # it may be about to end
            if not process.is_alive():
                break
        ended = []
        for env, process in enumerate(processes_of(self)):
            if not process.is_alive():
                ended.append(f"environment {env} ({_describe_end(process.exitcode)})")
        self.close(terminate=True)
        names = ", ".join(ended) if ended else "unknown which"
        return WorkerError(
            f"environment processes ended: {names}. See their output on stderr. A killed process"
            " may have run out of memory. In a script, train with vector='async' only under"
            ' `if __name__ == "__main__":`, because each process imports the script.'
        )


class _FaultReporter(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Wrapper that reports errors from its environment, a `Resumable`, in its infos."""

    env: Resumable

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Begin an episode."""
        try:
            return self.env.reset(seed=seed, options=options)
        except CatalogError as error:
            return self._any_obs(), {_FAULT: _message_with_cause(error)}

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Take a step."""
        try:
            return self.env.step(action)
        except CatalogError as error:
            return self._any_obs(), 0.0, False, False, {_FAULT: _message_with_cause(error)}

    def _any_obs(self) -> Any:
        """Return a placeholder observation, which is never read."""
        if self.env.obs is None:
            return self.observation_space.sample()
        return self.env.obs


def _make_in_process(make: Callable[[], Any], parent: int) -> Any:
    """Create an environment, either in its own process or in the parent process, which reads its
    spaces.

    Args:
        make: Creates the environment.
        parent: The parent process's id.
    """
    if os.getpid() == parent:
        return make()
    # Ctrl-C reaches all processes; the parent handles it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    return _FaultReporter(make())


def _message_with_cause(error: CatalogError) -> str:
    """Return an error's message, with the traceback of the environment's exception."""
    if error.__cause__ is None:
        return str(error)
    lines = traceback.format_exception(error.__cause__)
    return f"{error}\n{''.join(lines).rstrip()}"


def _describe_end(exitcode: int | None) -> str:
    if exitcode is not None and exitcode < 0:
        return f"killed by {signal.Signals(-exitcode).name}"
    return f"exit code {exitcode}"
