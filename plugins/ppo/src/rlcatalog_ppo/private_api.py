"""All names of Gymnasium that are not part of its public interface and that rlcatalog uses.

No other module of rlcatalog uses such a name, because each of them may change in any release. This
package is the only one that needs them: it resumes runs in the middle of an episode, and ends the
processes of `AsyncVectorEnv`.

They were tried with Gymnasium 1.2.2 and 1.4.0. If another version lacks a name, rlcatalog does
without it, as each docstring says. `plugins/ppo/tests/test_ppo_private_api.py` checks that the
names still do what is relied on.
"""

from __future__ import annotations

from multiprocessing.process import BaseProcess
from typing import Any

from gymnasium import wrappers
from gymnasium.vector import AsyncVectorEnv
from gymnasium.vector.async_vector_env import AsyncState

# --- wrappers -------------------------------------------------------------------------------------

#: Attributes that a wrapper changes from step to step. All of them exist from the start.
_CHANGING: dict[type, tuple[str, ...]] = {
    wrappers.TimeLimit: ("_elapsed_steps",),
    wrappers.OrderEnforcing: ("_has_reset",),
    wrappers.PassiveEnvChecker: ("checked_reset", "checked_step", "checked_render", "close_called"),
    wrappers.AtariPreprocessing: ("lives", "game_over", "obs_buffer"),
    wrappers.FrameStackObservation: ("obs_queue",),
    wrappers.TransformObservation: (),
    wrappers.TransformReward: (),
    wrappers.TransformAction: (),
    wrappers.ClipAction: (),
    wrappers.RescaleAction: (),
    wrappers.FlattenObservation: (),
}


def changing_attributes(env: Any) -> tuple[str, ...] | None:
    """Return the names of the attributes that make up the state of one of Gymnasium's wrappers.

    Gymnasium has no public way to save a wrapper's state.

    Returns:
        The names, or None for any other environment. The result is also None if the installed
        version lacks one of the attributes; rlcatalog then resumes an episode by replaying its
        actions, or begins a new one, as it does for wrappers that it does not know.
    """
    names = _CHANGING.get(type(env))
    if names is None or not all(hasattr(env, name) for name in names):
        return None
    return names


# --- environments in processes --------------------------------------------------------------------


def processes_of(envs: AsyncVectorEnv) -> list[BaseProcess]:
    """Return the environments' processes; empty before they are created.

    Gymnasium does not tell when a process ends; the next call fails with an EOFError or a
    BrokenPipeError. Without the attribute, the error cannot say which process ended and why.
    """
    return list(getattr(envs, "processes", ()))  # an attribute of Gymnasium's


def is_idle(envs: AsyncVectorEnv) -> bool:
    """Return whether the environments have answered every call.

    Only then can they be asked to close; otherwise, they would take the request for an answer that
    is still due. Without the attribute, their processes are always ended instead.
    """
    return getattr(envs, "_state", None) is AsyncState.DEFAULT  # an attribute of Gymnasium's


def forget_calls(envs: AsyncVectorEnv) -> None:
    """Make `close` not wait for the answers to earlier calls, because a process that ended never
    answers.

    Without the attribute, closing raises an EOFError in this case.
    """
    envs._state = AsyncState.DEFAULT
