"""Runs of Stable-Baselines3 that are kept: checkpoints by its own means, and a table of progress that goes on."""

from __future__ import annotations

import copy
import io
from pathlib import Path
from typing import Any

import numpy as np
import torch
from stable_baselines3.common.buffers import DictReplayBuffer, ReplayBuffer
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.logger import CSVOutputFormat, Logger
from stable_baselines3.common.off_policy_algorithm import OffPolicyAlgorithm

from rlcatalog.errors import NonFiniteError, SavedPolicyError, reason
from rlcatalog_policy import write_file
from rlcatalog_runs import CHECKPOINTS, Interrupts, checkpoint_name, cut_rows, new_checkpoint, prune_checkpoints
from rlcatalog_sb3.algorithms import algorithm_class
from rlcatalog_sb3.exporting import to_policy

#: What a run's folder and each checkpoint hold; the last one off-policy algorithms' checkpoints alone.
POLICY, ALGORITHM, BUFFER = "policy", "algorithm.zip", "replay_buffer.pkl"
#: The table of progress, and its column of environment steps.
TABLE, STEPS = "progress.csv", "time/total_timesteps"


class Keeping(BaseCallback):
    """Keeps a run where it is whole: between two updates.

    Args:
        folder: The run's folder.
        every: Environment steps between two checkpoints; 0: none but the first and the last.
        keep: How many stay.
        interrupts: Who has asked for the end.
    """

    def __init__(self, folder: Path, every: int, keep: int, interrupts: Interrupts) -> None:
        super().__init__()
        self.folder, self.every, self.keep, self.interrupts = folder, every, keep, interrupts
        self._kept: int | None = None
        self._begun, self._collecting = 0, False

    def _on_rollout_start(self) -> None:
        self._begun, self._collecting = self.model.num_timesteps, True
        self.interrupts.check()
        if self._kept is None or (self.every and self._begun // self.every > self._kept // self.every):
            self.save()

    def _on_step(self) -> bool:
        if self.interrupts.pending is not None and isinstance(self.model, OffPolicyAlgorithm):
            self.model.num_timesteps -= self.model.n_envs  # of this step nothing is stored yet
        self.interrupts.check()
        return True

    def _on_rollout_end(self) -> None:
        self._collecting = False

    def save_early(self) -> None:
        """Keep the run where something has ended it: as it was before the rollout, from which nothing was learned.

        An off-policy algorithm keeps what it has collected. Within an update there is nothing whole to keep, and
        weights that are no numbers are not worth it: the last checkpoint stays the last.
        """
        if self._collecting and _is_finite(self.model):
            if not isinstance(self.model, OffPolicyAlgorithm):
                self.model.num_timesteps = self._begun
            self.finish()

    def finish(self) -> None:
        """Keep the run at its end, with the algorithm beside the policy."""
        self.save()
        content = io.BytesIO()
        self.model.save(content)
        write_file(self.folder, ALGORITHM, content.getvalue())

    def save(self) -> None:
        """Write the policy and a checkpoint.

        Raises:
            NonFiniteError: A weight is no number; what was kept before stays.
            SavedPolicyError: It cannot be written.
        """
        steps = self.model.num_timesteps
        if not _is_finite(self.model):
            raise NonFiniteError(
                f"after {steps} steps weights of {type(self.model).__name__} are no finite numbers. The policy as it"
                f" was after {self._kept or 0} steps is in {self.folder / POLICY}. A lower learning rate may help."
            )
        with torch.random.fork_rng(devices=[]):  # a policy that is converted is built anew: its draws are not the run's
            policy = to_policy(self.model)
        policy.save(self.folder / POLICY)
        path = self.folder / CHECKPOINTS / checkpoint_name(steps)
        if not path.is_dir():
            with new_checkpoint(path) as new:
                policy.save(new / POLICY)
                self.model.save(new / ALGORITHM)
                if isinstance(self.model, OffPolicyAlgorithm):
                    _save_buffer(self.model, new / BUFFER)
            prune_checkpoints(self.folder, self.keep)
        self._kept = steps


def restore(name: str, checkpoint: Path, env: Any, **settings: Any) -> Any:
    """Return an algorithm as a checkpoint has it. What it holds are pickles, and reading one runs what is in it.

    Args:
        name: The algorithm's name.
        checkpoint: Its folder.
        env: The environment, made as for the run.
        settings: What takes the place of the algorithm's own.

    Raises:
        SavedPolicyError: It cannot be read, or belongs to another environment.
    """
    kind = algorithm_class(name)
    try:
        algorithm = kind.load(checkpoint / ALGORITHM, env=env, **settings)
        if isinstance(algorithm, OffPolicyAlgorithm):
            algorithm.load_replay_buffer(checkpoint / BUFFER)
            _fill_up(algorithm.replay_buffer)
    except Exception as error:
        raise SavedPolicyError(f"{checkpoint}: no checkpoint, or damaged: {reason(error)}") from error
    return algorithm


def progress(folder: Path, after: int | None) -> Logger:
    """Return a logger that writes `progress.csv`.

    Args:
        folder: The run's folder.
        after: A run that goes on: the steps it goes on from. Rows of later ones are taken back.
    """
    return Logger(str(folder), [_Table(folder / TABLE, after)])


class _Table(CSVOutputFormat):
    """Stable-Baselines3's table, which may go on."""

    def __init__(self, path: Path, after: int | None) -> None:
        if after is None or not path.exists():
            super().__init__(str(path))
            return
        cut_rows(path, STEPS, after)
        self.file = path.open("r+", encoding="utf-8")
        names = self.file.readline().strip()
        self.keys = names.split(",") if names else []
        self.separator, self.quotechar = ",", '"'
        self.file.seek(0, io.SEEK_END)


def _is_finite(algorithm: Any) -> bool:
    weights = algorithm.policy.state_dict().values()
    return all(bool(torch.isfinite(part).all()) for part in weights if part.is_floating_point())


def _save_buffer(algorithm: OffPolicyAlgorithm, path: Path) -> None:
    """Save what is in the replay buffer. All of it would be as large as it may ever get."""
    buffer: Any = algorithm.replay_buffer
    if type(buffer) in (ReplayBuffer, DictReplayBuffer) and not buffer.full:
        rows = min(buffer.pos + 1, buffer.buffer_size)  # one may hold the next observation
        algorithm.replay_buffer = copy.copy(buffer)
        for name, value in _columns(buffer):
            setattr(algorithm.replay_buffer, name, _mapped(value, lambda column: column[:rows]))
    try:
        algorithm.save_replay_buffer(path)
    finally:
        algorithm.replay_buffer = buffer


def _fill_up(buffer: Any) -> None:
    """Give a replay buffer the size it is to have."""

    def grown(column: Any) -> Any:
        whole = np.zeros((buffer.buffer_size, *column.shape[1:]), column.dtype)
        whole[: len(column)] = column
        return whole

    if type(buffer) in (ReplayBuffer, DictReplayBuffer) and not buffer.full:
        for name, value in _columns(buffer):
            setattr(buffer, name, _mapped(value, grown))


def _columns(buffer: Any) -> list[tuple[str, Any]]:
    """Return what a replay buffer holds: arrays `[buffer_size, envs, ...]`, or dicts of such, by their names."""
    found = []
    for name, value in vars(buffer).items():
        parts = list(value.values()) if isinstance(value, dict) else [value]
        if parts and all(isinstance(part, np.ndarray) for part in parts):
            found.append((name, value))
    return found


def _mapped(value: Any, change: Any) -> Any:
    return {key: change(part) for key, part in value.items()} if isinstance(value, dict) else change(value)
