"""RLlib's base class of distributions in TensorFlow."""

from __future__ import annotations

from typing import Any

from rlcatalog import ActionDistribution


class TFActionDistribution(ActionDistribution):
    """Base of distributions that draw in `_build_sample_op`.

    RLlib draws once, in the constructor; here each call of `sample` draws anew.

    Args:
        inputs: Model output `[B, size]`.
        model: The model that made it, or None.
    """

    framework_of_class = "tf"

    def _build_sample_op(self) -> Any:
        """Draw raw actions: to implement."""
        raise NotImplementedError(f"{type(self).__name__} must implement _build_sample_op() or sample().")

    def sample(self) -> Any:
        """Draw raw actions."""
        self.last_sample = self._build_sample_op()
        return self.last_sample

    @property
    def sample_op(self) -> Any:
        """What was drawn last, or a first draw."""
        return self.sample() if self.last_sample is None else self.last_sample

    @property
    def sampled_action_logp_op(self) -> Any:
        """Log density of what was drawn last."""
        return self.logp(self.sample_op)


def get_categorical_class_with_temperature(t: float) -> type:
    """Return a Categorical whose logits are divided by `t`."""
    from rlcatalog_tf import Categorical

    class CategoricalWithTemperature(Categorical):
        def __init__(self, inputs: Any, model: Any = None, temperature: float = t) -> None:
            super().__init__(inputs, model, temperature)

    return CategoricalWithTemperature
