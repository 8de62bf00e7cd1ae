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


def _completed(method_name: str, add: Callable[..., Any]) -> Callable[[Method], Method]:
    """Return a decorator that completes a method.

    Args:
        method_name: The method.
        add: `add(result, where, model, *arguments)` returns a result with what a model inside adds to it.
    """

    def complete(method: Method) -> Method:
        @functools.wraps(method)
        def completed(self: ModelV2, *args: Any, **kwargs: Any) -> Any:
            inside = models_inside(self)
            for model in inside.values():
                model._rlcatalog.asked.discard(method_name)
            result = method(self, *args, **kwargs)
            self._rlcatalog.asked.add(method_name)
            for where, model in inside.items():
                if method_name not in model._rlcatalog.asked:
                    result = add(result, where, model, *args, **kwargs)
            return result

        return completed

    return complete


losses = _completed(
    "custom_loss", lambda loss, where, model, policy_loss, loss_inputs: model.custom_loss(loss, loss_inputs)
)
#: Names of a model inside begin with where it stands.
metrics = _completed(
    "metrics",
    lambda own, where, model: {**{f"{where}{name}": value for name, value in model.metrics().items()}, **own},
)
update_ops = _completed("update_ops", lambda own, where, model: [*own, *model.update_ops()])


#: Name of a method → what completes an override of it.
METHODS = {"custom_loss": losses, "metrics": metrics, "update_ops": update_ops}
