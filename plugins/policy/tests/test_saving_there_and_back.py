"""Saving and loading a policy: it acts as before, in either framework; the files contain names and
numbers but no code.
"""

from __future__ import annotations

import functools
import json

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces
from small_catalogs import make_catalog

import rlcatalog
from rlcatalog import Catalog, ModelSpec, Preprocessor
from rlcatalog.config import RULES
from rlcatalog.errors import ConfigError, SavedPolicyError
from rlcatalog_policy import loading
from rlcatalog_torch import Categorical, TorchModelV2

THREE_FEATURES = spaces.Box(-1, 1, (3,), np.float32)
TWO_ACTIONS = spaces.Discrete(2)
THREE_ACTIONS = spaces.Discrete(3)
NESTED = spaces.Dict(
    {
        "pos": spaces.Box(-1, 1, (2, 2), np.float32),
        "task": spaces.Tuple([spaces.Discrete(3, start=-1), spaces.Box(0, 255, (3,), np.uint8)]),
    }
)
#: Label → observation space, action space, config.
SETTINGS = {
    "discrete": (
        spaces.Box(-np.inf, np.inf, (3,), np.float32),
        spaces.Discrete(3, start=5),
        {"fcnet_hiddens": [8]},
    ),
    "nested": (
        NESTED,
        spaces.Box(-2, 2, (2,), np.float32),
        {
            "fcnet_hiddens": [6, 4],
            "vf_share_layers": False,
            "free_log_std": True,
            "action_bounds": "affine",
        },
    ),
    "one-hot": (
        spaces.Discrete(7),
        spaces.Discrete(2),
        {"no_final_linear": True, "fcnet_hiddens": [5]},
    ),
}
each_setting = pytest.mark.parametrize("setting", SETTINGS)


def load(directory):
    """Load a policy with a new catalog, as another program would."""
    return loading.load(directory, catalog=make_catalog())


def sample_observations(space):
    space.seed(0)
    return [space.sample() for _ in range(5)]


def build(setting="discrete", *, framework="torch"):
    """Build the policy of one of `SETTINGS`."""
    obs_space, action_space, config = SETTINGS[setting]
    return rlcatalog.build(obs_space, action_space, config, framework, catalog=make_catalog())


def read_manifest(directory):
    return json.loads((directory / "policy.json").read_text())


# --- there and back -------------------------------------------------------------------------------


@pytest.mark.grid
@pytest.mark.parametrize("framework", ["torch", "tf"])
@each_setting
def test_loaded_policy_has_the_same_config_and_spaces(directory, framework, setting):
    policy = build(setting, framework=framework)
    policy.save(directory)

    loaded = load(directory)

    assert loaded.framework == framework
    assert loaded.config == policy.config
    assert loaded.observation_space == policy.observation_space
    assert loaded.action_space == policy.action_space


@pytest.mark.grid
@pytest.mark.parametrize("framework", ["torch", "tf"])
@each_setting
def test_loaded_policy_acts_like_the_saved_one(directory, framework, setting, assert_same_policy):
    policy = build(setting, framework=framework)
    policy.save(directory)

    loaded = load(directory)

    obs = sample_observations(policy.observation_space)
    assert_same_policy(policy, loaded, obs)
    # A new policy acts differently, so that the comparison can fail.
    new_policy = build(setting, framework=framework)
    assert not np.allclose(policy.act(obs).dist_inputs, new_policy.act(obs).dist_inputs, atol=1e-5)


def test_load_takes_a_path_as_text(directory, assert_same_policy):
    policy = rlcatalog.build(env=gym.make("CartPole-v1"), config={"fcnet_hiddens": [8]})
    policy.save(str(directory))

    loaded = rlcatalog.load(str(directory))

    assert_same_policy(policy, loaded, sample_observations(policy.observation_space))


@pytest.mark.grid
@each_setting
@pytest.mark.parametrize(("framework", "other"), [("torch", "tf"), ("tf", "torch")])
def test_manifest_decides_the_framework(
    directory, setting, framework, other, edit_manifest, assert_same_policy
):
    policy = build(setting, framework=framework)
    policy.save(directory)
    edit_manifest(directory, framework=other)

    loaded = load(directory)

    assert loaded.framework == other
    assert_same_policy(policy, loaded, sample_observations(policy.observation_space))


