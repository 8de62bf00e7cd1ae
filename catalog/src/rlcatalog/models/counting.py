"""Losses, metrics and update_ops of the models inside a model: they count whether or not an override asks for them.

A memory or head that adds a loss of its own seldom thinks of its trunk's. So each override is completed: what a model
inside was not asked during the call, it is asked afterwards. One that calls `super()`, or the trunk itself, has asked.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from rlcatalog.models.inside import models_inside

if TYPE_CHECKING:
    from rlcatalog.models.model import ModelV2

Method = Callable[..., Any]


def losses(method: Method) -> Method:
    """Complete a `custom_loss`."""

    @functools.wraps(method)
    def custom_loss(self: ModelV2, policy_loss: Any, loss_inputs: Any) -> Any:
        with_those_inside = _Asking(self, "custom_loss")
        loss = method(self, policy_loss, loss_inputs)
        for _, model in with_those_inside.left():
            loss = model.custom_loss(loss, loss_inputs)
        return loss

    return custom_loss


def metrics(method: Method) -> Method:
    """Complete a `metrics`; names of a model inside begin with where it stands."""

    @functools.wraps(method)
    def metrics(self: ModelV2) -> dict[str, Any]:
        with_those_inside = _Asking(self, "metrics")
        found: dict[str, Any] = method(self)
        for where, model in with_those_inside.left():
            found = {**{f"{where}{name}": value for name, value in model.metrics().items()}, **found}
        return found

    return metrics


def update_ops(method: Method) -> Method:
    """Complete an `update_ops`."""

    @functools.wraps(method)
    def update_ops(self: ModelV2) -> list[Any]:
        with_those_inside = _Asking(self, "update_ops")
        found: list[Any] = method(self)
        for _, model in with_those_inside.left():
            found = [*found, *model.update_ops()]
        return found

    return update_ops


#: Name of a method → what completes an override of it.
METHODS = {"custom_loss": losses, "metrics": metrics, "update_ops": update_ops}


class _Asking:
    """One call of a method: which of the models inside it asks."""

    def __init__(self, model: ModelV2, method: str) -> None:
        self._model, self._method, self._inside = model, method, models_inside(model)
        for inner in self._inside.values():
            inner._rlcatalog.asked.discard(method)

    def left(self) -> Iterator[tuple[str, ModelV2]]:
        """Yield where they stand and those that were not asked; the model itself has been, from now on."""
        self._model._rlcatalog.asked.add(self._method)
        for where, inner in self._inside.items():
            if self._method not in inner._rlcatalog.asked:
                yield where, inner
