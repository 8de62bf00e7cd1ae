"""Saving and loading a policy: it acts as before, in either framework; the files contain names and
numbers but no code.
"""

from __future__ import annotations

import functools
import json

import gymnasium as gym
import numpy as np
import pytest
import tensorflow as tf
import torch
from gymnasium import spaces
from safetensors.numpy import load_file

import rlcatalog
from rlcatalog import Catalog, ModelSpec, Preprocessor
from rlcatalog.config import RULES
from rlcatalog.errors import ConfigError, SavedPolicyError, UnknownNameError
from rlcatalog.plugins.discovery import scan
from rlcatalog_policy import checksum_of, loading
from rlcatalog_torch import Categorical, FullyConnectedNetwork, TorchModelV2

BOX = spaces.Box(-1, 1, (3,), np.float32)
TWO = spaces.Discrete(2)
THREE = spaces.Discrete(3)
NESTED = spaces.Dict(
    {
        "pos": spaces.Box(-1, 1, (2, 2), np.float32),
        "task": spaces.Tuple([spaces.Discrete(3, start=-1), spaces.Box(0, 255, (3,), np.uint8)]),
    }
)
#: Label → observation space, action space, config.
CASES = {
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


def make_catalog(*more_points):
    """Return a catalog of four installed plugins and these entry points."""
    names = ("fcnet", "categorical", "gaussian", "preprocessors")
    points = [point for point in scan() if point.name in names]
    return Catalog([*points, *more_points], environ={})


def load(directory):
    """Load a policy with a new catalog, as another program would."""
    return loading.load(directory, catalog=make_catalog())


def sample_observations(space):
    space.seed(0)
    return [space.sample() for _ in range(5)]


def build(case="discrete", *, framework="torch"):
    """Build the policy of one of `CASES`."""
    obs_space, action_space, config = CASES[case]
    return rlcatalog.build(obs_space, action_space, config, framework, catalog=make_catalog())


def read_manifest(directory):
    return json.loads((directory / "policy.json").read_text())


# --- there and back -------------------------------------------------------------------------------


@pytest.mark.grid
@pytest.mark.parametrize("framework", ["torch", "tf"])
@pytest.mark.parametrize("case", CASES)
def test_loaded_policy_has_the_same_config_and_spaces(directory, framework, case):
    policy = build(case, framework=framework)
    policy.save(directory)

    loaded = load(directory)

    assert loaded.framework == framework
    assert loaded.config == policy.config
    assert loaded.observation_space == policy.observation_space
    assert loaded.action_space == policy.action_space


@pytest.mark.grid
@pytest.mark.parametrize("framework", ["torch", "tf"])
@pytest.mark.parametrize("case", CASES)
def test_loaded_policy_acts_like_the_saved_one(directory, framework, case, same_policy):
    policy = build(case, framework=framework)
    policy.save(directory)

    loaded = load(directory)

    obs = sample_observations(policy.observation_space)
    same_policy(policy, loaded, obs)
    # A new policy acts differently, so that the comparison can fail.
    new_policy = build(case, framework=framework)
    assert not np.allclose(policy.act(obs).dist_inputs, new_policy.act(obs).dist_inputs, atol=1e-5)


def test_load_takes_a_path_as_text(directory, same_policy):
    policy = rlcatalog.build(env=gym.make("CartPole-v1"), config={"fcnet_hiddens": [8]})
    policy.save(str(directory))

    loaded = rlcatalog.load(str(directory))

    same_policy(policy, loaded, sample_observations(policy.observation_space))


other_framework = pytest.mark.parametrize(
    ("framework", "other"), [("torch", "tf"), ("tf", "torch")]
)


@pytest.mark.grid
@pytest.mark.parametrize("case", CASES)
@other_framework
def test_weights_file_fits_the_other_framework(
    directory, case, framework, other, arrays, same_policy
):
    policy = build(case, framework=framework)
    policy.save(directory)

    in_other_framework = build(case, framework=other)
    in_other_framework.model.set_weights(load_file(arrays(directory)))

    same_policy(policy, in_other_framework, sample_observations(policy.observation_space))


@pytest.mark.grid
@pytest.mark.parametrize("case", CASES)
@other_framework
def test_manifest_decides_the_framework(directory, case, framework, other, edit, same_policy):
    policy = build(case, framework=framework)
    policy.save(directory)
    edit(directory, framework=other)

    loaded = load(directory)

    assert loaded.framework == other
    same_policy(policy, loaded, sample_observations(policy.observation_space))


def test_policy_of_tf_has_tensorflow_variables():
    # Otherwise the two frameworks of the tests above might be one.
    policy = build("discrete", framework="tf")

    assert all(isinstance(variable, tf.Variable) for variable in policy.model.variables())


def test_loaded_policy_is_saved_as_the_same_bytes(directory, arrays, tmp_path):
    build("nested").save(directory)

    load(directory).save(tmp_path / "again")

    for file in ("policy.json", arrays(directory).name):
        assert (tmp_path / "again" / file).read_bytes() == (directory / file).read_bytes()


def test_save_overwrites_a_saved_policy(directory, same_policy):
    build("discrete").save(directory)
    policy = build("nested")

    policy.save(directory)

    same_policy(policy, load(directory), sample_observations(NESTED))


def test_loaded_policy_acts_like_a_trained_one(directory, same_policy):
    policy = build("discrete")
    obs = sample_observations(policy.observation_space)
    batch = {"obs": policy.preprocess(obs), "raw_action": np.zeros((5, 1), np.int64)}
    evaluation = policy.evaluate(batch)
    (-evaluation.logp.mean() + evaluation.value.square().mean()).backward()
    torch.optim.SGD(policy.model.parameters(), 1.0).step()
    policy.save(directory)

    loaded = load(directory)

    same_policy(policy, loaded, obs)


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


def test_loaded_policy_has_buffers_and_scalars(directory, same_policy):
    catalog = make_catalog()
    catalog.register_model("normed", Normed)
    policy = rlcatalog.build(BOX, TWO, {"custom_model": "normed"}, catalog=catalog)
    obs = sample_observations(BOX)
    batch = {"obs": policy.preprocess(obs), "raw_action": np.zeros((5, 1), np.int64)}
    policy.evaluate(batch)
    assert policy.model.norm.num_batches_tracked.item() == 1
    policy.save(directory)

    loaded = loading.load(directory, catalog=catalog)

    assert loaded.model.norm.num_batches_tracked.item() == 1
    torch.testing.assert_close(loaded.model.norm.running_mean, policy.model.norm.running_mean)
    same_policy(policy, loaded, obs)


def test_registered_model_has_to_be_registered_before_loading(directory, refused):
    catalog = make_catalog()
    catalog.register_model("normed", Normed)
    rlcatalog.build(BOX, TWO, {"custom_model": "normed"}, catalog=catalog).save(directory)

    refused(directory, "Unknown model 'normed'", UnknownNameError)


class Doubled(Preprocessor):
    """Encodes an observation as two copies of it."""

    def _init_shape(self, obs_space, options):
        return (2 * obs_space.shape[0],)

    def transform(self, observation):
        return np.concatenate([observation, observation])


def test_registered_preprocessor_is_found_when_loading(directory, same_policy):
    catalog = make_catalog()
    catalog.register_preprocessor("doubled", Doubled)
    policy = rlcatalog.build(BOX, TWO, {"custom_preprocessor": "doubled"}, catalog=catalog)
    policy.save(directory)

    loaded = loading.load(directory, catalog=catalog)

    same_policy(policy, loaded, sample_observations(BOX))


# --- what is written ------------------------------------------------------------------------------


def test_saved_policy_has_a_manifest_and_a_weights_file(directory, arrays):
    build("nested").save(directory)

    files = sorted(path.name for path in directory.iterdir())
    assert files == ["policy.json", arrays(directory).name]


def test_manifest_names_parts_and_versions(directory):
    build("nested").save(directory)

    manifest = read_manifest(directory)
    assert manifest["format"] == "rlcatalog-policy"
    assert manifest["parts"] == {"trunk": "rlcatalog-fcnet/fcnet"}
    assert manifest["action_dists"] == {"action": "rlcatalog-gaussian/diag_gaussian"}
    assert manifest["preprocessors"] == {
        "obs": "rlcatalog-preprocessors/dict",
        "obs['pos']": "rlcatalog-preprocessors/none",
        "obs['task']": "rlcatalog-preprocessors/tuple",
        "obs['task'][0]": "rlcatalog-preprocessors/onehot",
        "obs['task'][1]": "rlcatalog-preprocessors/none",
    }
    assert set(manifest["versions"]) == {
        "rlcatalog-fcnet",
        "rlcatalog-gaussian",
        "rlcatalog-preprocessors",
    }


def test_weights_file_contains_only_numbers(directory, arrays):
    policy = build("nested")
    policy.save(directory)

    # A safetensors file has the length of a JSON header in eight bytes, the header, and the
    # numbers. So there is no place for a pickle.
    content = arrays(directory).read_bytes()
    header_length = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + header_length])
    header.pop("__metadata__", None)
    length_of_numbers = max(entry["data_offsets"][1] for entry in header.values())
    assert len(content) == 8 + header_length + length_of_numbers
    assert set(header) == set(policy.model.get_weights())


