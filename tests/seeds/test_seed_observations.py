"""What the seeds say of observations: their examples to the letter, structures as `obs`, the vector
as `obs_flat`.
"""

import gymnasium as gym
import numpy as np
import pytest
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
    for found in (preprocessor.transform(value), preprocessor.transform_batch([value, value])[1]):
        assert found.dtype == np.float32
        np.testing.assert_array_equal(found, expected)


class Showing(gym.Env):
    """Shows one observation for ever."""

    def __init__(self, space, obs):
        self.observation_space, self.action_space, self.obs = space, Discrete(2), obs

    def reset(self, *, seed=None, options=None):
        return self.obs, {}

    def step(self, action):
        return self.obs, 0.0, False, False, {}


PLACE, IMAGE = np.array([0.5, -0.5], np.float32), np.arange(12, dtype=np.uint8).reshape(2, 2, 3)
CASES = {
    "tuple": (
        Tuple([Discrete(3), Box(-1, 1, (2,)), Box(0, 255, (2, 2, 3), np.uint8)]),
        (1, PLACE, IMAGE),
    ),
    "dict": (
        Dict(
            {
                "gear": Discrete(3),
                "place": Box(-1, 1, (2,)),
                "view": Box(0, 255, (2, 2, 3), np.uint8),
            }
        ),
        {"view": IMAGE, "gear": 1, "place": PLACE},
    ),
}


@pytest.mark.parametrize("framework", ["torch", "tf"])
@pytest.mark.parametrize("kind", CASES)
def test_model_gets_structure_and_flat_vector(kind, framework):
    space, obs = CASES[kind]
    policy = rlcatalog.build(
        env=Showing(space, obs), config={"fcnet_hiddens": [4]}, framework=framework
    )
    seen, forward = {}, policy.model.forward

    def spy(input_dict, state, seq_lens):
        seen.update(input_dict)
        return forward(input_dict, state, seq_lens)

    policy.model.forward = spy
    batch = {"obs": policy.preprocess([obs] * 5), "raw_action": np.zeros((5, 1), np.float32)}
    policy.evaluate(batch)
    gear, place, view = (
        seen["obs"] if kind == "tuple" else (seen["obs"][key] for key in ("gear", "place", "view"))
    )
    assert type(seen["obs"]) is {"tuple": tuple, "dict": dict}[kind]
    np.testing.assert_array_equal(np.asarray(gear), [[0, 1, 0]] * 5)  # stays one-hot
    np.testing.assert_array_equal(np.asarray(place), [PLACE] * 5)
    np.testing.assert_array_equal(np.asarray(view), [IMAGE] * 5)
    expected = np.concatenate([[0, 1, 0], PLACE, IMAGE.ravel()])
    np.testing.assert_array_equal(np.asarray(seen["obs_flat"]), [expected] * 5)
    # As in the seeds' loss functions.
    again = restore_original_dimensions(seen["obs_flat"], policy.model.obs_space, framework)
    np.testing.assert_array_equal(
        np.asarray(again[2] if kind == "tuple" else again["view"]), [IMAGE] * 5
    )


def test_one_hot_of_the_wrapper_example():
    np.testing.assert_array_equal(one_hot(3.0, depth=5), [0, 0, 0, 1, 0])
