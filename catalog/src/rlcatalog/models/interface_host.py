"""Host of a `model_interface`: a model that holds another one, written once for both frameworks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from rlcatalog.models.model import ModelV2


class Host(ModelV2):
    """Holds a complete model in `self.inner` and behaves like it.

    An interface is a mixin that adds methods such as `get_q_values`. Its constructor calls this one and finds the
    width of the inner model's output in `self.num_outputs`. `TorchHost` and `TFHost` join it to their frameworks.
    """

    build_inner: Callable[[int | None], ModelV2]

    def __init__(
        self, obs_space: Any, action_space: Any, num_outputs: int | None, model_config: Mapping[str, Any], name: str
    ) -> None:
        super().__init__(obs_space, action_space, num_outputs, model_config, name)  # type: ignore[call-arg]
        self.inner = self.build_inner(num_outputs)
        self.num_outputs = self.inner.num_outputs
        self.view_requirements = self.inner.view_requirements

    def forward(self, input_dict: dict[str, Any], state: list[Any], seq_lens: Any) -> tuple[Any, list[Any]]:
        """Run the inner model."""
        return self.inner(input_dict, state, seq_lens)

    def value_function(self) -> Any:
        """Return the inner model's value estimates."""
        return self.inner.value_function()

    def inner_models(self) -> dict[str, ModelV2]:
        """Return the inner model."""
        return {"": self.inner}

    def get_initial_state(self) -> list[Any]:
        """Return the inner model's initial state."""
        return self.inner.get_initial_state()
