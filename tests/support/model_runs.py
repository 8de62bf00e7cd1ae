"""Models of PyTorch and TensorFlow on NumPy arrays: random weights, results and gradients."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import tensorflow as tf
import torch
from builders import to_array

from rlcatalog.spaces.values import first_tensor, map_tensors


def set_random_weights(model, seed=0, scale=0.5):
    """Set all weights, biases and normalizations included, and return the model."""
    random = np.random.default_rng(seed)
    weights = {}
    for name, array in model.get_weights().items():
        weights[name] = random.normal(0, scale, array.shape)
    model.set_weights(weights)
    return model


def add_to_weights(model, number, prefixes=("",)):
    """Add a number to all weights whose names begin with one of the prefixes."""
    weights = model.get_weights()
    for name, array in weights.items():
        if name.startswith(tuple(prefixes)):
            weights[name] = array + np.float32(number)
    model.set_weights(weights)


def to_tensor(framework, values):
    """Return an array, or a structure of arrays, as tensors of a framework."""
    return map_tensors(values, torch.tensor if framework == "torch" else tf.constant)


def assert_close(result, expected, tolerance=1e-5):
    """Compare arrays."""
    np.testing.assert_allclose(result, expected, rtol=tolerance, atol=tolerance)


@dataclass
class Results:
    """What a model returned, as arrays.

    Attributes:
        outputs: `[rows, outputs]`, or `[sequences, steps, outputs]` of `run_sequences`.
        values: `[rows]`, or `[sequences, steps]`; None for a trunk.
        state: The new state.
    """

    outputs: np.ndarray
    values: np.ndarray | None
    state: list[np.ndarray]


def _call(model, inputs, state, lengths):
    """Return outputs, values and the new state as tensors."""
    if lengths is not None:
        lengths = to_tensor(model.framework, np.asarray(lengths, np.int32))
    state = [to_tensor(model.framework, np.asarray(part, np.float32)) for part in state]
    outputs, new_state = model(to_tensor(model.framework, inputs), state, lengths)
    values = None if model.outputs is None else model.value_function()
    return outputs, values, new_state


def run_model(model, obs, state=(), lengths=None, **inputs):
    """Run a model on observations `[rows, ...]`, or on a structure of them."""
    outputs, values, new_state = _call(model, {"obs": obs, **inputs}, state, lengths)
    if values is not None:
        values = to_array(values)
    return Results(to_array(outputs), values, [to_array(part) for part in new_state])


def run_sequences(model, obs, state=(), lengths=None, is_training=False, **inputs):
    """Run a model with a memory on sequences `[sequences, steps, ...]`.

    Args:
        model: The model.
        obs: Observations.
        state: The states before the sequences; none at the start of an episode.
        lengths: Of the sequences; all steps by default.
        is_training: What the model is told.
        inputs: What else the model reads, `[sequences, steps, ...]`.
    """
    sequences, steps = obs.shape[:2]
    if lengths is None:
        lengths = [steps] * sequences
    rows = {}
    for name, array in {"obs": obs, **inputs}.items():
        rows[name] = array.reshape(sequences * steps, *array.shape[2:]).astype(np.float32)
    results = run_model(model, state=state, lengths=lengths, is_training=is_training, **rows)
    results.outputs = results.outputs.reshape(sequences, steps, -1)
    if results.values is not None:
        results.values = results.values.reshape(sequences, steps)
    return results


def compute_gradients(model, obs, state=(), lengths=None, **inputs):
    """Return the gradients of a randomly weighted sum of outputs and values, by name.

    Gradients have PyTorch's layout in both frameworks. Padded rows do not count.
    """
    rows = len(first_tensor(obs))
    random = np.random.default_rng(5)
    factors = random.normal(size=(rows, model.num_outputs + 1)).astype(np.float32)
    if lengths is not None:
        is_real = np.arange(rows // len(lengths)) < np.asarray(lengths)[:, None]
        factors *= is_real.reshape(-1, 1)
    factors = to_tensor(model.framework, factors)

    def compute_loss():
        outputs, values, _ = _call(model, {"obs": obs, **inputs}, state, lengths)
        loss = outputs * factors[:, :-1]
        return loss if values is None else loss + (values * factors[:, -1])[:, None]

    variables = model.trainable_variables(as_dict=True)
    if model.framework == "torch":
        gradients = torch.autograd.grad(compute_loss().sum(), list(variables.values()))
        return {name: array.numpy() for name, array in zip(variables, gradients, strict=True)}
    with tf.GradientTape() as tape:
        loss = compute_loss()
    gradients = tape.gradient(loss, list(variables.values()))
    arrays = {}
    for name, gradient in zip(variables, gradients, strict=True):
        axes = model.variable_axes()[name]
        # The gradient of a table is an IndexedSlices, which only has the rows that were looked up.
        array = tf.convert_to_tensor(gradient).numpy()
        arrays[name] = array if axes is None else array.transpose(axes)
    return arrays


def assert_same_gradients(model, other, obs, state=(), lengths=None, **inputs):
    """Check that two models have the same gradients, and that none is zero."""
    gradients = compute_gradients(model, obs, state, lengths, **inputs)
    expected = compute_gradients(other, obs, state, lengths, **inputs)
    assert list(gradients) == list(expected)
    for name, gradient in gradients.items():
        largest = np.abs(expected[name]).max()
        assert largest > 0, name
        tolerance = 1e-4 * max(1, largest)
        np.testing.assert_allclose(gradient, expected[name], rtol=0, atol=tolerance, err_msg=name)
