"""Padding of lists: empty places reach neither outputs nor gradients."""

from __future__ import annotations

import numpy as np
import pytest
from gymnasium import spaces
from model_runs import assert_close, compute_gradients, run_model
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


@pytest.mark.grid
@pytest.mark.parametrize("is_structured", [False, True], ids=["flat", "structured"])
@pytest.mark.parametrize("number", [1.0, -1e30, np.inf, np.nan])
def test_empty_places_change_neither_results_nor_gradients(
    framework, number, is_structured, build_and_encode
):
    model, preprocessor, encoded = build_and_encode(framework)
    filled = fill_empty_places(encoded, preprocessor, number)
    assert not np.array_equal(filled, encoded)
    if is_structured:
        filled = restore_original_dimensions(filled, preprocessor.observation_space)

    results = run_model(model, filled)
    gradients = compute_gradients(model, filled)

    expected = run_model(model, encoded)
    np.testing.assert_array_equal(results.outputs, expected.outputs)
    np.testing.assert_array_equal(results.values, expected.values)
    for name, gradient in compute_gradients(model, encoded).items():
        assert_close(gradients[name], gradient)


# --- averages of items ----------------------------------------------------------------------------


@pytest.fixture
def run_on_lists(framework, build_model):
    """Run a model on lists of up to 4 pairs of numbers; return its outputs and its weights."""

    def run(*lists):
        space = spaces.Tuple((Repeated(spaces.Box(-1, 1, (2,), np.float32), 4),))
        model, preprocessor = build_model(space, {"fcnet_hiddens": [5]}, framework)
        encoded = preprocessor.transform_batch([(items,) for items in lists])
        return run_model(model, encoded).outputs, model.get_weights()

    return run


A = np.float32([0.5, -1])
B = np.float32([-0.25, 1])


def test_order_of_items_does_not_matter(run_on_lists):
    outputs, _ = run_on_lists([A, B], [B, A])

    assert_close(outputs[0], outputs[1])


def test_number_of_items_is_an_input(run_on_lists):
    outputs, weights = run_on_lists([A, B], [A, B, A, B])

    # The averages are the same. The lengths differ by 2 of 4, and are the last input.
    length_weights = weights["outputs.logits.weight"][:, -1]
    assert_close(outputs[1] - outputs[0], 2 / 4 * length_weights)


def test_empty_list_has_features_of_zero(run_on_lists):
    outputs, weights = run_on_lists([])

    assert_close(outputs[0], weights["outputs.logits.bias"])
