"""Recorded experience, written to disk during training and read back for custom losses."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from rlcatalog import Policy
from rlcatalog.errors import SavedPolicyError, output_errors
from rlcatalog.frameworks import Array, frameworks
from rlcatalog_ppo.custom_loss import rllib_actions
from rlcatalog_ppo.rollout import Rollout


class Recorder:
    """Recorder that writes each rollout to a file in a folder.

    Args:
        folder: The folder; created if it does not exist.
        policy: The acting policy.

    Attributes:
        next_number: Number of the next file. A run that resumes from a checkpoint overwrites later
            files.
    """

    def __init__(self, folder: str | os.PathLike[str], policy: Policy) -> None:
        self.folder = Path(folder)
        self.policy = policy
        with output_errors(self.folder):
            self.folder.mkdir(parents=True, exist_ok=True)
        self.next_number = len(list(self.folder.glob("rollout-*.npz")))

    def write(self, rollout: Rollout) -> None:
        """Write a rollout's rows, one environment after another."""
        actions = rllib_actions(self.policy, rollout.raw_action)
        columns = {
            "obs": rollout.obs,
            "actions": actions,
            "rewards": rollout.reward,
            "dones": rollout.done,
        }
        if rollout.mask is not None:
            columns["action_mask"] = rollout.mask
        with output_errors(self.folder):
            np.savez_compressed(
                self.folder / f"rollout-{self.next_number:05d}.npz", **rollout.rows(columns)
            )
        self.next_number += 1


class Reader:
    """Reader that returns endless batches from recorded rollouts.

    Args:
        folder: The folder.
        batch_size: Number of rows per batch, drawn at random from one file.
        seed: Seed for drawing rows.

    Raises:
        SavedPolicyError: The folder contains no recorded rollouts, or a damaged file.
    """

    def __init__(
        self, folder: str | os.PathLike[str], batch_size: int = 256, *, seed: int = 0
    ) -> None:
        self.batch_size = batch_size
        self._rng = np.random.default_rng(seed)
        files = sorted(Path(folder).glob("rollout-*.npz"))
        if not files:
            raise SavedPolicyError(
                f"{folder}: no recorded rollouts. Record some: `rlcatalog train ENV --record"
                f" {folder}`."
            )
        self._rollouts = []
        for path in files:
            try:
                with np.load(path, allow_pickle=False) as file:
                    self._rollouts.append({name: file[name] for name in file.files})
            except (OSError, ValueError) as error:
                raise SavedPolicyError(f"{path}: not a recorded rollout: {error}") from error

    def next(self) -> dict[str, Array]:
        """Return a batch: encoded `obs`, raw `actions`, `rewards`, `dones` and, if there are masks,
        `action_mask`.

        Actions have the same shape as in RLlib's batches: `[B]` for a Discrete, otherwise
        `[B, width]`.
        """
        rollout = self._rollouts[self._rng.integers(len(self._rollouts))]
        rows = self._rng.integers(len(rollout["rewards"]), size=self.batch_size)
        return {name: array[rows] for name, array in rollout.items()}

    def tf_input_ops(self) -> dict[str, Any]:
        """Return TensorFlow tensors with a new batch each time a traced function runs."""
        input_ops: Callable[[Reader], dict[str, Any]] = frameworks()["tf"].load("ppo_input_ops")
        return input_ops(self)
