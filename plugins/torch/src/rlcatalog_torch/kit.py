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
        copies: Any = map_tensors(inputs, np.array)
        given, states = policy.backend.inputs_of(
            copies.pop("obs"), copies, map_tensors(tuple(memory), np.array)
        )
        seq_lens = None if lengths is None else torch.from_numpy(lengths)
        with torch.no_grad():
            outputs, state = model({**given, "single_steps": single}, states, seq_lens)
            value = values_of(model).numpy() if policy.has_value else None
        return (
            to_float32_at_least(outputs).numpy(),
            value,
            [to_float32_at_least(part).numpy() for part in state],
        )

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
        outputs = torch.clip(evaluation.dist.inputs.float(), -100.0, 100.0)
        terms = [
            evaluation.logp,
            *([] if evaluation.value is None else [evaluation.value]),
            outputs,
        ]
        loss = sum((torch.from_numpy(rng.normal(size=tuple(x.shape))) * x).sum() for x in terms)
        parameters = dict(model.named_parameters())
        known = {id(parameter) for parameter in parameters.values()}
        assert isinstance(loss, torch.Tensor)
        outside = [tuple(leaf.shape) for leaf in leaves_of([loss]) if id(leaf) not in known]
        if loss.requires_grad:
            torch.autograd.backward(loss)
        by_name = {
            name: None if parameter.grad is None else parameter.grad.float().numpy().copy()
            for name, parameter in parameters.items()
            if parameter.requires_grad
        }
        model.zero_grad(set_to_none=True)
        return by_name, outside

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
        (result,) = torch.autograd.grad(total, x, allow_unused=True)
        return None if result is None else result.numpy()
