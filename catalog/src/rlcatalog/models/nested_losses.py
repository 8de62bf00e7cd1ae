"""Losses, metrics and update_ops of inner models, which are included even if an override does not
call them.

A memory or head that adds a loss usually does not call its trunk's method. Therefore each override
is wrapped: if it did not call an inner model's method, directly or through `super()`, the wrapper
calls that method afterwards.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from rlcatalog.models.bookkeeping import models_inside

if TYPE_CHECKING:
    from rlcatalog.frameworks.ops import Tensor
    from rlcatalog.models.model import ModelV2

Method = Callable[..., Any]


def _add_custom_loss(
    result: Tensor | list[Tensor],
    prefix: str,  # noqa: ARG001  (for metrics)
    inner: ModelV2,
    policy_loss: Tensor | list[Tensor],  # noqa: ARG001  (the result so far replaces it)
    loss_inputs: Mapping[str, Any],
) -> Any:
    """Pass the loss so far through an inner model's `custom_loss`."""
    return inner.custom_loss(result, loss_inputs)


def _add_metrics(result: dict[str, Any], prefix: str, inner: ModelV2) -> dict[str, Any]:
    """Add an inner model's metrics under its prefix; the outer model's own come last, and win."""
    inner_metrics = {f"{prefix}{name}": value for name, value in inner.metrics().items()}
    return {**inner_metrics, **result}


def _add_update_ops(
    result: list[Callable[[], Any]],
    prefix: str,  # noqa: ARG001  (for metrics)
    inner: ModelV2,
) -> list[Callable[[], Any]]:
    """Add an inner model's update operations."""
    return [*result, *inner.update_ops()]


#: Method → a function that adds an inner model's result to the result so far. Its arguments are
#: that result, the prefix of the inner model, the inner model, and the method's own arguments.
ADDITIONS: dict[str, Method] = {
    "custom_loss": _add_custom_loss,
    "metrics": _add_metrics,
    "update_ops": _add_update_ops,
}


def complete(method: Method, name: str = "") -> Method:
    """Wrap a method of a model, one of `ADDITIONS`, so that the results of inner models are added.

    Args:
        method: The method.
        name: The method's name in the class; if empty, the function's name.
    """
    method_name = name or method.__name__
    add_result = ADDITIONS[method_name]

    @functools.wraps(method)
    def complete_method(self: ModelV2, *args: Any, **kwargs: Any) -> Any:
        inner_models = models_inside(self)
        for inner in inner_models.values():
            inner._rlcatalog_bookkeeping.calls.discard(method_name)
        result = method(self, *args, **kwargs)
        self._rlcatalog_bookkeeping.calls.add(method_name)
        for prefix, inner in inner_models.items():
            # An override may have called it, directly or through super().
            if method_name not in inner._rlcatalog_bookkeeping.calls:
                result = add_result(result, prefix, inner, *args, **kwargs)
        return result

    return complete_method
