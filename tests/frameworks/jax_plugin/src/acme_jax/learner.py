"""The learner: compiled gradients of a loss function, and Adam from optax."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from acme_jax.random import KEYS
from rlcatalog.errors import NotServedError
from rlcatalog.frameworks import Array, Gradient, PolicyParts
from rlcatalog.spaces import map_tensors


class Learner:
    """Trains the weights of a policy; see `rlcatalog.frameworks.Learner`."""

    def __init__(
        self, policy: PolicyParts, eps: float = 1e-5, lr_parts: Collection[str] = ()
    ) -> None:
        if lr_parts:
            raise NotServedError("lr_parts: framework 'jax' has one learning rate.")
        self.model = policy.model
        self.adam = optax.scale_by_adam(eps=eps)
        self.state: Any = self.adam.init(self.model.params)
        #: Loss function → its compiled gradient.
        self._compiled: dict[Any, Callable[..., Any]] = {}

    @staticmethod
    def seed(value: int) -> None:
        """Seed weights and actions."""
        KEYS.seed(value)

    @staticmethod
    def set_threads(count: int) -> None:
        """Set the number of threads, which XLA reads when the process starts."""

    def select_weights(self) -> None:
        """Choose the weights to train, which are all."""

    def gradient(self, loss: Callable[..., Any], *inputs: Any) -> Gradient:
        """Return the gradient of a loss function, which is compiled once."""
        if loss not in self._compiled:
            self._compiled[loss] = self._compile(loss)
        (total, results), gradients = self._compiled[loss](self.model.params, *inputs)
        squares = sum((of_weight**2).sum() for of_weight in gradients.values())
        return Gradient(total, results, jnp.sqrt(squares), gradients)

    def _compile(self, loss: Callable[..., Any]) -> Callable[..., Any]:
        model = self.model

        def loss_of_params(params: dict[str, Any], *inputs: Any) -> Any:
            with model.using(params):
                return loss(*inputs)

        compiled: Callable[..., Any] = jax.jit(jax.value_and_grad(loss_of_params, has_aux=True))
        return compiled

    def apply(
        self,
        gradient: Gradient,
        lr: float,
        limit: float | None,
        part_rates: Mapping[str, float] | None = None,
    ) -> None:
        """Take a step of Adam."""
        gradients = gradient.of_weights
        if limit is not None:
            scale = jnp.minimum(1.0, limit / (gradient.norm + 1e-6))
            gradients = {name: scale * of_weight for name, of_weight in gradients.items()}
        updates, self.state = self.adam.update(gradients, self.state)
        params = self.model.params
        self.model.params = {name: value - lr * updates[name] for name, value in params.items()}

    def place_batch(self, batch: Mapping[str, Any]) -> dict[str, Any]:
        """Return a batch as tensors."""
        tensors = {}
        for name, part in batch.items():
            tensors[name] = part if name == "seq_lens" else map_tensors(part, jnp.asarray)
        return tensors

    def rows(self, columns: Any, index: Array) -> Any:
        """Return rows of a batch's columns."""
        return map_tensors(columns, lambda column: column[index])

    def means(self, figures: list[Any]) -> list[float]:
        """Return the means of metrics over several steps."""
        means: list[float] = np.mean([np.asarray(vector) for vector in figures], axis=0).tolist()
        return means

    def get_state(self) -> dict[str, Any]:
        """Return Adam's state."""
        return {
            "step": int(self.state.count),
            "first": {name: np.asarray(moment) for name, moment in self.state.mu.items()},
            "second": {name: np.asarray(moment) for name, moment in self.state.nu.items()},
            "behind": {},
        }

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Restore the state that `get_state` returned."""
        self.state = self.state._replace(
            count=jnp.asarray(state["step"], jnp.int32),
            mu={name: jnp.asarray(moment) for name, moment in state["first"].items()},
            nu={name: jnp.asarray(moment) for name, moment in state["second"].items()},
        )
