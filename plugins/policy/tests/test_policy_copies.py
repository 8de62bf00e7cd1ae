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
from gymnasium.spaces import Box, Dict, Discrete
from torch import nn

import rlcatalog
from rlcatalog.errors import ConfigError, MissingPluginError, SavedPolicyError
from rlcatalog_policy import copy_without_critic
from rlcatalog_torch import FullyConnectedNetwork, TorchModelV2

pytestmark = pytest.mark.usefixtures("one_thread", "seeded")

THREE_FEATURES = Box(-20, 20, (3,), np.float32)
THREE_ACTIONS = Discrete(3)
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
        pytest.param({"observation_filter": "MeanStdFilter"}, id="filter"),
        pytest.param(
            {"use_lstm": True, "lstm_cell_size": 4, "lstm_use_prev_action": True}, id="memory"
        ),
    ],
)
def test_copies_act_alike_and_own_their_numbers(config, framework, tmp_path):
    policy = rlcatalog.build(THREE_FEATURES, THREE_ACTIONS, {**SMALL, **config}, framework)
    policy.preprocess(random_observations(), update=True)  # a filter learns from these

    policy.save(tmp_path)
    copies = [copy.deepcopy(policy), pickle_and_unpickle(policy)]

    for copied in copies:
        assert_same_policies(copied, policy)

    # A change of the policy does not change its copies, which stay as it was saved.
    weights = policy.model.get_weights()
    policy.model.set_weights({name: array + 1 for name, array in weights.items()})
    policy.preprocess(5 * random_observations(), update=True)
    for copied in copies:
        assert_same_policies(copied, rlcatalog.load(tmp_path))


def test_policy_is_unpickled_in_another_process(tmp_path):
    policy = rlcatalog.build(THREE_FEATURES, THREE_ACTIONS, SMALL, "torch")
    file = tmp_path / "policy.pickle"
    file.write_bytes(pickle.dumps(policy))
    script = f"""
import pickle
import numpy as np
with open({str(file)!r}, "rb") as file:
    policy = pickle.load(file)
print(policy.act(np.ones((2, 3), np.float32), explore=False).dist_inputs.tolist())
"""

    process = warm.run(["-c", script], tmp_path)  # like `python -c`

    assert process.returncode == 0, process.stderr
    expected = policy.act(np.ones((2, 3), np.float32), explore=False).dist_inputs
    np.testing.assert_allclose(json.loads(process.stdout), expected, rtol=1e-6)


def test_weights_of_another_dtype_are_not_copied():
    policy = rlcatalog.build(THREE_FEATURES, THREE_ACTIONS, SMALL, "torch")
    policy.model.double()

    with pytest.raises(SavedPolicyError, match="float64 instead of float32"):
        copy.deepcopy(policy)


def test_deepcopy_enters_the_model_into_the_memo():
    policy = rlcatalog.build(THREE_FEATURES, THREE_ACTIONS, SMALL, "torch")
    memo = {}

    copied = copy.deepcopy(policy, memo)

    assert memo[id(policy.model)] is copied.model


#: Of a policy that does not see the secret, which its critic sees.
SECRET_SPACE = Dict({"secret": Box(-1, 1, (2,)), "x": THREE_FEATURES})
CONFIG_WITH_SECRET = {
    **SMALL,
    "critic": {"use_lstm": True, "lstm_use_prev_action": True},
    "obs_groups": {"policy": ["x"]},
    "observation_filter": "MeanStdFilter",
    "freeze_parts": ["critic"],
}


