"""Padding of lists: empty places reach neither outputs nor gradients."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
import torch
from gymnasium import spaces
from random_spaces import Case

from rlcatalog import restore_original_dimensions
from rlcatalog.spaces import Repeated

ITEM = spaces.Dict(
    {
        "map": spaces.Box(-1, 1, (2, 2, 1), np.float32),
        "in": Repeated(spaces.Box(-1, 1, (2,), np.float32), 2),
        "gear": spaces.Discrete(3),
        "word": spaces.Text(2, charset="ab"),
    }
)
#: A list of items that contain lists.
SPACE = spaces.Dict({"units": Repeated(ITEM, 3), "speed": spaces.Box(-1, 1, (2,), np.float32)})


@pytest.fixture
def build_and_encode(build_model):
    """Build a model; return it, its preprocessor, and twelve encoded observations.

    Among them are full and empty lists, outside and inside.
    """

    def build(framework):
        config = {
            "fcnet_hiddens": [5],
            "post_fcnet_hiddens": [4],
            "post_fcnet_activation": "tanh",
        }
        model, preprocessor = build_model(SPACE, config, framework)
        observations = Case(SPACE).samples(12, seed=4)
        units = [unit for obs in observations for unit in obs["units"]]
        assert {len(obs["units"]) for obs in observations} == {0, 1, 2, 3}
        assert {len(unit["in"]) for unit in units} == {0, 1, 2}
        return model, preprocessor, preprocessor.transform_batch(observations)

    return build


def fill_empty_places(encoded, preprocessor, number):
    """Return observations with this number in all empty places of the lists.

    The lists inside the empty places get it as their lengths, too.
    """
    encoded = np.array(encoded)
    leaves = {leaf.path: leaf for leaf in preprocessor.leaves()}
    units = leaves["obs['units'][:]"]
    (item_codec,) = preprocessor.children[preprocessor.info.keys.index("units")].children
    item_leaves = {leaf.path: leaf for leaf in item_codec.leaves()}
    inner_length = item_leaves["obs['units'][:]['in'].lengths"]
    inner = item_leaves["obs['units'][:]['in'][:]"]
    lengths = encoded[:, leaves["obs['units'].lengths"].start].astype(int)
    blocks = encoded[:, units.start : units.stop].reshape(len(encoded), *units.shape).copy()
    for items, length in zip(blocks, lengths, strict=True):
        items[length:] = number
        for item in items[:length]:
            inner_items = item[inner.start : inner.stop].reshape(inner.shape)
            inner_items[int(item[inner_length.start]) :] = number
    encoded[:, units.start : units.stop] = blocks.reshape(len(encoded), -1)
    return encoded


@pytest.fixture
def compute_loss_and_gradients(to_tensors):
    """Compute the sum of squared outputs and values, and its gradients."""

    def compute(model, obs):
        weights = model.trainable_variables()
        inputs = {"obs": to_tensors(obs, model.framework)}
        if model.framework == "torch":
            output, _ = model(inputs)
            loss = output.square().sum() + model.value_function().square().sum()
            gradients = torch.autograd.grad(loss, list(weights))
            return loss.item(), [gradient.numpy() for gradient in gradients]
        with tf.GradientTape() as tape:
            output, _ = model(inputs)
            loss = tf.reduce_sum(output**2) + tf.reduce_sum(model.value_function() ** 2)
        return loss.numpy(), [gradient.numpy() for gradient in tape.gradient(loss, list(weights))]

    return compute


@pytest.fixture(params=["flat", "structured"])
def spoil_padding(request):
    """Return observations with a number in the empty places of lists, flat or as structures."""

    def spoil(encoded, preprocessor, number):
        spoilt = fill_empty_places(encoded, preprocessor, number)
        assert not np.array_equal(spoilt, encoded)
        if request.param == "structured":
            return restore_original_dimensions(spoilt, preprocessor.observation_space)
        return spoilt

    return spoil


@pytest.mark.grid
@pytest.mark.parametrize("framework", ["torch", "tf"])
@pytest.mark.parametrize("number", [1.0, -1e30, np.inf, np.nan])
def test_empty_places_do_not_change_the_results(
    framework, number, build_and_encode, spoil_padding, run_model
):
    model, preprocessor, encoded = build_and_encode(framework)

    output, value = run_model(model, spoil_padding(encoded, preprocessor, number))

    expected_output, expected_value = run_model(model, encoded)
    np.testing.assert_array_equal(output, expected_output)
    np.testing.assert_array_equal(value, expected_value)


@pytest.mark.grid
@pytest.mark.parametrize("framework", ["torch", "tf"])
@pytest.mark.parametrize("number", [1.0, -1e30, np.inf, np.nan])
def test_empty_places_do_not_change_the_gradients(
    framework, number, build_and_encode, spoil_padding, compute_loss_and_gradients
):
    model, preprocessor, encoded = build_and_encode(framework)
    spoilt = spoil_padding(encoded, preprocessor, number)

    loss, gradients = compute_loss_and_gradients(model, spoilt)

    expected_loss, expected_gradients = compute_loss_and_gradients(model, encoded)
    assert loss == expected_loss
    for gradient, expected in zip(gradients, expected_gradients, strict=True):
        assert np.isfinite(expected).all()
        np.testing.assert_allclose(gradient, expected, rtol=1e-5, atol=1e-5)


def test_first_item_of_a_list_changes_the_results(build_and_encode, run_model):
    model, preprocessor, encoded = build_and_encode("torch")
    starts = {leaf.path: leaf.start for leaf in preprocessor.leaves()}
    first_item = starts["obs['units'][:]"]
    changed = encoded.copy()
    changed[:, first_item] += 1

    before, _ = run_model(model, encoded)
    after, _ = run_model(model, changed)

    is_different = (after != before).any(axis=1)
    lengths = encoded[:, first_item - 1]  # the length stands before the items
    np.testing.assert_array_equal(is_different, lengths > 0)


# --- averages of items ----------------------------------------------------------------------------


@pytest.fixture(params=["torch", "tf"])
def run_list_model(request, build_model, run_model):
    """Run a model for lists of up to 4 pairs; return its outputs and its weights."""

    def run(*lists):
        space = spaces.Tuple((Repeated(spaces.Box(-1, 1, (2,), np.float32), 4),))
        model, preprocessor = build_model(space, {"fcnet_hiddens": [5]}, request.param)
        output, _ = run_model(model, preprocessor.transform_batch([(items,) for items in lists]))
        return output, model.get_weights()

    return run


A = np.float32([0.5, -1])
B = np.float32([-0.25, 1])


def test_order_of_items_does_not_matter(run_list_model):
    output, _ = run_list_model([A, B], [B, A])

    np.testing.assert_allclose(output[0], output[1], rtol=1e-5, atol=1e-6)


def test_number_of_items_is_an_input(run_list_model):
    output, weights = run_list_model([A, B], [A, B, A, B])

    # The averages are the same. The lengths differ by 2 of 4, and are the last input.
    length_weight = weights["outputs.logits.weight"][:, -1]
    difference = output[1] - output[0]
    np.testing.assert_allclose(difference, 2 / 4 * length_weight, rtol=1e-4, atol=1e-6)


def test_empty_list_has_features_of_zero(run_list_model):
    output, weights = run_list_model([])

    np.testing.assert_allclose(output[0], weights["outputs.logits.bias"], rtol=1e-5, atol=1e-6)
