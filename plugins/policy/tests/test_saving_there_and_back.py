"""Saved policies: they come back as they were, in either framework; what is written are names and
numbers alone.
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

BOX, TWO = spaces.Box(-1, 1, (3,), np.float32), spaces.Discrete(2)


NESTED = spaces.Dict(
    {
        "pos": spaces.Box(-1, 1, (2, 2), np.float32),
        "task": spaces.Tuple([spaces.Discrete(3, start=-1), spaces.Box(0, 255, (3,), np.uint8)]),
    }
)
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


def catalog_of(*more, names=("fcnet", "categorical", "gaussian", "preprocessors")):
    return Catalog([*(point for point in scan() if point.name in names), *more], environ={})


def observations(space, n=5, seed=0):
    space.seed(seed)
    return [space.sample() for _ in range(n)]


def build(case="discrete", framework="torch", catalog=None, **config):
    obs_space, action_space, own = CASES[case]
    return rlcatalog.build(
        obs_space, action_space, {**own, **config}, framework, catalog=catalog or catalog_of()
    )


# --- there and back -------------------------------------------------------------------------------


@pytest.mark.grid
@pytest.mark.parametrize("framework", ["torch", "tf"])
@pytest.mark.parametrize("case", CASES)
def test_a_policy_comes_back(directory, framework, case, same_policy):
    policy = build(case, framework)
    policy.save(directory)
    back = loading.load(directory, catalog=catalog_of())
    assert back.framework == framework
    assert back.config == policy.config
    assert back.observation_space == policy.observation_space
    assert back.action_space == policy.action_space
    obs = observations(CASES[case][0])
    same_policy(policy, back, obs)
    # A third policy differs: equality above is not an accident.
    assert not np.allclose(
        policy.act(obs).dist_inputs, build(case, framework).act(obs).dist_inputs, atol=1e-5
    )


def test_the_functions_of_the_package(directory, same_policy):
    policy = rlcatalog.build(env=gym.make("CartPole-v1"), config={"fcnet_hiddens": [8]})
    policy.save(str(directory))
    same_policy(policy, rlcatalog.load(str(directory)), observations(policy.observation_space))


@pytest.mark.grid
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("order", [("torch", "tf"), ("tf", "torch")], ids="-".join)
def test_the_weights_file_is_of_no_framework(directory, case, order, arrays, edit, same_policy):
    source, target = build(case, order[0]), build(case, order[1])
    source.save(directory)
    target.model.set_weights(load_file(arrays(directory)))
    same_policy(source, target, observations(CASES[case][0]))
    # The manifest decides which framework a policy comes back in; its weights do not.
    edit(directory, framework=order[1])
    same_policy(source, loading.load(directory, catalog=catalog_of()), observations(CASES[case][0]))


def test_saving_again_writes_the_same_bytes(directory, arrays, tmp_path):
    build("nested").save(directory)
    loading.load(directory, catalog=catalog_of()).save(tmp_path / "again")
    for file in ("policy.json", arrays(directory).name):
        assert (tmp_path / "again" / file).read_bytes() == (directory / file).read_bytes()


def test_a_directory_is_overwritten(directory, same_policy):
    build("discrete").save(directory)
    policy = build("nested")
    policy.save(directory)
    same_policy(policy, loading.load(directory, catalog=catalog_of()), observations(NESTED))


def test_a_trained_policy_comes_back(directory, same_policy):
    policy = build("discrete")
    obs = policy.preprocess(observations(CASES["discrete"][0]))
    found = policy.evaluate({"obs": obs, "raw_action": np.zeros((5, 1), np.int64)})
    (-found.logp.mean() + found.value.square().mean()).backward()
    torch.optim.SGD(policy.model.parameters(), 1.0).step()
    policy.save(directory)
    same_policy(
        policy, loading.load(directory, catalog=catalog_of()), observations(CASES["discrete"][0])
    )


class Normed(TorchModelV2):
    """Buffers, one of them a scalar, beside parameters."""

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


def test_buffers_and_scalars_come_back(directory, same_policy):
    catalog = catalog_of()
    catalog.register_model("normed", Normed)
    obs_space = spaces.Box(-1, 1, (3,), np.float32)
    policy = rlcatalog.build(
        obs_space, spaces.Discrete(2), {"custom_model": "normed"}, catalog=catalog
    )
    obs = observations(obs_space)
    policy.evaluate({"obs": policy.preprocess(obs), "raw_action": np.zeros((5, 1), np.int64)})
    assert policy.model.norm.num_batches_tracked.item() == 1
    policy.save(directory)
    back = loading.load(directory, catalog=catalog)
    assert back.model.norm.num_batches_tracked.item() == 1
    torch.testing.assert_close(back.model.norm.running_mean, policy.model.norm.running_mean)
    same_policy(policy, back, obs)


def test_a_model_registered_in_process_must_be_registered_again(directory, refused):
    catalog = catalog_of()
    catalog.register_model("normed", Normed)
    rlcatalog.build(BOX, TWO, {"custom_model": "normed"}, catalog=catalog).save(directory)
    refused(directory, "Unknown model 'normed'", UnknownNameError)


def test_a_custom_preprocessor_registered_by_name(directory, same_policy):
    class Doubled(Preprocessor):
        def _init_shape(self, obs_space, options):
            return (2 * obs_space.shape[0],)

        def transform(self, observation):
            return np.concatenate([observation, observation])

    catalog = catalog_of()
    catalog.register_preprocessor("doubled", Doubled)
    policy = rlcatalog.build(BOX, TWO, {"custom_preprocessor": "doubled"}, catalog=catalog)
    policy.save(directory)
    same_policy(policy, loading.load(directory, catalog=catalog), observations(BOX))


def test_tensorflow_is_what_tf_policies_hold():
    # The control of the tests above: framework="tf" is not torch under another name.
    policy = build("discrete", "tf")
    assert all(isinstance(variable, tf.Variable) for variable in policy.model.variables())


# --- what is written ------------------------------------------------------------------------------


def test_names_and_numbers_alone(directory, arrays):
    policy = build("nested")
    policy.save(directory)
    assert sorted(path.name for path in directory.iterdir()) == [
        "policy.json",
        arrays(directory).name,
    ]
    manifest = json.loads((directory / "policy.json").read_text())
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
    # A safetensors file: the length of a JSON header, the header, raw numbers. No pickle opcode
    # stands at its start.
    data = arrays(directory).read_bytes()
    length = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + length])
    end = max(entry["data_offsets"][1] for name, entry in header.items() if name != "__metadata__")
    assert len(data) == 8 + length + end
    assert set(header) - {"__metadata__"} == set(policy.model.get_weights())


def test_given_config_and_rules_are_written(directory):
    catalog = catalog_of()
    filled = {
        **catalog.schema.defaults(),
        "fcnet_hiddens": np.array([4]),
        "vf_share_layers": np.bool_(False),
    }
    rlcatalog.build(spaces.Discrete(3), spaces.Discrete(2), filled, catalog=catalog).save(directory)
    manifest = json.loads((directory / "policy.json").read_text())
    rules = {key: catalog.schema.defaults()[key] for key in RULES}
    assert manifest["config"] == {"fcnet_hiddens": [4], "vf_share_layers": False, **rules}


@pytest.mark.parametrize(
    ("config", "named"),
    [
        ({"fcnet_activation": torch.tanh}, "'fcnet_activation'"),
        ({"fcnet_activation": torch.nn.ReLU}, "'fcnet_activation'"),
        ({"custom_action_dist": Categorical}, "'custom_action_dist'"),
    ],
)
def test_classes_and_callables_cannot_be_written(directory, config, named):
    policy = rlcatalog.build(spaces.Discrete(3), spaces.Discrete(2), config, catalog=catalog_of())
    with pytest.raises(SavedPolicyError) as caught:
        policy.save(directory)
    assert named in str(caught.value)
    assert "Register the class" in str(caught.value)
    assert not directory.exists()


def test_a_model_class_without_a_name_is_saved_and_loaded_with_its_code(directory):
    config = {"custom_model": FullyConnectedNetwork, "fcnet_hiddens": [4]}
    policy = rlcatalog.build(spaces.Discrete(3), spaces.Discrete(2), config, catalog=catalog_of())
    policy.save(directory)
    assert (
        json.loads((directory / "policy.json").read_text())["config"]["custom_model"]
        == "FullyConnectedNetwork"
    )
    with pytest.raises(
        UnknownNameError, match=r"Pass its code: rlcatalog\.load\(.*model=FullyConnectedNetwork\)"
    ):
        rlcatalog.load(directory, catalog=catalog_of())
    loaded = rlcatalog.load(directory, model=FullyConnectedNetwork, catalog=catalog_of())
    for name, weight in policy.model.get_weights().items():
        np.testing.assert_array_equal(loaded.model.get_weights()[name], weight)


class Activated(torch.nn.Module):
    """A plain module with an activation that its caller chooses."""

    def __init__(self, space, act=torch.nn.Tanh, width=4):
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Linear(space.shape[0], width), act())

    def forward(self, x):
        return self.layers(x)


@pytest.mark.parametrize("registered", [False, True])
def test_code_among_a_models_arguments_is_brought_with_the_model(directory, registered):
    catalog, own = rlcatalog.Catalog(), {"custom_model_config": {"act": torch.nn.ReLU, "width": 6}}
    if registered:
        catalog.register_model("activated", Activated)
    model = "activated" if registered else Activated
    policy = rlcatalog.build(
        spaces.Box(-1, 1, (3,)), spaces.Discrete(2), own, model=model, catalog=catalog
    )
    policy.save(directory)
    obs = np.float32([[0.3, -0.2, 0.9]])
    for brought in (None, Activated, functools.partial(Activated, width=6)):
        with pytest.raises(
            ConfigError, match=r"'act' contained code .*model=functools.partial\(\w+, act=ReLU\)"
        ):
            rlcatalog.load(directory, model=brought, catalog=catalog)
    loaded = rlcatalog.load(
        directory, model=functools.partial(Activated, act=torch.nn.ReLU), catalog=catalog
    )
    np.testing.assert_array_equal(loaded.act(obs).dist_inputs, policy.act(obs).dist_inputs)


class Stacked(torch.nn.Sequential):
    """A plain module with code inside its arguments."""

    def __init__(self, space, layers=(), last=None):
        width = space.shape[0]
        parts = [part for act in layers for part in (torch.nn.Linear(width, width), act())]
        super().__init__(*parts, *(module(**options) for module, options in (last or {}).values()))


def test_code_inside_of_arguments_is_brought_too(directory):
    catalog, nn = rlcatalog.Catalog(), torch.nn
    catalog.register_model("stacked", Stacked)
    code = {"layers": (nn.ReLU, nn.Tanh), "last": {"norm": [nn.LayerNorm, {"normalized_shape": 3}]}}
    policy = rlcatalog.build(
        spaces.Box(-1, 1, (3,)),
        spaces.Discrete(2),
        {"custom_model_config": code},
        model="stacked",
        catalog=catalog,
    )
    policy.save(directory)
    obs = np.float32([[0.3, -0.2, 0.9]])
    expected = policy.act(obs).dist_inputs
    with pytest.raises(
        ConfigError,
        match=r"'layers', 'last' contained code .*layers=\[ReLU, Tanh\], last={'norm': \[LayerNorm",
    ):
        rlcatalog.load(directory, catalog=catalog)
    with pytest.raises(ConfigError, match=r"'width' had no code .* 'layers', 'last' did"):
        rlcatalog.load(directory, model={**code, "width": 3}, catalog=catalog)
    for model in (code, functools.partial(Stacked, **code)):
        loaded = rlcatalog.load(directory, model=model, catalog=catalog)
        np.testing.assert_array_equal(loaded.act(obs).dist_inputs, expected)
        loaded.save(directory)  # what was brought is asked for again
        with pytest.raises(ConfigError, match="'layers', 'last' contained code"):
            rlcatalog.load(directory, model=None if model is code else Stacked, catalog=catalog)


def test_code_for_a_models_package_is_brought_as_a_dictionary(
    directory, module, entry_point, plugin
):
    module(Activated=Activated)
    net = ModelSpec("net", {"torch": "made_up_parts:Activated"}, "", plain=True)
    catalog = catalog_of(entry_point("acme", plugin(rlcatalog_models=[net])))
    config = {"custom_model": "acme/net", "custom_model_config": {"act": torch.nn.ReLU, "width": 6}}
    policy = rlcatalog.build(spaces.Box(-1, 1, (3,)), spaces.Discrete(2), config, catalog=catalog)
    policy.save(directory)
    with pytest.raises(ConfigError, match=r"'act' contained code .*model={'act': ReLU}\."):
        rlcatalog.load(directory, catalog=catalog)
    loaded = rlcatalog.load(directory, model={"act": torch.nn.ReLU}, catalog=catalog)
    obs = np.float32([[0.3, -0.2, 0.9]])
    np.testing.assert_array_equal(loaded.act(obs).dist_inputs, policy.act(obs).dist_inputs)


# No custom class takes the arguments.
@pytest.mark.filterwarnings("ignore::rlcatalog.errors.UnreadKeysWarning")
def test_a_config_that_json_would_change_is_refused_or_comes_back(directory):
    policy = rlcatalog.build(
        spaces.Discrete(3),
        spaces.Discrete(2),
        {"custom_model_config": {"table": {1: 2}}},
        catalog=catalog_of(),
    )
    try:
        policy.save(directory)
    except SavedPolicyError:
        return
    assert loading.load(directory, catalog=catalog_of()).config["custom_model_config"] == {
        "table": {1: 2}
    }


@pytest.mark.parametrize(("rule", "bound"), [("affine", 2e7), ("clip", 2.0)])
def test_rule_for_actions_of_an_earlier_format_stays(tmp_path, rule, bound):
    """Format version 2 left the default out, which was "clip", and scaled to all finite bounds."""
    space = spaces.Box(-bound, bound, (1,), np.float32)
    kept = {"affine": "affine_all", "clip": "clip"}[rule]
    policy = rlcatalog.build(space, space, {"action_bounds": kept, "fcnet_hiddens": [4]})
    policy.save(tmp_path)
    path = tmp_path / "policy.json"
    data = json.loads(path.read_text()) | {"format_version": 2}
    data["config"] = {"fcnet_hiddens": [4]}
    if rule == "affine":
        data["config"]["action_bounds"] = rule
    path.write_text(json.dumps(data | {"checksum": checksum_of(data)}))
    loaded = rlcatalog.load(tmp_path)
    assert loaded.config["action_bounds"] == kept
    raw = np.array([[-0.5], [0.25], [3]], np.float32)
    np.testing.assert_array_equal(loaded.adapt(raw), policy.adapt(raw))
