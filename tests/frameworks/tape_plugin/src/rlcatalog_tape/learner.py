"""The learner: gradients of a loss function, and Adam (Kingma and Ba 2015, algorithm 1)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

import numpy as np
from tape import Array, gradients

from rlcatalog.errors import NotServedError
from rlcatalog.frameworks import Gradient, PolicyParts
from rlcatalog.spaces import map_tensors
from rlcatalog_tape import random
from rlcatalog_tape.ops import OPS

#: Adam's decay rates of the running means of gradients and of their squares.
BETA1 = 0.9
BETA2 = 0.999


class Learner:
    """Trains the weights of a policy; see `rlcatalog.frameworks.Learner`.

    Args:
        policy: The policy.
        eps: Number added to the square root of the corrected second moment.
        lr_parts: Names of parts with their own learning rate.

    Raises:
        NotServedError: A part has its own learning rate.
    """

    def __init__(
        self, policy: PolicyParts, eps: float = 1e-5, lr_parts: Collection[str] = ()
    ) -> None:
        if lr_parts:
            raise NotServedError("lr_parts: framework 'tape' has one learning rate.")
        self.weights: dict[str, Array] = policy.model.weights
        self.eps = eps
        self.num_steps = 0
        self.first = {name: np.zeros_like(weight.data) for name, weight in self.weights.items()}
        self.second = {name: np.zeros_like(weight.data) for name, weight in self.weights.items()}

    @staticmethod
    def seed(value: int) -> None:
        """Seed weights and actions."""
        random.seed(value)

    @staticmethod
    def set_threads(count: int) -> None:
        """Set the number of threads, which NumPy reads before it is imported."""

    def select_weights(self) -> None:
        """Choose the weights to train, which are all."""

    # --- a step -----------------------------------------------------------------------------------

    def gradient(self, loss: Callable[..., tuple[Any, Any]], *inputs: Any) -> Gradient | None:
        """Return the gradient of a loss function, which is called once."""
        total, results = loss(*inputs)
        found = gradients(total, list(self.weights.values()))
        if all(gradient is None for gradient in found):
            return None
        of_weights = {
            name: np.zeros_like(weight.data) if gradient is None else gradient
            for (name, weight), gradient in zip(self.weights.items(), found, strict=True)
        }
        squares = [np.sum(gradient**2) for gradient in of_weights.values()]
        norm = np.sqrt(np.sum(squares))
        return Gradient(total, results, Array(norm), of_weights)

    def apply(
        self,
        gradient: Gradient,
        lr: float,
        limit: float | None,
        part_rates: Mapping[str, float] | None = None,
    ) -> None:
        """Take a step of Adam."""
        scale = 1.0
        if limit is not None:
            scale = min(1.0, limit / (float(gradient.norm) + 1e-6))
        self.num_steps += 1
        correction1 = 1 - BETA1**self.num_steps
        correction2 = 1 - BETA2**self.num_steps
        for name, unscaled in gradient.of_weights.items():
            of_weight = scale * unscaled
            self.first[name] += (1 - BETA1) * (of_weight - self.first[name])
            self.second[name] += (1 - BETA2) * (of_weight**2 - self.second[name])
            mean = self.first[name] / correction1
            deviation = np.sqrt(self.second[name] / correction2)
            weight = self.weights[name]
            weight.data = weight.data - lr * mean / (deviation + self.eps)

    # --- batches ----------------------------------------------------------------------------------

    def place_batch(self, batch: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return a batch as tensors; the lengths of sequences stay an array."""
        return {
            name: column if name == "seq_lens" else map_tensors(column, OPS.tensor)
            for name, column in batch.items()
        }

    def rows(self, columns: Any, index: Any) -> Any:
        """Return rows of a batch's columns."""
        return map_tensors(columns, lambda column: column[index])

    def means(self, figures: list[Any]) -> list[float]:
        """Return the means of metrics over several steps."""
        means: list[float] = np.mean([OPS.array(figure) for figure in figures], axis=0).tolist()
        return means

    # --- checkpoints ------------------------------------------------------------------------------

    def get_state(self) -> dict[str, Any]:
        """Return Adam's state; `behind` is empty, because all weights take every step."""
        return {
            "step": self.num_steps,
            "first": {name: moment.copy() for name, moment in self.first.items()},
            "second": {name: moment.copy() for name, moment in self.second.items()},
            "behind": {},
        }

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Restore the state that `get_state` returned."""
        self.num_steps = state["step"]
        for name, weight in self.weights.items():
            self.first[name] = np.array(state["first"][name], weight.dtype)
            self.second[name] = np.array(state["second"][name], weight.dtype)
