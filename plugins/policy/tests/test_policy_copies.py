"""Pickled and deep-copied policies: they act alike, have their own numbers, and equal a saved
policy.
"""

from __future__ import annotations

import copy
import json
import pickle

import numpy as np
import pytest
import warm
from action_kinds import ACTIONS
from gymnasium.spaces import Box, Discrete
from torch import nn

import rlcatalog
from rlcatalog.errors import SavedPolicyError
from rlcatalog_torch import FullyConnectedNetwork, TorchModelV2

pytestmark = pytest.mark.usefixtures("one_thread", "seeded")

OBS = Box(-20, 20, (3,), np.float32)
THREE = Discrete(3)
SMALL = {"fcnet_hiddens": [8]}


def random_observations(*, rows=6):
    return np.random.default_rng(1).uniform(-1, 1, (rows, 3)).astype(np.float32)


def assert_same_policies(policy, other):
    """Check that two policies encode and act alike, in two steps."""
    obs = random_observations()
    np.testing.assert_array_equal(policy.preprocess(obs), other.preprocess(obs))
    state = None
    other_state = None
    for _ in range(2):
        step = policy.act(obs, state, explore=False)
        other_step = other.act(obs, other_state, explore=False)
        for name in ("raw_action", "logp", "value", "dist_inputs"):
            np.testing.assert_array_equal(getattr(step, name), getattr(other_step, name))
        state = step.state
        other_state = other_step.state


def pickle_and_unpickle(value):
    return pickle.loads(pickle.dumps(value))


# --- copies ---------------------------------------------------------------------------------------


@pytest.mark.grid
@pytest.mark.parametrize("framework", ["torch", "tf"])
@pytest.mark.parametrize(
    "config",
    [
        pytest.param({}, id="plain"),
        pytest.param({"observation_filter": "MeanStdFilter"}, id="filtered"),
        pytest.param(
            {"use_lstm": True, "lstm_cell_size": 4, "lstm_use_prev_action": True}, id="memory"
        ),
    ],
)
def test_copies_act_alike_and_own_their_numbers(config, framework, tmp_path):
    action_space, _ = ACTIONS["dict"]
    policy = rlcatalog.build(OBS, action_space, {**SMALL, **config}, framework)
    policy.preprocess(5 * random_observations(rows=50), update=True)
    policy.save(tmp_path)
    saved = rlcatalog.load(tmp_path)
    weights_before = policy.model.get_weights()

    for copied in (copy.deepcopy(policy), pickle_and_unpickle(policy)):
        assert_same_policies(policy, copied)
        assert_same_policies(saved, copied)

        # Changing the copy's weights and statistics does not change the policy.
        copied_weights = copied.model.get_weights()
        copied.model.set_weights({name: array + 1 for name, array in copied_weights.items()})
        copied.preprocess(7 * random_observations(rows=50), update=True)

        for name, array in policy.model.get_weights().items():
            np.testing.assert_array_equal(array, weights_before[name])
        assert_same_policies(policy, saved)


def test_policy_is_unpickled_in_another_process(tmp_path):
    policy = rlcatalog.build(OBS, THREE, SMALL, "torch")
    (tmp_path / "policy").write_bytes(pickle.dumps(policy))
    code = (
        "import pickle, sys, numpy; policy = pickle.load(open(sys.argv[1], 'rb'));"
        "print(policy.act(numpy.ones((2, 3), 'f4'), explore=False).dist_inputs.tolist())"
    )

    process = warm.run(["-c", code, str(tmp_path / "policy")], tmp_path)

    assert process.returncode == 0, process.stderr
    expected = policy.act(np.ones((2, 3), np.float32), explore=False).dist_inputs
    np.testing.assert_allclose(json.loads(process.stdout), expected, rtol=1e-6)


def test_weights_of_another_dtype_are_not_copied():
    policy = rlcatalog.build(OBS, THREE, SMALL, "torch")
    policy.model.double()

    with pytest.raises(SavedPolicyError, match="float64 instead of float32"):
        copy.deepcopy(policy)


# --- classes of the program -----------------------------------------------------------------------


class ModuleLevelModel(TorchModelV2, nn.Module):
    """A model that can be imported from this module."""

    def __init__(self, obs_space, action_space, num_outputs, model_config, name):
        TorchModelV2.__init__(self, obs_space, action_space, num_outputs, model_config, name)
        nn.Module.__init__(self)
        self.net = FullyConnectedNetwork(obs_space, action_space, num_outputs, model_config, "net")

    def forward(self, input_dict, state, seq_lens):
        return self.net(input_dict, state, seq_lens)

    def value_function(self):
        return self.net.value_function()


@pytest.fixture
def catalog_of_models():
    """A catalog with a model that can be imported, and one that cannot."""

    class LocalModel(ModuleLevelModel):
        """A model inside a function."""

    catalog = rlcatalog.Catalog()
    catalog.register_model("importable", ModuleLevelModel)
    catalog.register_model("local", LocalModel)
    return catalog


def build_custom_policy(catalog, custom_model):
    return rlcatalog.build(OBS, THREE, {**SMALL, "custom_model": custom_model}, catalog=catalog)


def test_registered_class_is_pickled_by_its_import_path(catalog_of_models):
    policy = build_custom_policy(catalog_of_models, "importable")

    # The other registered model, which cannot be imported, is no obstacle.
    assert_same_policies(policy, pickle_and_unpickle(policy))


def test_class_that_cannot_be_imported_is_deep_copied(catalog_of_models):
    policy = build_custom_policy(catalog_of_models, "local")

    assert_same_policies(policy, copy.deepcopy(policy))


def test_class_that_cannot_be_imported_is_not_pickled(catalog_of_models):
    policy = build_custom_policy(catalog_of_models, "local")

    with pytest.raises(SavedPolicyError, match="LocalModel cannot be imported from ") as caught:
        pickle.dumps(policy)

    assert "model 'local': the class " in str(caught.value)
    assert "top level" in str(caught.value)


def test_class_in_the_config_is_deep_copied(catalog_of_models):
    policy = build_custom_policy(catalog_of_models, ModuleLevelModel)

    assert_same_policies(policy, copy.deepcopy(policy))


def test_class_in_the_config_is_not_pickled(catalog_of_models):
    policy = build_custom_policy(catalog_of_models, ModuleLevelModel)

    with pytest.raises(SavedPolicyError, match="ModuleLevelModel is in the config itse") as caught:
        pickle.dumps(policy)

    assert "is in the config itself, " in str(caught.value)
    assert "Register it" in str(caught.value)
