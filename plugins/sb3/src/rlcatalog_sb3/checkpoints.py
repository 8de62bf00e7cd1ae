"""Checkpoints for Stable-Baselines3 algorithms in their native format, and metrics rows from its
logger.
"""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import numpy as np
import torch
from stable_baselines3.common.buffers import DictReplayBuffer, ReplayBuffer
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.logger import KVWriter, filter_excluded_keys
from stable_baselines3.common.off_policy_algorithm import OffPolicyAlgorithm

from rlcatalog import Policy
from rlcatalog.errors import NonFiniteError, SavedPolicyError, raised_as
from rlcatalog.spaces import map_tensors
from rlcatalog_runs import Session
from rlcatalog_sb3.algorithms import algorithm_class
from rlcatalog_sb3.conversion import to_policy

#: Entries in a run's folder and in its checkpoints. Only checkpoints of off-policy algorithms have
#: the last one.
POLICY, ALGORITHM, BUFFER = "policy", "algorithm.zip", "replay_buffer.pkl"
#: The logger's columns for environment steps and for the mean return of the last episodes.
STEPS, RETURN = "time/total_timesteps", "rollout/ep_rew_mean"


class Stopped(Exception):
    """Exception that ends a run after it has reached its target."""


class CheckpointCallback(BaseCallback):
    """Callback that saves the run between updates.

    Args:
        session: The run.
    """

    def __init__(self, session: Session) -> None:
        super().__init__()
        self.session = session
        self._begun, self._collecting = 0, False

    def _on_rollout_start(self) -> None:
        self._begun, self._collecting = self.model.num_timesteps, True
        self.session.interrupts.check()
        if self.session.is_checkpoint_due(self._begun):
            self.save()
        if self.session.stopping is not None:
            raise Stopped

    def _on_step(self) -> bool:
        if self.session.interrupts.pending is not None and isinstance(
            self.model, OffPolicyAlgorithm
        ):
            self.model.num_timesteps -= self.model.n_envs  # this step is not stored yet
        self.session.interrupts.check()
        return True

    def _on_rollout_end(self) -> None:
        self._collecting = False

    def save_early(self) -> None:
        """Save a run that ends early, with its state from before the unfinished rollout.

        An off-policy algorithm keeps the data that it has collected. During an update, or if
        weights are NaN or infinite, nothing is saved, and the previous checkpoint remains the last
        one.
        """
        if self._collecting and _is_finite(self.model):
            if not isinstance(self.model, OffPolicyAlgorithm):
                self.model.num_timesteps = self._begun
            self.save()

    def save(self) -> None:
        """Save the policy and a checkpoint.

        Raises:
            NonFiniteError: A weight is NaN or infinite; earlier saves are unchanged.
            SavedPolicyError: The files cannot be written.
        """
        steps, session = self.model.num_timesteps, self.session
        if not _is_finite(self.model):
            raise NonFiniteError(
                f"after {steps} steps, {type(self.model).__name__} has NaN or infinite weights."
                f" The policy after {session.saved or 0} steps is in {session.folder / POLICY}."
                " Try a lower learning rate."
            )
        session.save_checkpoint(steps, policy_of(self.model), self._write)

    def _write(self, folder: Path) -> None:
        self.model.save(folder / ALGORITHM)
        if isinstance(self.model, OffPolicyAlgorithm):
            _save_buffer(self.model, folder / BUFFER)


class RowWriter(KVWriter):
    """Output format that reports rows from Stable-Baselines3's logger to a run.

    Args:
        session: The run.
        algorithm: The algorithm.
    """

    def __init__(self, session: Session, algorithm: Any) -> None:
        self._session, self._algorithm = session, algorithm

    def write(
        self, key_values: dict[str, Any], key_excluded: dict[str, tuple[str, ...]], step: int = 0
    ) -> None:
        """Report a row."""
        values = filter_excluded_keys(key_values, key_excluded, "csv")
        plain = {
            key: value.item() if isinstance(value, np.generic) else value
            for key, value in values.items()
        }
        numbers = {
            key: value
            for key, value in plain.items()
            if isinstance(value, bool | int | float | str)
        }
        row = {"timesteps_total": step, "episode_return_mean": numbers.get(RETURN), **numbers}
        episodes = len(self._algorithm.ep_info_buffer or ())
        self._session.report(row, lambda: policy_of(self._algorithm), episodes)

    def close(self) -> None:
        """Do nothing, because the session closes the logs."""


def policy_of(algorithm: Any) -> Policy:
    """Return an algorithm's policy.

    Building it by conversion does not change the run's random draws.
    """
    with torch.random.fork_rng(devices=[]):
        return to_policy(algorithm)


def restore(name: str, checkpoint: Path, env: Any, **settings: Any) -> Any:
    """Load an algorithm from a checkpoint.

    Its files are pickles; loading them runs any code that they contain.

    Args:
        name: The algorithm's name.
        checkpoint: The checkpoint's folder.
        env: The environment, created in the same way as for the run.
        settings: Arguments that override the saved ones.

    Raises:
        SavedPolicyError: The checkpoint cannot be read, or belongs to a different environment.
    """
    kind = algorithm_class(name)
    with raised_as(
        lambda why: SavedPolicyError(f"{checkpoint}: not a checkpoint, or damaged: {why}")
    ):
        algorithm = kind.load(checkpoint / ALGORITHM, env=env, **settings)
        if isinstance(algorithm, OffPolicyAlgorithm):
            algorithm.load_replay_buffer(checkpoint / BUFFER)
            _fill_up(algorithm.replay_buffer)
    return algorithm


def _is_finite(algorithm: Any) -> bool:
    weights = algorithm.policy.state_dict().values()
    return all(bool(torch.isfinite(part).all()) for part in weights if part.is_floating_point())


def _save_buffer(algorithm: OffPolicyAlgorithm, path: Path) -> None:
    """Save only the filled part of the replay buffer, whose arrays are allocated at full size from
    the start.
    """
    buffer: Any = algorithm.replay_buffer
    if type(buffer) in (ReplayBuffer, DictReplayBuffer) and not buffer.full:
        rows = min(buffer.pos + 1, buffer.buffer_size)  # one row may contain the next observation
        algorithm.replay_buffer = copy.copy(buffer)
        for name, value in _columns(buffer):
            setattr(algorithm.replay_buffer, name, map_tensors(value, lambda column: column[:rows]))
    try:
        algorithm.save_replay_buffer(path)
    finally:
        algorithm.replay_buffer = buffer


def _fill_up(buffer: Any) -> None:
    """Extend a loaded replay buffer to its full size."""

    def grown(column: Any) -> Any:
        whole = np.zeros((buffer.buffer_size, *column.shape[1:]), column.dtype)
        whole[: len(column)] = column
        return whole

    if type(buffer) in (ReplayBuffer, DictReplayBuffer) and not buffer.full:
        for name, value in _columns(buffer):
            setattr(buffer, name, map_tensors(value, grown))


def _columns(buffer: Any) -> list[tuple[str, Any]]:
    """Return a replay buffer's contents by name: arrays `[buffer_size, envs, ...]`, or dicts of
    arrays.
    """
    found = []
    for name, value in vars(buffer).items():
        parts = list(value.values()) if isinstance(value, dict) else [value]
        if parts and all(isinstance(part, np.ndarray) for part in parts):
            found.append((name, value))
    return found
