"""What checks need of TensorFlow: an eager pass, draws, gradients, a seed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from rlcatalog.actions import params_given
from rlcatalog_policy import Policy
from rlcatalog.testing.passes import Array, Gradients, tree
from rlcatalog_tf import flat_sample, flatten_rows, keras, tf, values_of, widened


def seed(number: int) -> None:
    """Make weights and draws to come the same ones."""
    keras.utils.set_random_seed(number)


def run(
    policy: Policy, inputs: dict[str, Any], memory: Sequence[Array], lengths: Array | None, single: bool
) -> tuple[Array, Array | None, list[Array]]:
    """Run a model as acting does, untraced; return its outputs, value and new state."""
    model: Any = policy.model

    floats = next((v.dtype for v in model.variables() if v.dtype.is_floating), tf.float32)

    def tensor(array: Array) -> Any:
        found = tf.convert_to_tensor(array)
        return tf.cast(found, floats) if found.dtype.is_floating else found

    given = {name: tree(value, tensor) for name, value in inputs.items()} | {"is_training": False}
    seq_lens = None if lengths is None else tf.constant(lengths)
    flags = {"single_steps": True} if single else {}
    outputs, state = model({**given, **flags}, [tensor(part) for part in memory], seq_lens)
    value = values_of(model).numpy() if policy.has_value else None
    return widened(outputs).numpy(), value, [widened(part).numpy() for part in state]


def draw(policy: Policy, outputs: Array, mask: Array | None, explore: bool) -> tuple[Array, Array]:
    """Draw raw actions from outputs, and return what is stored of their distribution."""
    dist_class: Any = policy.dist_class
    inputs = tf.constant(outputs)
    if mask is not None:
        inputs = dist_class.masked(inputs, tf.cast(tf.constant(mask), tf.bool))
    dist = dist_class(inputs, policy.model)
    sample = dist.sample() if explore else dist.deterministic_sample()
    return flatten_rows(flat_sample(sample)).numpy(), params_given(dist, sample).numpy()


def gradients(policy: Policy, batch: dict[str, Any], rng: np.random.Generator) -> Gradients:
    """Return the gradients of a random loss over a batch."""
    model: Any = policy.model
    with tf.GradientTape() as tape:
        found = policy.evaluate(batch)
        outputs = tf.clip_by_value(tf.cast(found.dist.inputs, tf.float32), -100.0, 100.0)
        terms = [found.logp, *([] if found.value is None else [found.value]), outputs]
        loss = tf.add_n([tf.reduce_sum(tf.constant(rng.normal(size=tuple(x.shape)), x.dtype) * x) for x in terms])
    variables = model.trainable_variables(as_dict=True)
    known = {id(variable) for variable in model.variables()}
    strangers = [tuple(v.shape) for v in tape.watched_variables() if id(v) not in known]
    found_gradients = tape.gradient(loss, list(variables.values()))
    by_name = {
        name: None if gradient is None else tf.convert_to_tensor(gradient).numpy()
        for name, gradient in zip(variables, found_gradients, strict=True)
    }
    return Gradients(by_name, strangers)