def test_manifest_has_changed_keys_and_rules(directory):
    catalog = make_catalog()
    changes = {"fcnet_hiddens": np.array([4]), "vf_share_layers": np.bool_(False)}
    config = {**catalog.schema.defaults(), **changes}

    rlcatalog.build(THREE, TWO, config, catalog=catalog).save(directory)

    # The values of `RULES` are always written, because a later version may have other defaults.
    rules = {key: catalog.schema.defaults()[key] for key in RULES}
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
    policy = rlcatalog.build(THREE, TWO, {key: value}, catalog=make_catalog())

    with pytest.raises(SavedPolicyError, match="Register the class") as caught:
        policy.save(directory)

    assert repr(key) in str(caught.value)
    assert not directory.exists()


@pytest.fixture
def policy_of_model_class(directory):
    """A saved policy whose config contains a model class that is not registered."""
    config = {"custom_model": FullyConnectedNetwork, "fcnet_hiddens": [4]}
    policy = rlcatalog.build(THREE, TWO, config, catalog=make_catalog())
    policy.save(directory)
    return policy


def test_model_class_is_saved_by_its_name(policy_of_model_class, directory):
    assert read_manifest(directory)["config"]["custom_model"] == "FullyConnectedNetwork"


def test_load_without_the_model_class_says_how_to_pass_it(policy_of_model_class, directory):
    with pytest.raises(UnknownNameError, match=r"Pass its code: rlcatalog\.load\(") as caught:
        rlcatalog.load(directory, catalog=make_catalog())

    assert "model=FullyConnectedNetwork)" in str(caught.value)


