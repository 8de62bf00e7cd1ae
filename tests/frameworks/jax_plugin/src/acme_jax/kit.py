"""What the conformance kit needs of JAX."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from acme_jax.random import KEYS
from rlcatalog.actions import params_given
from rlcatalog.frameworks import Array, PolicyParts


class Kit:
    """Passes, samples and gradients for the checks; see `rlcatalog_testing.Kit`."""

    traces = False

    @staticmethod
    def seed(number: int) -> None:
        """Seed initial weights and sampling."""
        KEYS.seed(number)

    @staticmethod
    def run(
        policy: PolicyParts,
        inputs: dict[str, Any],
        memory: Sequence[Array],
        lengths: Array | None,
        single: bool,
    ) -> tuple[Array, Array | None, list[Array]]:
        """Run a model, and return its outputs, values and new state."""
        tensors = jax.tree_util.tree_map(jnp.asarray, inputs)
        flags = {"is_training": False, "single_steps": single}
        outputs, state = policy.model({**tensors, **flags}, list(memory), lengths)
        values = None
        if policy.has_value:
            values = np.asarray(policy.model.value_function()).reshape(-1)
        return np.asarray(outputs), values, [np.asarray(part) for part in state]

    @staticmethod
    def draw(
        policy: PolicyParts, outputs: Array, mask: Array | None, explore: bool
    ) -> tuple[Array, Array]:
        """Draw raw actions `[B, width]`, and return them with the parameters that score them."""
        inputs = jnp.asarray(outputs)
        if mask is not None:
            inputs = policy.dist_class.masked(inputs, jnp.asarray(mask, bool))
        dist = policy.dist_class(inputs, policy.model)
        sample = dist.sample() if explore else dist.deterministic_sample()
        raw = np.asarray(sample).reshape(len(outputs), policy.action_codec.width)
        return raw, np.asarray(params_given(dist, sample))

    @staticmethod
    def gradients(
        policy: PolicyParts, batch: dict[str, Any], rng: np.random.Generator
    ) -> tuple[dict[str, Array | None], list[tuple[int, ...]]]:
        """Return the gradients of a random loss by the weights' names, and the shapes of trained
        weights outside the model, of which there are none.
        """
        model = policy.model
        factors = rng.normal(size=(2, len(batch["obs"]))).astype(np.float32)

        def loss(params: dict[str, Any]) -> Any:
            with model.using(params):
                evaluation: Any = policy.evaluate(batch, check=False)
            total = (factors[0] * evaluation.logp).sum()
            if evaluation.value is not None:
                total = total + (factors[1] * evaluation.value).sum()
            return total

        gradients: dict[str, Array | None] = {}
        for name, gradient in jax.grad(loss)(model.params).items():
            gradients[name] = np.asarray(gradient)
        model.values = None  # it belongs to the derivative
        return gradients, []

    @staticmethod
    def gradient(function: Callable[[Any], Any], inputs: Array) -> Array | None:
        """Return the gradient of the sum of a function's result; None if it is of integers."""
        # The function may draw, so jax.eval_shape, which traces it, cannot tell the dtype.
        result, pull_back = jax.vjp(function, jnp.asarray(inputs))
        if not jnp.issubdtype(result.dtype, jnp.floating):
            return None
        (gradient,) = pull_back(jnp.ones_like(result))
        return np.asarray(gradient)