def test_loaded_policy_is_saved_as_the_same_bytes(directory, arrays_file, tmp_path):
    build("nested").save(directory)

    load(directory).save(tmp_path / "again")

    for file in ("policy.json", arrays_file(directory).name):
        assert (tmp_path / "again" / file).read_bytes() == (directory / file).read_bytes()


class Normed(TorchModelV2):
    """A model with buffers, one of them a scalar, beside its parameters."""

    def __init__(self, obs_space, action_space, num_outputs, model_config, name):
        super().__init__(obs_space, action_space, num_outputs, model_config, name)
        self.norm = torch.nn.BatchNorm1d(obs_space.shape[0])
        self.out = torch.nn.Linear(obs_space.shape[0], num_outputs)
        self.scale = torch.nn.Parameter(torch.tensor(2.0))

    def forward(self, input_dict, state, seq_lens):
        self.train(bool(input_dict["is_training"]))
        return self.out(self.norm(input_dict["obs_flat"])) * self.scale, state

    def value_function(self):
        return self.last_output()[:, 0]


def test_loaded_policy_has_buffers_and_scalars(directory, assert_same_policy):
    catalog = make_catalog()
    catalog.register_model("normed", Normed)
    policy = rlcatalog.build(
        THREE_FEATURES, TWO_ACTIONS, {"custom_model": "normed"}, catalog=catalog
    )
    obs = np.float32([[1, 0, -1], [0.5, 0.5, 0]])
    # The model's batch norm learns from this batch, and counts it.
    policy.evaluate({"obs": obs, "raw_action": np.array([[0], [1]])})
    policy.save(directory)

    loaded = loading.load(directory, catalog=catalog)

    assert loaded.model.norm.num_batches_tracked.item() == 1
    torch.testing.assert_close(loaded.model.norm.running_mean, policy.model.norm.running_mean)
    assert_same_policy(policy, loaded, obs)


class Doubled(Preprocessor):
    """Encodes an observation as two copies of it."""

    def _init_shape(self, obs_space, options):
        return (2 * obs_space.shape[0],)

    def transform(self, observation):
        return np.concatenate([observation, observation])


def test_registered_preprocessor_is_found_when_loading(directory, assert_same_policy):
    catalog = make_catalog()
    catalog.register_preprocessor("doubled", Doubled)
    policy = rlcatalog.build(
        THREE_FEATURES, TWO_ACTIONS, {"custom_preprocessor": "doubled"}, catalog=catalog
    )
    policy.save(directory)

    loaded = loading.load(directory, catalog=catalog)

    assert_same_policy(policy, loaded, sample_observations(THREE_FEATURES))


# --- what is written ------------------------------------------------------------------------------


def test_manifest_names_parts_and_versions(directory):
    obs_space = spaces.Dict(
        {"pos": THREE_FEATURES, "task": spaces.Tuple([spaces.Discrete(3), THREE_FEATURES])}
    )
    action_space = spaces.Box(-2, 2, (2,), np.float32)
    policy = rlcatalog.build(obs_space, action_space, catalog=make_catalog())

    policy.save(directory)

    manifest = read_manifest(directory)
    assert manifest["parts"] == {"trunk": "rlcatalog-fcnet/fcnet"}
    assert manifest["action_dists"] == {"action": "rlcatalog-gaussian/diag_gaussian"}
    assert manifest["preprocessors"] == {
        "obs": "rlcatalog-preprocessors/dict",
        "obs['pos']": "rlcatalog-preprocessors/none",
        "obs['task']": "rlcatalog-preprocessors/tuple",
        "obs['task'][0]": "rlcatalog-preprocessors/onehot",
        "obs['task'][1]": "rlcatalog-preprocessors/none",
    }
    packages = ["rlcatalog-fcnet", "rlcatalog-gaussian", "rlcatalog-preprocessors"]
    assert sorted(manifest["versions"]) == packages


