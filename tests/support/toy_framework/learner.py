"""The learner: gradients of a loss function, and Adam (Kingma and Ba 2015, algorithm 1)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

import numpy as np

from rlcatalog.errors import NotServedError
from rlcatalog.frameworks import Array, Gradient, PolicyParts, Tensor, TensorTree
from rlcatalog.spaces import map_tensors
from toy_framework.arrays import BITS


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
            raise NotServedError("lr_parts: framework 'toy' has one learning rate.")
        self.model = policy.model
        self.eps = eps
        self.num_steps = 0
        self.first = {name: np.zeros(w.shape) for name, w in self.model.weights.items()}
        self.second = {name: np.zeros(w.shape) for name, w in self.model.weights.items()}

    @staticmethod
    def seed(value: int) -> None:
        """Seed weights and actions."""
        BITS.state = np.random.MT19937(value).state

    @staticmethod
    def set_threads(count: int) -> None:
        """Set the number of threads, which NumPy reads before it is imported."""

    def select_weights(self) -> None:
        """Choose the weights to train, which are all."""

    def gradient(
        self, loss: Callable[..., tuple[Tensor, Any]], *inputs: TensorTree | float | None
    ) -> Gradient:
        """Return the gradient of a loss function, which is called many times."""

        def loss_alone() -> float:
            total, _ = loss(*inputs)
            return float(total)  # type: ignore[arg-type]

        gradients = self.model.gradients(loss_alone)
        squares = sum((gradient**2).sum() for gradient in gradients.values())
        total, results = loss(*inputs)
        return Gradient(total, results, np.sqrt(squares), gradients)

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
            scale = min(1.0, limit / (gradient.norm + 1e-6))
        self.num_steps += 1
        for name, unscaled in gradient.of_weights.items():
            of_weight = scale * unscaled
            self.first[name] += 0.1 * (of_weight - self.first[name])
            self.second[name] += 0.001 * (of_weight**2 - self.second[name])
            first = self.first[name] / (1 - 0.9**self.num_steps)
            second = self.second[name] / (1 - 0.999**self.num_steps)
            self.model.weights[name] -= lr * first / (np.sqrt(second) + self.eps)

    # --- batches ----------------------------------------------------------------------------------

    def place_batch(self, batch: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return a batch as tensors, which its arrays are."""
        return batch

    def rows(self, columns: TensorTree, index: Array) -> Any:
        """Return rows of a batch's columns."""
        return map_tensors(columns, lambda column: column[index])

    def means(self, figures: list[Tensor]) -> list[float]:
        """Return the means of metrics over several steps."""
        means: list[float] = np.mean(figures, axis=0).tolist()  # type: ignore[arg-type]
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
        self.first = {name: np.array(moment) for name, moment in state["first"].items()}
        self.second = {name: np.array(moment) for name, moment in state["second"].items()}