def test_load_takes_the_model_class(policy_of_model_class, directory):
    loaded = rlcatalog.load(directory, model=FullyConnectedNetwork, catalog=make_catalog())

    weights = loaded.model.get_weights()
    for name, array in policy_of_model_class.model.get_weights().items():
        np.testing.assert_array_equal(weights[name], array)


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
    policy = rlcatalog.build(BOX, TWO, config, model=model, catalog=catalog)
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
    policy = rlcatalog.build(BOX, TWO, config, model="stacked", catalog=catalog)
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
    policy = rlcatalog.build(BOX, TWO, config, catalog=catalog)
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


# --- values that JSON cannot represent ------------------------------------------------------------


@pytest.mark.filterwarnings("ignore::rlcatalog.errors.UnreadKeysWarning")
def test_config_with_integer_keys_is_rejected_or_restored(directory):
    arguments = {"table": {1: 2}}  # JSON has only text as keys
    config = {"custom_model_config": arguments}
    policy = rlcatalog.build(THREE, TWO, config, catalog=make_catalog())

    try:
        policy.save(directory)
    except SavedPolicyError:
        return
    assert load(directory).config["custom_model_config"] == arguments


# --- earlier formats ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("config_of_version_2", "action_bounds", "bound"),
    [
        # Version 2 did not write the default, which was "clip".
        pytest.param({"fcnet_hiddens": [4]}, "clip", 2.0, id="clip"),
        # Its "affine" scaled to all finite bounds, however large.
        pytest.param(
            {"fcnet_hiddens": [4], "action_bounds": "affine"}, "affine_all", 2e7, id="affine"
        ),
    ],
)
def test_version_2_keeps_its_rule_for_actions(directory, config_of_version_2, action_bounds, bound):
    space = spaces.Box(-bound, bound, (1,), np.float32)
    config = {"action_bounds": action_bounds, "fcnet_hiddens": [4]}
    policy = rlcatalog.build(space, space, config)
    policy.save(directory)
    manifest = read_manifest(directory)
    manifest |= {"format_version": 2, "config": config_of_version_2}
    manifest["checksum"] = checksum_of(manifest)
    (directory / "policy.json").write_text(json.dumps(manifest))

    loaded = rlcatalog.load(directory)

    assert loaded.config["action_bounds"] == action_bounds
    raw = np.array([[-0.5], [0.25], [3]], np.float32)
    np.testing.assert_array_equal(loaded.adapt(raw), policy.adapt(raw))
