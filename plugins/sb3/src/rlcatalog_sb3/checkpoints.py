"""Checkpoints for Stable-Baselines3 algorithms in their native format, and metrics rows from its
logger.
"""

from __future__ import annotations

import copy
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.buffers import DictReplayBuffer, ReplayBuffer
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.logger import KVWriter, filter_excluded_keys
from stable_baselines3.common.off_policy_algorithm import OffPolicyAlgorithm
from stable_baselines3.common.type_aliases import GymEnv

from rlcatalog import Policy
from rlcatalog.errors import NonFiniteError, SavedPolicyError, raised_as
from rlcatalog.frameworks import Array
from rlcatalog.spaces import map_tensors
from rlcatalog_runs import Session
from rlcatalog_sb3.algorithms import algorithm_class
from rlcatalog_sb3.conversion import to_policy

#: Entry in a run's folder.
POLICY = "policy"
#: Entries in a checkpoint. Only off-policy algorithms have a replay buffer.
ALGORITHM = "algorithm.zip"
BUFFER = "replay_buffer.pkl"
#: The logger's columns for the mean return and the mean length of the last episodes.
MEAN_RETURN = "rollout/ep_rew_mean"
MEAN_LENGTH = "rollout/ep_len_mean"


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
        self._steps_at_rollout_start = 0
        self._is_collecting = False

    def _on_rollout_start(self) -> None:
        self._steps_at_rollout_start = self.model.num_timesteps
        self._is_collecting = True
        self.session.interrupts.check()  # raises an error if the user has interrupted the run
        if self.session.is_checkpoint_due(self.model.num_timesteps):
            self.save()
        if self.session.stopping is not None:
            raise Stopped

    def _on_step(self) -> bool:
        is_interrupted = self.session.interrupts.pending is not None
        if is_interrupted and isinstance(self.model, OffPolicyAlgorithm):
            # This step is counted already, but it is not in the replay buffer yet and will be lost.
            self.model.num_timesteps -= self.model.n_envs
        self.session.interrupts.check()
        self.session.advance(self.model.num_timesteps)
        return True  # continue the rollout

    def _on_rollout_end(self) -> None:
        self._is_collecting = False

    def save_early(self) -> None:
        """Save a run that ends early, with its state from before the unfinished rollout.

        An off-policy algorithm keeps the data that it has collected. During an update, or if
        weights are NaN or infinite, nothing is saved, and the previous checkpoint remains the last
        one.
        """
        if not self._is_collecting or not _is_finite(self.model):
            return
        if not isinstance(self.model, OffPolicyAlgorithm):
            self.model.num_timesteps = self._steps_at_rollout_start
        self.save()

    def save(self) -> None:
        """Save the policy and a checkpoint.

        Raises:
            NonFiniteError: A weight is NaN or infinite; earlier saves are unchanged.
            SavedPolicyError: The files cannot be written.
        """
        steps = self.model.num_timesteps
        if not _is_finite(self.model):
            saved_steps = self.session.saved or 0
            raise NonFiniteError(
                f"after {steps} steps, {type(self.model).__name__} has NaN or infinite weights."
                f" The policy after {saved_steps} steps is in {self.session.folder / POLICY}."
                " Try a lower learning rate."
            )
        self.session.save_checkpoint(steps, policy_of(self.model), self._write)

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

    def __init__(self, session: Session, algorithm: BaseAlgorithm) -> None:
        self._session = session
        self._algorithm = algorithm

    def write(
        self, key_values: dict[str, Any], key_excluded: dict[str, tuple[str, ...]], step: int = 0
    ) -> None:
        """Report a row."""
        # A row has the columns that Stable-Baselines3 would write to a CSV file, if they are plain
        # values.
        columns: dict[str, Any] = {}
        for key, value in filter_excluded_keys(key_values, key_excluded, "csv").items():
            plain_value = value.item() if isinstance(value, np.generic) else value
            if isinstance(plain_value, bool | int | float | str):
                columns[key] = plain_value
        row = {
            "timesteps_total": step,
            "episode_return_mean": columns.get(MEAN_RETURN),
            "episode_len_mean": columns.get(MEAN_LENGTH),
            **columns,
        }
        episode_count = len(self._algorithm.ep_info_buffer or ())
        make_policy = partial(policy_of, self._algorithm)
        self._session.report(row, policy=make_policy, episodes=episode_count)

    def close(self) -> None:
        """Do nothing, because the session closes the logs."""


