"""TensorFlow code for the conformance kit: model passes, samples, gradients and seeds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from rlcatalog.frameworks import Array, PolicyParts
from rlcatalog_tf import flatten_rows, keras, tf, to_float32_at_least, values_of


class TFKit:
    """TensorFlow code for the conformance kit; see `rlcatalog_testing.Kit`."""

    traces = True

    @staticmethod
    def seed(number: int) -> None:
        """Seed initial weights and sampling."""
        keras.utils.set_random_seed(number)

    @staticmethod
    def run(
        policy: PolicyParts,
        inputs: dict[str, Any],
        memory: Sequence[Array],
        lengths: Array | None,
        single: bool,
    ) -> tuple[Array, Array | None, list[Array]]:
        """Run a model eagerly, as acting does, and return its outputs, value and new state."""
        model: Any = policy.model
        views = {name: view for name, view in inputs.items() if name != "obs"}
        input_dict, states = policy.backend.inputs_of(inputs["obs"], views, memory)
        flags = {"is_training": False, "single_steps": single}
        seq_lens = None if lengths is None else tf.constant(lengths)
        outputs, new_states = model({**input_dict, **flags}, states, seq_lens)
        value = values_of(model).numpy() if policy.has_value else None
        new_memory = [to_float32_at_least(state).numpy() for state in new_states]
        return to_float32_at_least(outputs).numpy(), value, new_memory

    @staticmethod
    def draw(
        policy: PolicyParts, outputs: Array, mask: Array | None, explore: bool
    ) -> tuple[Array, Array]:
        """Sample raw actions from outputs, and return them with their distribution's stored
        parameters.
        """
        allowed = None if mask is None else tf.cast(tf.constant(mask), tf.bool)
        sample, _, dist_inputs = policy.backend.draw(
            tf.constant(outputs), allowed, explore, len(outputs)
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
        with tf.GradientTape() as tape:
            evaluation = policy.evaluate(batch)
            # A mask sets logits to the lowest number of their dtype; the sum would overflow.
            outputs = tf.clip_by_value(tf.cast(evaluation.dist.inputs, tf.float32), -100.0, 100.0)
            terms = [evaluation.logp]
            if evaluation.value is not None:
                terms.append(evaluation.value)
            terms.append(outputs)
            sums = []
            for term in terms:
                factors = tf.constant(rng.normal(size=tuple(term.shape)), term.dtype)
                sums.append(tf.reduce_sum(factors * term))
            loss = tf.add_n(sums)
        weights = model.trainable_variables(as_dict=True)
        registered = {id(variable) for variable in model.variables()}
        outside = []
        for variable in tape.watched_variables():
            if id(variable) not in registered:
                outside.append(tuple(variable.shape))
        gradients: dict[str, Array | None] = {}
        results = tape.gradient(loss, list(weights.values()))
        for name, gradient in zip(weights, results, strict=True):
            gradients[name] = None
            if gradient is not None:
                # The gradient of an embedding may be sparse, which has no numpy().
                gradients[name] = tf.convert_to_tensor(gradient).numpy()
        return gradients, outside

    @staticmethod
    def weights_of_value(policy: PolicyParts, batch: dict[str, Any]) -> set[str]:
        """Return the names of the weights that values depend on and the policy does not."""
        weights = policy.model.trainable_variables(as_dict=True)
        with tf.GradientTape(persistent=True) as tape:
            evaluation = policy.evaluate(batch)
            if evaluation.value is None:
                return set()
            of_policy = [evaluation.logp, tf.cast(evaluation.dist.inputs, evaluation.logp.dtype)]
            policy_sum = tf.add_n([tf.reduce_sum(part) for part in of_policy])
        value_gradients = tape.gradient(evaluation.value, list(weights.values()))
        policy_gradients = tape.gradient(policy_sum, list(weights.values()))
        names = set()
        for name, of_value, of_others in zip(
            weights, value_gradients, policy_gradients, strict=True
        ):
            if of_value is not None and of_others is None:
                names.add(name)
        return names

    @staticmethod
    def gradient(function: Callable[[Any], Any], inputs: Array) -> Array | None:
        """Return the gradient of the sum of a function's result, or None if no gradient reaches the
        inputs.

        Args:
            function: Function that maps a tensor of inputs to a tensor.
            inputs: Floats of any shape.
        """
        x = tf.constant(inputs)
        with tf.GradientTape() as tape:
            tape.watch(x)
            outputs = function(x)
            if not outputs.dtype.is_floating:
                return None
            total = tf.reduce_sum(outputs)
        result = tape.gradient(total, x)
        if result is None:
            return None
        return result.numpy()  # type: ignore[no-any-return]