def test_weights_file_contains_only_numbers(directory, arrays_file):
    policy = build("nested")
    policy.save(directory)

    # A safetensors file consists of the length of a JSON header in eight bytes, the header, and
    # the numbers. If these fill the file, there is no place for a pickle.
    content = arrays_file(directory).read_bytes()
    header_length = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + header_length])
    ends_of_arrays = [entry["data_offsets"][1] for entry in header.values()]
    assert len(content) == 8 + header_length + max(ends_of_arrays)
    assert set(header) == set(policy.model.get_weights())


def test_manifest_has_changed_keys_and_rules(directory):
    catalog = make_catalog()
    defaults = catalog.schema.defaults()
    # NumPy's values are saved as plain ones.
    changes = {"fcnet_hiddens": np.array([4]), "vf_share_layers": np.bool_(False)}
    policy = rlcatalog.build(THREE_ACTIONS, TWO_ACTIONS, {**defaults, **changes}, catalog=catalog)

    policy.save(directory)

    # `RULES` are config keys that are always saved, because their defaults may change in a later
    # version.
    rules = {key: defaults[key] for key in RULES}
    expected = {"fcnet_hiddens": [4], "vf_share_layers": False, **rules}
    assert read_manifest(directory)["config"] == expected


# --- code in the config ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("key", "value"),
    [
        pytest.param("fcnet_activation", torch.tanh, id="function"),
        pytest.param("fcnet_activation", torch.nn.ReLU, id="module-class"),
        pytest.param("custom_action_dist", Categorical, id="distribution-class"),
    ],
)
def test_save_rejects_code_in_the_config(directory, key, value):
    policy = rlcatalog.build(THREE_ACTIONS, TWO_ACTIONS, {key: value}, catalog=make_catalog())

    with pytest.raises(SavedPolicyError, match="Register the class") as caught:
        policy.save(directory)

    assert repr(key) in str(caught.value)
    assert not directory.exists()


OBS_ROW = np.float32([[0.3, -0.2, 0.9]])


class Activated(torch.nn.Module):
    """A plain module with an activation that its caller chooses."""

    def __init__(self, space, act=torch.nn.Tanh, width=4):
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Linear(space.shape[0], width), act())

    def forward(self, x):
        return self.layers(x)


#: The argument `act` is code and has to be passed to `load`; `width` is saved.
ACTIVATED_ARGUMENTS = {"act": torch.nn.ReLU, "width": 6}


@pytest.fixture(params=["registered", "class"])
def policy_of_activated(request, directory):
    """A saved policy of the module above, which is registered or given as a class."""
    catalog = Catalog()
    model = Activated
    if request.param == "registered":
        catalog.register_model("activated", Activated)
        model = "activated"
    config = {"custom_model_config": ACTIVATED_ARGUMENTS}
    policy = rlcatalog.build(THREE_FEATURES, TWO_ACTIONS, config, model=model, catalog=catalog)
    policy.save(directory)
    return policy


@pytest.mark.parametrize(
    "model",
    [
        pytest.param(None, id="nothing"),
        pytest.param(Activated, id="class"),
        pytest.param(functools.partial(Activated, width=6), id="partial-of-another-argument"),
    ],
)
def test_load_without_code_of_an_argument_is_an_error(policy_of_activated, directory, model):
    with pytest.raises(ConfigError, match="'act' contained code ") as caught:
        rlcatalog.load(directory, model=model, catalog=policy_of_activated.catalog)

    assert "model=functools.partial(" in str(caught.value)
    assert "act=ReLU)" in str(caught.value)


def test_load_takes_code_of_an_argument_as_partial(policy_of_activated, directory):
    model = functools.partial(Activated, act=torch.nn.ReLU)

    loaded = rlcatalog.load(directory, model=model, catalog=policy_of_activated.catalog)

    expected = policy_of_activated.act(OBS_ROW).dist_inputs
    np.testing.assert_array_equal(loaded.act(OBS_ROW).dist_inputs, expected)


