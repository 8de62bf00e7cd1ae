"""Losses, metrics and update_ops of inner models, which count even if an override does not call them.

A memory or head that adds a loss usually does not call the method of its trunk. So each override is wrapped: if it did
not call the method of an inner model, directly or through `super()`, the wrapper calls it afterwards.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from rlcatalog.models.internals import models_inside

if TYPE_CHECKING:
    from rlcatalog.models.model import ModelV2

Method = Callable[..., Any]


#: Method → how the inner model at `where` contributes to its result.
ADDITIONS: dict[str, Method] = {
    "custom_loss": lambda loss, where, model, policy_loss, loss_inputs: model.custom_loss(loss, loss_inputs),
    "metrics": lambda own, where, model: {**{f"{where}{key}": value for key, value in model.metrics().items()}, **own},
    "update_ops": lambda own, where, model: [*own, *model.update_ops()],
}


def complete(method: Method, name: str = "") -> Method:
    """Wrap a method of a model, one of `ADDITIONS`, so that the results of inner models are added.

    Args:
        method: The method.
        name: Its name in the class; empty takes the name of the function.
    """
    name = name or method.__name__

    @functools.wraps(method)
    def completed(self: ModelV2, *args: Any, **kwargs: Any) -> Any:
        inside = models_inside(self)
        for model in inside.values():
            model._rlcatalog.asked.discard(name)
        result = method(self, *args, **kwargs)
        self._rlcatalog.asked.add(name)
        for where, model in inside.items():
            if name not in model._rlcatalog.asked:
                result = ADDITIONS[name](result, where, model, *args, **kwargs)
        return result

    return completed
