"""Losses, metrics and update_ops of inner models, which are included even if an override does not
call them.

A memory or head that adds a loss usually does not call its trunk's method. Therefore each override
is wrapped: if it did not call an inner model's method, directly or through `super()`, the wrapper
calls that method afterwards.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from rlcatalog.models.bookkeeping import models_inside

if TYPE_CHECKING:
    from rlcatalog.models.model import ModelV2

Method = Callable[..., Any]


#: Method → how the inner model at `where` contributes to its result.
ADDITIONS: dict[str, Method] = {
    "custom_loss": lambda loss, where, model, policy_loss, loss_inputs: model.custom_loss(
        loss, loss_inputs
    ),
    "metrics": lambda own, where, model: {
        **{f"{where}{key}": value for key, value in model.metrics().items()},
        **own,
    },
    "update_ops": lambda own, where, model: [*own, *model.update_ops()],
}


def complete(method: Method, name: str = "") -> Method:
    """Wrap a method of a model, one of `ADDITIONS`, so that the results of inner models are added.

    Args:
        method: The method.
        name: The method's name in the class; if empty, the function's name.
    """
    name = name or method.__name__

    @functools.wraps(method)
    def completed(self: ModelV2, *args: Any, **kwargs: Any) -> Any:
        inside = models_inside(self)
        for model in inside.values():
            model._rlcatalog.calls.discard(name)
        result = method(self, *args, **kwargs)
        self._rlcatalog.calls.add(name)
        for where, model in inside.items():
            if name not in model._rlcatalog.calls:
                result = ADDITIONS[name](result, where, model, *args, **kwargs)
        return result

    return completed
