"""PyTorch code for the conformance kit: model passes, samples, gradients and seeds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from rlcatalog.frameworks import Array, PolicyParts
from rlcatalog.spaces import map_tensors
from rlcatalog_torch import flatten_rows, to_float32_at_least, values_of
from rlcatalog_torch.backend import leaves_of


class TorchKit:
    """PyTorch code for the conformance kit; see `rlcatalog_testing.Kit`."""

    traces = False

    @staticmethod
    def seed(number: int) -> None:
        """Seed initial weights and sampling."""
        torch.manual_seed(number)

    @staticmethod
    def run(
        policy: PolicyParts,
        inputs: dict[str, Any],
        memory: Sequence[Array],
        lengths: Array | None,
        single: bool,
    ) -> tuple[Array, Array | None, list[Array]]:
        """Run a model as acting does, and return its outputs, value and new state."""
        model: Any = policy.model
        model.eval()
        # Copies, because tensors share memory with arrays.
        views: Any = map_tensors(inputs, np.array)
        obs = views.pop("obs")
        memory_copy = map_tensors(tuple(memory), np.array)
        input_dict, states = policy.backend.inputs_of(obs, views, memory_copy)
        seq_lens = None if lengths is None else torch.from_numpy(lengths)
        with torch.no_grad():
            outputs, new_states = model({**input_dict, "single_steps": single}, states, seq_lens)
            value = values_of(model).numpy() if policy.has_value else None
        new_memory = [to_float32_at_least(state).numpy() for state in new_states]
        return to_float32_at_least(outputs).numpy(), value, new_memory

    @staticmethod
    def draw(
        policy: PolicyParts, outputs: Array, mask: Array | None, explore: bool
    ) -> tuple[Array, Array]:
        """Sample raw actions from outputs, and return them with their distribution's stored
        parameters.
        """
        allowed = None if mask is None else torch.from_numpy(mask).bool()
        with torch.no_grad():
            sample, _, dist_inputs = policy.backend.draw(
                torch.from_numpy(outputs), allowed, explore
            )
        return flatten_rows(sample).numpy(), dist_inputs.numpy()

    @staticmethod
    def gradients(
        policy: PolicyParts, batch: dict[str, Any], rng: np.random.Generator
    ) -> tuple[dict[str, Array | None], list[tuple[int, ...]]]:
        """Return a random loss's gradients by weight name, and the shapes of trained weights
        outside the model.
        """
        model: Any = policy.model
        model.zero_grad(set_to_none=True)
        evaluation = policy.evaluate(batch)
        # A mask sets logits to the lowest number of their dtype, which would overflow in the sum.
        outputs = torch.clip(evaluation.dist.inputs.float(), -100.0, 100.0)
        terms = [evaluation.logp]
        if evaluation.value is not None:
            terms.append(evaluation.value)
        terms.append(outputs)
        loss: Any = 0
        for term in terms:
            factors = torch.from_numpy(rng.normal(size=tuple(term.shape)))
            loss = loss + (factors * term).sum()
        parameters = dict(model.named_parameters())
        registered = {id(parameter) for parameter in parameters.values()}
        outside = [tuple(leaf.shape) for leaf in leaves_of([loss]) if id(leaf) not in registered]
        if loss.requires_grad:
            torch.autograd.backward(loss)
        gradients: dict[str, Array | None] = {}
        for name, parameter in parameters.items():
            if parameter.requires_grad:
                gradient = parameter.grad
                gradients[name] = None if gradient is None else gradient.float().numpy().copy()
        model.zero_grad(set_to_none=True)
        return gradients, outside

    @staticmethod
    def weights_of_value(policy: PolicyParts, batch: dict[str, Any]) -> set[str]:
        """Return the names of the weights that values depend on and the policy does not."""
        evaluation: Any = policy.evaluate(batch)
        if evaluation.value is None:
            return set()
        of_value = {id(leaf) for leaf in leaves_of([evaluation.value])}
        of_policy = {id(leaf) for leaf in leaves_of([evaluation.logp, evaluation.dist.inputs])}
        names = set()
        for name, parameter in policy.model.named_parameters():
            if id(parameter) in of_value - of_policy:
                names.add(name)
        return names

    @staticmethod
    def gradient(function: Callable[[Any], Any], inputs: Array) -> Array | None:
        """Return the gradient of the sum of a function's result, or None if no gradient reaches the
        inputs.

        Args:
            function: Function that maps a tensor of inputs to a tensor.
            inputs: Floats of any shape.
        """
        x = torch.tensor(inputs, requires_grad=True)
        total = function(x).sum()
        if not total.requires_grad:
            return None
        # `allow_unused` returns None for an x that does not reach the total.
        (result,) = torch.autograd.grad(total, x, allow_unused=True)
        if result is None:
            return None
        return result.numpy()
