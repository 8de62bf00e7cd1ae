"""The autoregressive head and its distribution in TensorFlow."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

from rlcatalog.errors import ActionMaskError
from rlcatalog_autoregressive.head import AutoregressiveHead
from rlcatalog_autoregressive.joint import JointDistribution
from rlcatalog_autoregressive.made.tf import Conditionals
from rlcatalog_autoregressive.part_columns import ActionPart
from rlcatalog_autoregressive.refusals import nothing_left
from rlcatalog_tf import OPS, Dense, OutputLayers, TFModelV2, features_of, flatten_rows, tf


class AutoregressiveDistribution(JointDistribution):
    """P(a₁) P(a₂ | a₁) … P(aₙ | a₁ … aₙ₋₁); see `JointDistribution`."""

    framework_of_class = "tf"
    ops = OPS

    @staticmethod
    def no_gradient() -> AbstractContextManager[Any]:
        """Return the context in which actions are drawn: what parts draw has no gradient, nothing else need be cut."""
        return nullcontext()

    @staticmethod
    def differentiable() -> bool:
        """Whether a tape may be recording now that was not when actions were drawn; in a trace, one does for both."""
        return bool(tf.executing_eagerly())

    @staticmethod
    def check_allowed(mask: Any, params: Any, part: ActionPart) -> None:
        """Raise where a row leaves nothing of a part; what is forbidden in its parameters already counts.

        Raises:
            ActionMaskError: It names the row; inside a trace TensorFlow's own error does.
        """
        largest = params.dtype.max / 2
        free = params > -largest
        if part.bits:
            free = flatten_rows(tf.stack([params < largest, free], axis=2))
        if part.bits or part.masks.single:  # else parameters stand for combinations, and have no such columns
            mask = mask & free
        left = tf.stack([tf.reduce_any(choice, axis=1) for _, choice in part.masks.by_choice(mask)], axis=1)
        left = tf.reduce_all(left, axis=1)
        row = tf.argmin(tf.cast(left, tf.int32))
        if not tf.executing_eagerly():
            why = tf.strings.format(nothing_left("{}", part.path), row)
            tf.debugging.Assert(tf.reduce_all(left), [why])
        elif not bool(tf.reduce_all(left)):
            raise ActionMaskError(nothing_left(int(row), part.path))


class AutoregressiveModel(AutoregressiveHead, TFModelV2):
    """The head for actions whose parts depend on one another; see `AutoregressiveHead`."""

    ops, conditionals_class, features_of = OPS, Conditionals, staticmethod(features_of)
    dense_class, outputs_class = Dense, OutputLayers
