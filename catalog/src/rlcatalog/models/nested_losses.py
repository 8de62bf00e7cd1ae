"""Losses, metrics and update_ops of the models inside a model: they count whether or not an override asks for them.

A memory or head that adds a loss of its own seldom thinks of its trunk's. So each override is completed: what a model
inside was not asked during the call, it is asked afterwards. One that calls `super()`, or the trunk itself, has asked.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from rlcatalog.models.internals import models_inside

if TYPE_CHECKING:
    from rlcatalog.models.model import ModelV2

Method = Callable[..., Any]


#: Method → what a model inside, which stands at `where`, adds to its result.
ADDITIONS: dict[str, Method] = {
    "custom_loss": lambda loss, where, model, policy_loss, loss_inputs: model.custom_loss(loss, loss_inputs),
    "metrics": lambda own, where, model: {**{f"{where}{key}": value for key, value in model.metrics().items()}, **own},
    "update_ops": lambda own, where, model: [*own, *model.update_ops()],
}


def complete(method: Method, name: str = "") -> Method:
    """Return a method of a model, one of `ADDITIONS`, with what the models inside add to it.

    Args:
        method: The method.
        name: Its name in the class; the function's own when missing.
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
