"""Observations as RLlib's page describes them: its examples to the letter, structures as `obs`, and
vectors as `obs_flat`.
"""

import numpy as np
import pytest
from builders import record_model_inputs
from gymnasium.spaces import Box, Dict, Discrete, MultiDiscrete, Tuple

import rlcatalog
from rlcatalog import ModelCatalog, one_hot, restore_original_dimensions


@pytest.mark.parametrize(
    ("space", "value", "expected"),
    [
        (Discrete(3), 1, [0, 1, 0]),
        (MultiDiscrete([3, 4]), [1, 0], [0, 1, 0, 1, 0, 0, 0]),
        (MultiDiscrete([3, 4]), [1, 3], [0, 1, 0, 0, 0, 0, 1]),
        (MultiDiscrete([2, 3, 4]), [1, 2, 0], [0, 1, 0, 0, 1, 1, 0, 0, 0]),
        (Discrete(5, start=2), 3, [0, 1, 0, 0, 0]),
        (Tuple([Discrete(5), Box(0, 3, (3,))]), (0, [1, 2, 3]), [1, 0, 0, 0, 0, 1, 2, 3]),
        (
            Dict({"a": Discrete(2), "b": Tuple([Discrete(3), Box(0, 4, (4,))])}),
            {"b": (2, [1, 2, 3, 4]), "a": 0},
            [1, 0, 0, 0, 1, 1, 2, 3, 4],
        ),
    ],
    ids=str,
)
def test_encodings_are_those_of_the_page(space, value, expected):
    preprocessor = ModelCatalog.get_preprocessor_for_space(space)

    encoded = preprocessor.transform(value)
    encoded_batch = preprocessor.transform_batch([value, value])

    assert encoded.dtype == np.float32
    assert encoded_batch.dtype == np.float32
    np.testing.assert_array_equal(encoded, expected)
    np.testing.assert_array_equal(encoded_batch, [expected, expected])


PLACE = np.array([0.5, -0.5], np.float32)
IMAGE = np.arange(12, dtype=np.uint8).reshape(2, 2, 3)
GEAR_SPACE = Discrete(3)
PLACE_SPACE = Box(-1, 1, (2,))
IMAGE_SPACE = Box(0, 255, (2, 2, 3), np.uint8)
TUPLE = Tuple([GEAR_SPACE, PLACE_SPACE, IMAGE_SPACE])
DICT = Dict({"gear": GEAR_SPACE, "place": PLACE_SPACE, "view": IMAGE_SPACE})


def evaluate_copies(space, obs, framework):
    """Evaluate five copies of an observation; return the policy, and its model's input dict."""
    policy = rlcatalog.build(space, Discrete(2), {"fcnet_hiddens": [4]}, framework)
    batch = {"obs": policy.preprocess([obs] * 5), "raw_action": np.zeros((5, 1), np.float32)}
    return policy, record_model_inputs(policy, batch)


def assert_equal_rows(tensor, row):
    np.testing.assert_array_equal(np.asarray(tensor), [row] * 5)


frameworks = pytest.mark.parametrize("framework", ["torch", "tf"])


@frameworks
def test_model_gets_a_tuple_as_obs(framework):
    _, inputs = evaluate_copies(TUPLE, (1, PLACE, IMAGE), framework)

    assert type(inputs["obs"]) is tuple
    gear, place, view = inputs["obs"]
    assert_equal_rows(gear, [0, 1, 0])  # one-hot
    assert_equal_rows(place, PLACE)
    assert_equal_rows(view, IMAGE)


@frameworks
def test_model_gets_a_dict_as_obs(framework):
    obs = {"view": IMAGE, "gear": 1, "place": PLACE}
    _, inputs = evaluate_copies(DICT, obs, framework)

    assert type(inputs["obs"]) is dict
    assert_equal_rows(inputs["obs"]["gear"], [0, 1, 0])  # one-hot
    assert_equal_rows(inputs["obs"]["place"], PLACE)
    assert_equal_rows(inputs["obs"]["view"], IMAGE)


@frameworks
@pytest.mark.parametrize(
    ("space", "obs"),
    [(TUPLE, (1, PLACE, IMAGE)), (DICT, {"view": IMAGE, "gear": 1, "place": PLACE})],
    ids=["tuple", "dict"],
)
def test_model_gets_a_vector_as_obs_flat(space, obs, framework):
    _, inputs = evaluate_copies(space, obs, framework)
    assert_equal_rows(inputs["obs_flat"], np.concatenate([[0, 1, 0], PLACE, IMAGE.ravel()]))


@frameworks
@pytest.mark.parametrize(
    ("space", "obs", "key"),
    [(TUPLE, (1, PLACE, IMAGE), 2), (DICT, {"view": IMAGE, "gear": 1, "place": PLACE}, "view")],
    ids=["tuple", "dict"],
)
def test_restore_original_dimensions_returns_the_structure(space, obs, key, framework):
    policy, inputs = evaluate_copies(space, obs, framework)

    # As in the loss functions of the page.
    restored = restore_original_dimensions(inputs["obs_flat"], policy.model.obs_space, framework)

    assert_equal_rows(restored[key], IMAGE)


def test_one_hot_of_the_wrapper_example():
    np.testing.assert_array_equal(one_hot(3.0, depth=5), [0, 0, 0, 1, 0])