@pytest.mark.parametrize("framework", ["torch", "tf"])
def test_copy_without_critic_acts_on_what_the_policy_sees(framework):
    policy = rlcatalog.build(SECRET_SPACE, THREE_ACTIONS, CONFIG_WITH_SECRET, framework)
    obs = {"secret": np.ones((6, 2), np.float32), "x": random_observations()}
    policy.preprocess(obs, update=True)

    copied = copy_without_critic(policy)

    step = copied.act({"x": obs["x"]}, explore=False)
    np.testing.assert_array_equal(step.dist_inputs, policy.act(obs, explore=False).dist_inputs)
    assert step.value is None
    assert step.state is None
    assert copied.observation_space == Dict({"x": THREE_FEATURES})
    assert not copied.has_value
    given = copied.resolution.config.given
    assert "critic" not in given
    assert given["obs_groups"] == {"policy": ["x"]}
    assert {name.partition(".")[0] for name in copied.model.get_weights()} == {"hidden", "outputs"}


def test_copy_of_a_copy_without_critic_acts_alike():
    policy = rlcatalog.build(SECRET_SPACE, THREE_ACTIONS, CONFIG_WITH_SECRET, "torch")
    policy.preprocess(
        {"secret": np.ones((6, 2), np.float32), "x": random_observations()}, update=True
    )
    copied = copy_without_critic(policy)

    again = copy.deepcopy(copied)

    obs = {"x": random_observations()}
    expected = copied.act(obs, explore=False).dist_inputs
    np.testing.assert_array_equal(again.act(obs, explore=False).dist_inputs, expected)


def test_copy_without_critic_draws_no_random_numbers():
    policy = rlcatalog.build(SECRET_SPACE, THREE_ACTIONS, CONFIG_WITH_SECRET, "torch")
    before = policy.random_state()["cpu"].copy()

    copy_without_critic(policy)

    np.testing.assert_array_equal(policy.random_state()["cpu"], before)


def test_pickle_pins_models_of_parts_of_an_observation():
    image = Box(0, 255, (10, 10, 3), np.uint8)
    space = Dict(a=Box(-1, 1, (2,)), b=image)
    policy = rlcatalog.build(space, THREE_ACTIONS, {"post_fcnet_hiddens": [2]}, "torch")
    pinned = policy.resolution.pinned_keys()

    copied = pickle_and_unpickle(policy)

    assert pinned
    assert dict(copied.resolution.config.given) == {**policy.resolution.config.given, **pinned}


# --- changed pickles ------------------------------------------------------------------------------


@pytest.fixture
def unpickle_changed():
    """Unpickle a policy as if these entries of its state were different."""
    policy = rlcatalog.build(THREE_FEATURES, THREE_ACTIONS, SMALL, "torch")
    restore, (cls, state) = policy.__reduce__()[:2]

    def unpickle(**changes):
        return restore(cls, {**state, **changes})

    unpickle.state = state
    return unpickle


def test_pickle_with_unknown_config_key_is_an_error(unpickle_changed):
    config = {**unpickle_changed.state["config"], "no_such_key": 1}

    with pytest.raises(ConfigError, match="no_such_key"):
        unpickle_changed(config=config)


def test_pickle_of_missing_plugin_names_it_before_its_keys(unpickle_changed):
    config = {**unpickle_changed.state["config"], "no_such_key": 1}
    pins = {**unpickle_changed.state["pins"], "parts": {"trunk": "absent/net"}}

    with pytest.raises(MissingPluginError, match="absent"):
        unpickle_changed(config=config, pins=pins)


def test_pickle_with_weights_of_another_dtype_is_an_error(unpickle_changed):
    numbers = unpickle_changed.state["numbers"]
    weights = {name: array.astype(np.float64) for name, array in numbers["weights"].items()}

    with pytest.raises(SavedPolicyError, match="weights with a different dtype") as caught:
        unpickle_changed(numbers={**numbers, "weights": weights})

    assert "float64 in" in str(caught.value)


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
    return rlcatalog.build(
        THREE_FEATURES, THREE_ACTIONS, {**SMALL, "custom_model": custom_model}, catalog=catalog
    )


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

    with pytest.raises(SavedPolicyError, match="LevelModel is in the config itself") as caught:
        pickle.dumps(policy)

    assert "Register it" in str(caught.value)
