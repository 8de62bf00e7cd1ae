"""A custom preprocessor over a Dict with an action mask encodes the whole observation.

rlcatalog still applies the mask.

Crosses: policy, preprocessors, categorical.
"""

from __future__ import annotations

import numpy as np
import pytest
from gymnasium import spaces

import rlcatalog
from rlcatalog import ModelCatalog, Preprocessor
from rlcatalog.errors import NotServedError

pytestmark = [
    pytest.mark.usefixtures("one_thread", "seeded"),
    pytest.mark.filterwarnings("ignore:custom_preprocessor is deprecated:DeprecationWarning"),
]

FOUR = spaces.Discrete(4)
MASKED = spaces.Dict(
    action_mask=spaces.Box(0, 1, (4,), np.float32), state=spaces.Box(-1, 1, (8,), np.float32)
)
NESTED = spaces.Dict(part=MASKED)
#: Name of the case → space, and the config key that says where its mask is.
SPACES = {"top": (MASKED, {}), "nested": (NESTED, {"action_mask_key": "part.action_mask"})}


class DoubledStateAndMask(Preprocessor):
    """Returns twice the state, then the mask; it finds both by name, as RLlib's do."""

    def _init_shape(self, obs_space, options):
        parts = obs_space["part"] if "part" in obs_space.spaces else obs_space
        return (parts["state"].shape[0] + parts["action_mask"].shape[0],)

    def transform(self, observation):
        parts = observation.get("part", observation)
        return np.concatenate([2 * parts["state"], parts["action_mask"]])


def make_observation(place, *, mask):
    obs = {
        "action_mask": np.array(mask, np.float32),
        "state": np.linspace(-1, 1, 8, dtype=np.float32),
    }
    return {"part": obs} if place == "nested" else obs


@pytest.fixture
def config():
    """A config that names the preprocessor."""
    ModelCatalog.register_custom_preprocessor("doubled", DoubledStateAndMask)
    return {"custom_preprocessor": "doubled", "fcnet_hiddens": [4]}


@pytest.mark.parametrize("place", SPACES)
def test_model_catalog_gives_the_whole_shape(config, place):
    space, keys = SPACES[place]
    preprocessor = ModelCatalog.get_preprocessor_for_space(space, {**config, **keys})
    assert preprocessor.shape == (12,)  # 8 of the state, 4 of the mask


@pytest.mark.parametrize("framework", ["torch", "tf"])
@pytest.mark.parametrize("place", SPACES)
def test_policy_encodes_state_and_mask(config, place, framework):
    space, keys = SPACES[place]
    policy = rlcatalog.build(space, FOUR, {**config, **keys}, framework)
    obs = make_observation(place, mask=[0, 1, 0, 0])
    expected = [*(2 * np.linspace(-1, 1, 8, dtype=np.float32)), 0, 1, 0, 0]
    assert policy.model.obs_space.shape == (12,)
    np.testing.assert_array_equal(policy.preprocess([obs])[0], expected)


@pytest.mark.parametrize("framework", ["torch", "tf"])
@pytest.mark.parametrize("place", SPACES)
def test_policy_obeys_the_mask(config, place, framework):
    space, keys = SPACES[place]
    policy = rlcatalog.build(space, FOUR, {**config, **keys}, framework)
    rows = [make_observation(place, mask=[0, 1, 0, 0])] * 20
    assert policy.act(rows).action.tolist() == [1] * 20


def test_loaded_policy_encodes_and_masks_as_before(config, tmp_path):
    policy = rlcatalog.build(MASKED, FOUR, config, "torch")
    rows = [make_observation("top", mask=[0, 0, 1, 0])]
    expected = policy.act(rows, explore=False)
    policy.save(tmp_path)

    step = rlcatalog.load(tmp_path).act(rows, explore=False)

    np.testing.assert_allclose(step.dist_inputs, expected.dist_inputs)
    assert step.action.tolist() == [2]


def test_parametric_head_rejects_a_custom_preprocessor(config):
    # The head reads the entries of the Dict, which this preprocessor replaces.
    with pytest.raises(NotServedError, match="parametric needs single entries of obs") as caught:
        rlcatalog.build(MASKED, FOUR, {**config, "use_parametric": True}, "torch")
    assert "Remove custom_preprocessor" in str(caught.value)