class Stacked(torch.nn.Sequential):
    """A plain module with code inside lists and dicts of its arguments."""

    def __init__(self, space, layers=(), last=None):
        width = space.shape[0]
        modules = []
        for activation in layers:
            modules.append(torch.nn.Linear(width, width))
            modules.append(activation())
        for module, options in (last or {}).values():
            modules.append(module(**options))
        super().__init__(*modules)


STACKED_ARGUMENTS = {
    "layers": (torch.nn.ReLU, torch.nn.Tanh),
    "last": {"norm": [torch.nn.LayerNorm, {"normalized_shape": 3}]},
}


@pytest.fixture
def policy_of_stacked(directory):
    """A saved policy of the module above, which is registered."""
    catalog = Catalog()
    catalog.register_model("stacked", Stacked)
    config = {"custom_model_config": STACKED_ARGUMENTS}
    policy = rlcatalog.build(THREE_FEATURES, TWO_ACTIONS, config, model="stacked", catalog=catalog)
    policy.save(directory)
    return policy


def test_load_without_nested_code_error_shows_it(policy_of_stacked, directory):
    with pytest.raises(ConfigError, match="'layers', 'last' contained code ") as caught:
        rlcatalog.load(directory, catalog=policy_of_stacked.catalog)

    assert "layers=[ReLU, Tanh], last={'norm': [LayerNorm" in str(caught.value)


def test_load_rejects_an_argument_that_had_no_code(policy_of_stacked, directory):
    arguments = {**STACKED_ARGUMENTS, "width": 3}

    with pytest.raises(ConfigError, match="'width' had no code ") as caught:
        rlcatalog.load(directory, model=arguments, catalog=policy_of_stacked.catalog)

    assert " 'layers', 'last' did" in str(caught.value)


each_form_of_arguments = pytest.mark.parametrize(
    ("model", "model_without_code"),
    [
        pytest.param(STACKED_ARGUMENTS, None, id="dict"),
        pytest.param(functools.partial(Stacked, **STACKED_ARGUMENTS), Stacked, id="partial"),
    ],
)


@each_form_of_arguments
def test_load_takes_nested_code(policy_of_stacked, directory, model, model_without_code):
    loaded = rlcatalog.load(directory, model=model, catalog=policy_of_stacked.catalog)

    expected = policy_of_stacked.act(OBS_ROW).dist_inputs
    np.testing.assert_array_equal(loaded.act(OBS_ROW).dist_inputs, expected)


@each_form_of_arguments
def test_code_passed_to_load_is_not_saved(policy_of_stacked, directory, model, model_without_code):
    loaded = rlcatalog.load(directory, model=model, catalog=policy_of_stacked.catalog)
    loaded.save(directory)

    with pytest.raises(ConfigError, match="'layers', 'last' contained code"):
        rlcatalog.load(directory, model=model_without_code, catalog=policy_of_stacked.catalog)


@pytest.fixture
def policy_of_plugin(directory, module, entry_point, plugin):
    """A saved policy of a plugin's module with code among its arguments."""
    module(Activated=Activated)
    spec = ModelSpec("net", {"torch": "made_up_parts:Activated"}, "", plain=True)
    catalog = make_catalog(entry_point("acme", plugin(rlcatalog_models=[spec])))
    config = {"custom_model": "acme/net", "custom_model_config": ACTIVATED_ARGUMENTS}
    policy = rlcatalog.build(THREE_FEATURES, TWO_ACTIONS, config, catalog=catalog)
    policy.save(directory)
    return policy


def test_load_without_code_for_a_plugin_error_shows_a_dict(policy_of_plugin, directory):
    with pytest.raises(ConfigError, match="'act' contained code ") as caught:
        rlcatalog.load(directory, catalog=policy_of_plugin.catalog)

    assert "model={'act': ReLU}." in str(caught.value)


def test_load_takes_code_for_a_plugin_as_dict(policy_of_plugin, directory):
    arguments = {"act": torch.nn.ReLU}

    loaded = rlcatalog.load(directory, model=arguments, catalog=policy_of_plugin.catalog)

    expected = policy_of_plugin.act(OBS_ROW).dist_inputs
    np.testing.assert_array_equal(loaded.act(OBS_ROW).dist_inputs, expected)