def policy_of(algorithm: BaseAlgorithm) -> Policy:
    """Return an algorithm's policy, without changing the run's random draws."""
    # A policy that is built again draws initial weights from PyTorch's generator for the CPU;
    # fork_rng restores it.
    with torch.random.fork_rng(devices=[]):
        return to_policy(algorithm)


def restore(name: str, checkpoint: Path, env: GymEnv, **settings: Any) -> BaseAlgorithm:
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
    cls = algorithm_class(name)

    def as_damaged(why: str) -> SavedPolicyError:
        return SavedPolicyError(f"{checkpoint}: not a checkpoint, or damaged: {why}")

    # Whatever a damaged file raises becomes a SavedPolicyError.
    with raised_as(as_damaged):
        algorithm = cls.load(checkpoint / ALGORITHM, env=env, **settings)
        if isinstance(algorithm, OffPolicyAlgorithm):
            algorithm.load_replay_buffer(checkpoint / BUFFER)
            _restore_full_size(algorithm.replay_buffer)
    return algorithm


def _is_finite(algorithm: BaseAlgorithm) -> bool:
    """Return whether no weight of an algorithm's policy is NaN or infinite."""
    for weights in algorithm.policy.state_dict().values():
        if weights.is_floating_point() and not torch.isfinite(weights).all():
            return False
    return True


def _save_buffer(algorithm: OffPolicyAlgorithm, path: Path) -> None:
    """Save the replay buffer without its unused rows.

    The buffer's arrays have their full size from the start, so most rows may be unused.
    """
    buffer: Any = algorithm.replay_buffer
    if _has_unused_rows(buffer):
        # Stable-Baselines3 may store an observation's successor in the row after it.
        used_rows = min(buffer.pos + 1, buffer.buffer_size)
        short_buffer = copy.copy(buffer)
        for name, columns in _columns(buffer):
            short_columns = map_tensors(columns, lambda column: column[:used_rows])
            setattr(short_buffer, name, short_columns)
        # The method below saves the buffer in this attribute.
        algorithm.replay_buffer = short_buffer
    try:
        algorithm.save_replay_buffer(path)
    finally:
        algorithm.replay_buffer = buffer


def _restore_full_size(buffer: ReplayBuffer | None) -> None:
    """Extend the arrays of a replay buffer that was loaded from a file of `_save_buffer`."""
    if buffer is None or not _has_unused_rows(buffer):
        return
    buffer_size = buffer.buffer_size

    def extend(column: Array) -> Array:
        full_column = np.zeros((buffer_size, *column.shape[1:]), column.dtype)
        full_column[: len(column)] = column
        return full_column

    for name, columns in _columns(buffer):
        setattr(buffer, name, map_tensors(columns, extend))


def _has_unused_rows(buffer: ReplayBuffer) -> bool:
    """Return whether a replay buffer is not full; False for classes whose contents are unknown."""
    return type(buffer) in (ReplayBuffer, DictReplayBuffer) and not buffer.full


def _columns(buffer: ReplayBuffer) -> list[tuple[str, Any]]:
    """Return a replay buffer's contents by name: arrays `[buffer_size, envs, ...]`, or dicts of
    arrays.
    """
    columns = []
    for name, value in vars(buffer).items():
        arrays = list(value.values()) if isinstance(value, dict) else [value]
        has_only_arrays = all(isinstance(array, np.ndarray) for array in arrays)
        if arrays and has_only_arrays:
            columns.append((name, value))
    return columns
