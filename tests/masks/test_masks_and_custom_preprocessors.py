"""A custom preprocessor over a Dict with an action mask: it sees the whole observation, and
rlcatalog masks.

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

OBS = spaces.Dict(
    action_mask=spaces.Box(0, 1, (4,), np.float32), state=spaces.Box(-1, 1, (8,), np.float32)
)
NESTED = spaces.Dict(part=OBS)
FOUR = spaces.Discrete(4)


class Both(Preprocessor):
    """Puts the mask behind twice the state; it reads both by name, as RLlib's do."""

    def _init_shape(self, obs_space, options):
        parts = obs_space["part"] if "part" in obs_space.spaces else obs_space
        return (parts["state"].shape[0] + parts["action_mask"].shape[0],)

    def transform(self, observation):
        parts = observation.get("part", observation)
        return np.concatenate([2 * parts["state"], parts["action_mask"]])


@pytest.mark.parametrize("framework", ["torch", "tf"])
@pytest.mark.parametrize(
    ("space", "keys"), [(OBS, {}), (NESTED, {"action_mask_key": "part.action_mask"})]
)
def test_it_sees_the_mask_wherever_it_is_looked_up(framework, space, keys):
    ModelCatalog.register_custom_preprocessor("both", Both)
    config = {"custom_preprocessor": "both", "fcnet_hiddens": [4], **keys}
    assert ModelCatalog.get_preprocessor_for_space(space, config).shape == (12,)
    policy = rlcatalog.build(space, FOUR, config, framework)
    assert policy.model.obs_space.shape == (12,)
    state = np.linspace(-1, 1, 8, dtype=np.float32)
    allowed = [0, 1, 0, 0]
    obs = {"action_mask": np.array(allowed, np.float32), "state": state}
    rows = [obs if space is OBS else {"part": obs}] * 20
    np.testing.assert_array_equal(policy.preprocess(rows[:1])[0], [*(2 * state), *allowed])
    assert policy.act(rows).action.tolist() == [1] * 20


def test_any_other_preprocessor_leaves_it_out():
    policy = rlcatalog.build(OBS, FOUR, {"fcnet_hiddens": [4]}, "torch")
    assert policy.model.obs_space.shape == (8,)


def test_a_policy_with_one_is_saved(tmp_path):
    ModelCatalog.register_custom_preprocessor("both", Both)
    policy = rlcatalog.build(
        OBS, FOUR, {"custom_preprocessor": "both", "fcnet_hiddens": [4]}, "torch"
    )
    obs = {"action_mask": np.array([0, 0, 1, 0], np.float32), "state": np.ones(8, np.float32)}
    expected = policy.act([obs], explore=False)
    policy.save(tmp_path / "saved")
    loaded = rlcatalog.load(tmp_path / "saved").act([obs], explore=False)
    np.testing.assert_allclose(loaded.dist_inputs, expected.dist_inputs)
    assert loaded.action.tolist() == [2]


def test_the_head_for_masks_says_that_it_needs_entries():
    ModelCatalog.register_custom_preprocessor("both", Both)
    with pytest.raises(
        NotServedError, match=r"parametric reads 'action_mask' .* Remove custom_preprocessor"
    ):
        rlcatalog.build(OBS, FOUR, {"custom_preprocessor": "both", "use_parametric": True}, "torch")
