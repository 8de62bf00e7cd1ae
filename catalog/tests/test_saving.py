"""Saved policies: names and numbers, refused by name when they are truncated, foreign or cannot be restored here."""

from __future__ import annotations

import json
import sys
from types import ModuleType, SimpleNamespace

import gymnasium as gym
import numpy as np
import pytest
import tensorflow as tf
import torch
from gymnasium import spaces
from safetensors.numpy import load_file

import rlcatalog
from rlcatalog import ActionDistSpec, Catalog, FilterSpec, Match, ModelSpec, Preprocessor, PreprocessorSpec, Rank
from rlcatalog import saving as saved
from rlcatalog.discovery import scan
from rlcatalog.errors import (
    CatalogError,
    ConfigError,
    MissingPluginError,
    SavedPolicyError,
    UnknownNameError,
)
from rlcatalog.spacejson import space_from_json, space_to_json
from rlcatalog.spaces import Repeated, Simplex
from rlcatalog.torch import Categorical, FullyConnectedNetwork, TorchModelV2
from rlcatalog_preprocessors.codecs import NoPreprocessor

NESTED = spaces.Dict(
    {
        "pos": spaces.Box(-1, 1, (2, 2), np.float32),
        "task": spaces.Tuple([spaces.Discrete(3, start=-1), spaces.Box(0, 255, (3,), np.uint8)]),
    }
)
CASES = {
    "discrete": (spaces.Box(-np.inf, np.inf, (3,), np.float32), spaces.Discrete(3, start=5), {"fcnet_hiddens": [8]}),
    "nested": (NESTED, spaces.Box(-2, 2, (2,), np.float32),
               {"fcnet_hiddens": [6, 4], "vf_share_layers": False, "free_log_std": True, "action_bounds": "affine"}),
    "one-hot": (spaces.Discrete(7), spaces.Discrete(2), {"no_final_linear": True, "fcnet_hiddens": [5]}),
}  # fmt: skip


def catalog_of(*more, names=("fcnet", "categorical", "gaussian", "preprocessors")):
    return Catalog([*(point for point in scan() if point.name in names), *more], environ={})


def observations(space, n=5, seed=0):
    space.seed(seed)
    return [space.sample() for _ in range(n)]


def build(case="discrete", framework="torch", catalog=None, **config):
    obs_space, action_space, own = CASES[case]
    return (catalog or catalog_of()).build(obs_space, action_space, {**own, **config}, framework)


def same_policy(a, b, obs):
    first, second = a.act(obs, explore=False), b.act(obs, explore=False)
    np.testing.assert_allclose(first.dist_inputs, second.dist_inputs, rtol=0, atol=1e-5)
    np.testing.assert_allclose(first.value, second.value, rtol=0, atol=1e-5)
    np.testing.assert_array_equal(first.raw_action.shape, second.raw_action.shape)
    np.testing.assert_allclose(first.raw_action, second.raw_action, atol=1e-5)
    np.testing.assert_allclose(first.action, second.action, atol=1e-5)


def edit(directory, **changes):
    path = directory / "policy.json"
    manifest = json.loads(path.read_text())
    path.write_text(json.dumps({**manifest, **changes}))
    return manifest


@pytest.fixture
def module(monkeypatch):
    """An importable module for classes that declarations name: `module(Net=cls)`."""

    def make(**members):
        made = ModuleType("made_up_parts")
        vars(made).update(members)
        monkeypatch.setitem(sys.modules, "made_up_parts", made)

    return make


@pytest.fixture
def directory(tmp_path):
    return tmp_path / "policy"


# --- there and back --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("framework", ["torch", "tf"])
@pytest.mark.parametrize("case", CASES)
def test_a_policy_comes_back(directory, framework, case):
    policy = build(case, framework)
    policy.save(directory)
    back = saved.load(catalog_of(), directory)
    assert back.framework == framework
    assert back.config == policy.config
    assert back.observation_space == policy.observation_space
    assert back.action_space == policy.action_space
    obs = observations(CASES[case][0])
    same_policy(policy, back, obs)
    # A third policy differs: equality above is not an accident.
    assert not np.allclose(policy.act(obs).dist_inputs, build(case, framework).act(obs).dist_inputs, atol=1e-5)


def test_the_functions_of_the_package(directory):
    policy = rlcatalog.build(env=gym.make("CartPole-v1"), config={"fcnet_hiddens": [8]})
    policy.save(str(directory))
    same_policy(policy, rlcatalog.load(str(directory)), observations(policy.observation_space))


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("order", [("torch", "tf"), ("tf", "torch")], ids="-".join)
def test_the_weights_file_is_of_no_framework(directory, case, order):
    source, target = build(case, order[0]), build(case, order[1])
    source.save(directory)
    target.model.set_weights(load_file(directory / "weights.safetensors"))
    same_policy(source, target, observations(CASES[case][0]))
    # The manifest decides which framework a policy comes back in; its weights do not.
    edit(directory, framework=order[1])
    same_policy(source, saved.load(catalog_of(), directory), observations(CASES[case][0]))


def test_saving_again_writes_the_same_bytes(directory, tmp_path):
    build("nested").save(directory)
    saved.load(catalog_of(), directory).save(tmp_path / "again")
    for file in ("policy.json", "weights.safetensors"):
        assert (tmp_path / "again" / file).read_bytes() == (directory / file).read_bytes()


def test_a_directory_is_overwritten(directory):
    build("discrete").save(directory)
    policy = build("nested")
    policy.save(directory)
    same_policy(policy, saved.load(catalog_of(), directory), observations(NESTED))


def test_a_trained_policy_comes_back(directory):
    policy = build("discrete")
    obs = policy.preprocess(observations(CASES["discrete"][0]))
    found = policy.evaluate({"obs": obs, "raw_action": np.zeros((5, 1), np.int64)})
    (-found.logp.mean() + found.value.square().mean()).backward()
    torch.optim.SGD(policy.model.parameters(), 1.0).step()
    policy.save(directory)
    same_policy(policy, saved.load(catalog_of(), directory), observations(CASES["discrete"][0]))


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


def test_buffers_and_scalars_come_back(directory):
    catalog = catalog_of()
    catalog.register_model("normed", Normed)
    obs_space = spaces.Box(-1, 1, (3,), np.float32)
    policy = catalog.build(obs_space, spaces.Discrete(2), {"custom_model": "normed"})
    obs = observations(obs_space)
    policy.evaluate({"obs": policy.preprocess(obs), "raw_action": np.zeros((5, 1), np.int64)})
    assert policy.model.norm.num_batches_tracked.item() == 1
    policy.save(directory)
    back = saved.load(catalog, directory)
    assert back.model.norm.num_batches_tracked.item() == 1
    torch.testing.assert_close(back.model.norm.running_mean, policy.model.norm.running_mean)
    same_policy(policy, back, obs)


# --- what is written -------------------------------------------------------------------------------------------------


def test_names_and_numbers_alone(directory):
    policy = build("nested")
    policy.save(directory)
    assert sorted(path.name for path in directory.iterdir()) == ["policy.json", "weights.safetensors"]
    manifest = json.loads((directory / "policy.json").read_text())
    assert manifest["format"] == "rlcatalog-policy"
    assert manifest["parts"] == {"trunk": "rlcatalog-fcnet/fcnet", "action_dist": "rlcatalog-gaussian/diag_gaussian"}
    assert manifest["preprocessors"] == {
        "obs": "rlcatalog-preprocessors/dict",
        "obs['pos']": "rlcatalog-preprocessors/none",
        "obs['task']": "rlcatalog-preprocessors/tuple",
        "obs['task'][0]": "rlcatalog-preprocessors/onehot",
        "obs['task'][1]": "rlcatalog-preprocessors/none",
    }
    assert set(manifest["versions"]) == {"rlcatalog-fcnet", "rlcatalog-gaussian", "rlcatalog-preprocessors"}
    # A safetensors file: the length of a JSON header, the header, raw numbers. No pickle opcode stands at its start.
    data = (directory / "weights.safetensors").read_bytes()
    length = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + length])
    end = max(entry["data_offsets"][1] for name, entry in header.items() if name != "__metadata__")
    assert len(data) == 8 + length + end
    assert set(header) - {"__metadata__"} == set(policy.model.get_weights())


def test_only_the_config_that_was_given_is_written(directory):
    filled = {**rlcatalog.MODEL_DEFAULTS, "fcnet_hiddens": np.array([4]), "vf_share_layers": np.bool_(False)}
    catalog_of().build(spaces.Discrete(3), spaces.Discrete(2), filled).save(directory)
    manifest = json.loads((directory / "policy.json").read_text())
    assert manifest["config"] == {"fcnet_hiddens": [4], "vf_share_layers": False}


@pytest.mark.parametrize(
    ("config", "named"),
    [
        ({"fcnet_activation": torch.tanh}, "'fcnet_activation'"),
        ({"fcnet_activation": torch.nn.ReLU}, "'fcnet_activation'"),
        ({"custom_model": FullyConnectedNetwork}, "'custom_model'"),
        ({"custom_action_dist": Categorical}, "'custom_action_dist'"),
        ({"custom_model_config": {"a": [1, {"b": len}]}}, "custom_model_config['a'][1]['b']"),
    ],
)
def test_classes_and_callables_cannot_be_written(directory, config, named):
    policy = catalog_of().build(spaces.Discrete(3), spaces.Discrete(2), config)
    with pytest.raises(SavedPolicyError) as caught:
        policy.save(directory)
    assert named in str(caught.value)
    assert "Register the class" in str(caught.value)
    assert not directory.exists()


def test_a_config_that_json_would_change_is_refused_or_comes_back(directory):
    policy = catalog_of().build(spaces.Discrete(3), spaces.Discrete(2), {"custom_model_config": {"table": {1: 2}}})
    try:
        policy.save(directory)
    except SavedPolicyError:
        return
    assert saved.load(catalog_of(), directory).config["custom_model_config"] == {"table": {1: 2}}


# --- names are pinned ------------------------------------------------------------------------------------------------


def anything(request):
    return Match(Rank.SPECIFIC, "takes anything")


class Impostor(FullyConnectedNetwork):
    """What a lookup made today would choose."""


class ImpostorDist(Categorical):
    """The same, for actions."""


class ImpostorCodec(NoPreprocessor):
    """The same, for observations."""


MODEL = {"torch": "made_up_parts:Impostor"}
DIST = {"torch": "made_up_parts:ImpostorDist"}
CODEC = {"numpy": "made_up_parts:ImpostorCodec"}
FCNET, CATEGORICAL = "rlcatalog-fcnet/fcnet", "rlcatalog-categorical/categorical"
NONE = "rlcatalog-preprocessors/none"


@pytest.fixture
def impostors(module, entry_point, plugin):
    """Entry point of a plugin that would win every lookup: by rank, or under the names of others."""
    module(Impostor=Impostor, ImpostorDist=ImpostorDist, ImpostorCodec=ImpostorCodec)

    def size(action, config):
        return action.n

    def make(override):
        names = ("fcnet", "categorical", "none") if override else ("better", "better", "better")
        victims = (FCNET, CATEGORICAL, NONE) if override else (None, None, None)
        return entry_point(
            "impostors",
            plugin(
                rlcatalog_models=[ModelSpec(names[0], MODEL, "", match=anything, overrides=victims[0])],
                rlcatalog_action_dists=[
                    ActionDistSpec(names[1], DIST, "", match=anything, overrides=victims[1], size=size)
                ],
                rlcatalog_preprocessors=[
                    PreprocessorSpec(names[2], CODEC, "", match=lambda r: anything(r) if r.obs.kind == "box" else None,
                                     overrides=victims[2])
                ],
            ),
        )  # fmt: skip

    return make


BOX, TWO = spaces.Box(-1, 1, (3,), np.float32), spaces.Discrete(2)


@pytest.mark.parametrize("override", [False, True], ids=["better rank", "override"])
def test_loading_never_chooses_anew(directory, impostors, override):
    policy = catalog_of().build(BOX, TWO, {"fcnet_hiddens": [4]})
    policy.save(directory)
    today = catalog_of(impostors(override))
    chosen = today.build(BOX, TWO, {"fcnet_hiddens": [4]})
    assert (type(chosen.model), chosen.dist_class, type(chosen.preprocessor)) == (Impostor, ImpostorDist, ImpostorCodec)
    back = saved.load(today, directory)
    assert type(back.model) is FullyConnectedNetwork
    assert back.dist_class is Categorical
    assert type(back.preprocessor) is NoPreprocessor
    same_policy(policy, back, observations(BOX))


@pytest.mark.parametrize("override", [False, True], ids=["better rank", "override"])
def test_codecs_of_children_are_pinned(directory, impostors, override):
    nested = spaces.Tuple([spaces.Dict({"a": BOX}), BOX])
    policy = catalog_of().build(nested, TWO, {"fcnet_hiddens": [4]})
    policy.save(directory)
    back = saved.load(catalog_of(impostors(override)), directory)
    assert type(back.preprocessor.children[1]) is NoPreprocessor
    assert type(back.preprocessor.children[0].children[0]) is NoPreprocessor
    same_policy(policy, back, observations(nested))


@pytest.mark.parametrize(
    ("config", "found"),
    [
        ({"custom_model": "fcnet"}, lambda policy: type(policy.model) is FullyConnectedNetwork),
        ({"custom_action_dist": "categorical"}, lambda policy: policy.dist_class is Categorical),
        ({"custom_preprocessor": "none"}, lambda policy: type(policy.preprocessor) is NoPreprocessor),
    ],
    ids=["model", "distribution", "preprocessor"],
)
@pytest.mark.filterwarnings("ignore:custom_preprocessor is deprecated:DeprecationWarning")
def test_a_name_in_the_config_means_what_it_meant(directory, impostors, config, found):
    policy = catalog_of().build(BOX, TWO, config)
    assert found(policy)
    policy.save(directory)
    assert found(saved.load(catalog_of(impostors(True)), directory))


def test_a_class_registered_under_a_plugins_name_does_not_slip_in(directory):
    policy = catalog_of().build(BOX, TWO, {})
    policy.save(directory)
    today = catalog_of()
    today.register_model("fcnet", Impostor, override=True)
    assert type(saved.load(today, directory).model) is FullyConnectedNetwork


def test_a_slot_that_was_empty_stays_empty(directory, module, entry_point, plugin):
    catalog_of().build(BOX, TWO, {}).save(directory)
    module(Memory=Impostor)
    memory = ModelSpec("memory", {"torch": "made_up_parts:Memory"}, "", match=anything, slot="memory")
    today = catalog_of(entry_point("memories", plugin(rlcatalog_models=[memory])))
    assert today.resolve(BOX, TWO).choices["memory"].component is not None
    assert saved.load(today, directory).resolution.choices["memory"].component is None


# --- filters ---------------------------------------------------------------------------------------------------------


class Counting(rlcatalog.Filter):
    """Subtracts the mean of what it has seen."""

    factor = 1.0

    def __init__(self, preprocessor, options):
        super().__init__(preprocessor, options)
        self.n, self.total = 0, np.zeros(preprocessor.shape)

    def __call__(self, encoded, *, update=False):
        if update:
            self.n, self.total = self.n + len(encoded), self.total + encoded.sum(axis=0)
        return (encoded - self.factor * self.total / max(self.n, 1)).astype(np.float32)

    def get_state(self):
        return {"n": np.array(self.n), "total": self.total}

    def set_state(self, state):
        self.n, self.total = int(state["n"].reshape(())), state["total"]


class OtherCounting(Counting):
    factor = 100.0


@pytest.fixture
def filters(module, entry_point, plugin):
    module(Counting=Counting, OtherCounting=OtherCounting)
    own = FilterSpec("counting", {"numpy": "made_up_parts:Counting"}, "subtracts the mean")
    other = FilterSpec("counting", {"numpy": "made_up_parts:OtherCounting"}, "", overrides="acme-filters/counting")
    return SimpleNamespace(
        own=entry_point("acme-filters", plugin(rlcatalog_filters=[own]), version="7.8"),
        other=entry_point("other-filters", plugin(rlcatalog_filters=[other])),
    )


def test_statistics_of_a_filter_come_back(directory, filters):
    policy = catalog_of(filters.own).build(BOX, TWO, {"observation_filter": "counting"})
    policy.preprocess(observations(BOX, seed=3), update=True)
    policy.save(directory)
    assert (directory / "filter.safetensors").is_file()
    back = saved.load(catalog_of(filters.own), directory)
    assert back.filter.n == 5
    np.testing.assert_array_equal(back.filter.total, policy.filter.total)
    same_policy(policy, back, observations(BOX))


def test_a_filter_is_pinned(directory, filters):
    catalog_of(filters.own).build(BOX, TWO, {"observation_filter": "counting"}).save(directory)
    assert type(saved.load(catalog_of(filters.own, filters.other), directory).filter) is Counting


def test_statistics_of_a_filter_are_not_forgotten_silently(directory, filters):
    catalog_of(filters.own).build(BOX, TWO, {"observation_filter": "counting"}).save(directory)
    manifest = edit(directory)
    edit(directory, files={"weights.safetensors": manifest["files"]["weights.safetensors"]})
    with pytest.raises(SavedPolicyError, match=r"filter\.safetensors"):
        saved.load(catalog_of(filters.own), directory)


# --- what is refused -------------------------------------------------------------------------------------------------


@pytest.fixture
def written(directory):
    build("discrete").save(directory)
    return directory


def refused(directory, match, error=SavedPolicyError, **spaces_given):
    with pytest.raises(error, match=match) as caught:
        saved.load(catalog_of(), directory, **spaces_given)
    assert str(directory) in str(caught.value)
    return str(caught.value)


def test_an_empty_or_missing_directory(tmp_path):
    refused(tmp_path, r"not a saved policy; it has no policy\.json")
    refused(tmp_path / "nowhere", "not a saved policy")


@pytest.mark.parametrize("keep", [0, 1, 0.5, 0.99])
def test_a_truncated_manifest(written, keep):
    path = written / "policy.json"
    data = path.read_bytes()
    path.write_bytes(data[: keep if isinstance(keep, int) else int(len(data) * keep)])
    refused(written, r"policy\.json: truncated or not JSON")


@pytest.mark.parametrize("text", ["[]", "3", "null", "{}", '{"format": "other", "format_version": 1}'])
def test_foreign_json(written, text):
    (written / "policy.json").write_text(text)
    refused(written, r"policy\.json: not written by rlcatalog")


def test_a_manifest_that_is_no_text(written):
    (written / "policy.json").write_bytes(b"\xff\xfe\x00\x80")
    refused(written, r"policy\.json: truncated or not JSON")


def test_another_format_version(written):
    edit(written, format_version=2, rlcatalog="9.9")
    refused(written, r"format version 2; this rlcatalog \([\d.]+\) reads version 1. It was written by rlcatalog 9\.9")


NEEDED = ["framework", "config", "parts", "preprocessors", "versions", "observation_space", "action_space", "files"]


@pytest.mark.parametrize("key", NEEDED)
def test_a_manifest_without_a_key_names_it(written, key):
    path = written / "policy.json"
    manifest = json.loads(path.read_text())
    del manifest[key]
    path.write_text(json.dumps(manifest))
    refused(written, rf"policy\.json: incomplete; missing: \['{key}'\]")


@pytest.mark.parametrize("key", NEEDED)
@pytest.mark.parametrize("value", [None, 3, [], ["x"], "weights.safetensors", {"x": 1}], ids=repr)
def test_a_manifest_with_nonsense_in_it_is_refused(written, key, value):
    edit(written, **{key: value})
    with pytest.raises(CatalogError) as caught:
        saved.load(catalog_of(), written)
    assert str(written) in str(caught.value)


@pytest.mark.parametrize("keep", [0, 4, 100, -1])
def test_truncated_weights(written, keep):
    path = written / "weights.safetensors"
    path.write_bytes(path.read_bytes()[:keep])
    refused(written, r"weights\.safetensors: truncated or changed since it was saved")


def test_changed_weights(written):
    path = written / "weights.safetensors"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(bytes(data))
    refused(written, r"weights\.safetensors: truncated or changed")


def test_missing_weights(written):
    (written / "weights.safetensors").unlink()
    refused(written, r"weights\.safetensors: cannot be read")


def test_weights_that_are_no_safetensors(written):
    import hashlib
    import pickle

    data = pickle.dumps({"hidden": np.zeros(3)})
    (written / "weights.safetensors").write_bytes(data)
    edit(written, files={"weights.safetensors": hashlib.sha256(data).hexdigest()})
    refused(written, r"weights\.safetensors: not a safetensors file")


def test_weights_of_another_model(written):
    edit(written, config={"fcnet_hiddens": [9]})
    said = refused(written, r"weights\.safetensors: FullyConnectedNetwork: these weights belong to another model")
    assert "hidden.layers.0.weight: (8, 3) instead of (9, 3)" in said


@pytest.mark.parametrize("name", ["evil.bin", "weights.pkl", "../weights.safetensors", "/weights.safetensors"])
def test_a_file_the_format_does_not_know(written, name):
    (written.parent / "weights.safetensors").write_bytes((written / "weights.safetensors").read_bytes())
    manifest = edit(written)
    digest = manifest["files"]["weights.safetensors"]
    edit(written, files={**manifest["files"], name: digest})
    refused(written, "unknown file")


def test_a_missing_plugin_is_named_with_its_version(written):
    with pytest.raises(MissingPluginError) as caught:
        saved.load(catalog_of(names=("categorical", "preprocessors")), written)
    said = str(caught.value)
    version = next(r.version for r in catalog_of().plugins if r.name == "fcnet")
    assert said.startswith(f"{written}: this policy cannot be restored here.")
    assert "pip install rlcatalog-fcnet" in said
    assert f"rlcatalog-fcnet {version}" in said


def test_a_missing_outsiders_plugin_is_named_with_its_version(directory, filters):
    catalog_of(filters.own).build(BOX, TWO, {"observation_filter": "counting"}).save(directory)
    said = refused(directory, "acme-filters", CatalogError)
    assert "acme-filters 7.8" in said


def test_a_model_registered_in_process_must_be_registered_again(directory):
    catalog = catalog_of()
    catalog.register_model("normed", Normed)
    catalog.build(BOX, TWO, {"custom_model": "normed"}).save(directory)
    refused(directory, "Unknown model 'normed'", UnknownNameError)


def test_a_config_of_another_time_is_refused_by_name(written):
    edit(written, config={"fcnet_hidden": [8]})
    refused(written, "Unknown model config key 'fcnet_hidden'", ConfigError)


# --- spaces with a meaning of their own ------------------------------------------------------------------------------


class Angle(spaces.Box):
    """A Box that means more than its base says."""


def test_a_space_of_a_plugins_own_must_be_given_again(directory):
    angle = Angle(-np.pi, np.pi, (2,), np.float32)
    policy = catalog_of().build(spaces.Dict({"angle": angle}), TWO, {"fcnet_hiddens": [4]})
    policy.save(directory)
    refused(directory, r"its observation_space cannot be read: .*pass it to load\(observation_space=")
    back = saved.load(catalog_of(), directory, obs_space=policy.observation_space)
    assert back.observation_space is policy.observation_space
    same_policy(policy, back, observations(policy.observation_space))


def test_the_top_level_function_takes_the_spaces_too(directory):
    policy = rlcatalog.build(spaces.Discrete(3), Angle(-1, 1, (2,), np.float32), {"fcnet_hiddens": [4]})
    policy.save(directory)
    with pytest.raises(SavedPolicyError, match="its action_space cannot be read"):
        rlcatalog.load(directory)
    back = rlcatalog.load(directory, action_space=policy.action_space)
    same_policy(policy, back, observations(policy.observation_space))


def test_a_custom_preprocessor_registered_by_name(directory):
    class Doubled(Preprocessor):
        def _init_shape(self, obs_space, options):
            return (2 * obs_space.shape[0],)

        def transform(self, observation):
            return np.concatenate([observation, observation])

    catalog = catalog_of()
    catalog.register_preprocessor("doubled", Doubled)
    with pytest.warns(DeprecationWarning, match="custom_preprocessor"):
        policy = catalog.build(BOX, TWO, {"custom_preprocessor": "doubled"})
    policy.save(directory)
    same_policy(policy, saved.load(catalog, directory), observations(BOX))


# --- spaces as JSON --------------------------------------------------------------------------------------------------

SMALLEST = np.nextafter(np.float32(0), np.float32(1))
SPACES = [
    spaces.Box(-1, 1, (), np.float32),
    spaces.Box(-np.inf, np.inf, (3,), np.float32),
    spaces.Box(np.array([-np.inf, 0, -1], np.float32), np.array([0, np.inf, 2], np.float32)),
    spaces.Box(np.array([[0.1, -0.2]]), np.array([[1 / 3, 1e300]]), dtype=np.float64),
    spaces.Box(np.float32(-3.4e38), np.float32(3.4e38), (2,), np.float32),
    spaces.Box(SMALLEST, np.float32(1), (2,), np.float32),
    spaces.Box(-1, 1, (2,), np.float16),
    spaces.Box(0, 255, (84, 84, 4), np.uint8),
    spaces.Box(np.zeros((2, 3), np.uint8), np.arange(6, dtype=np.uint8).reshape(2, 3), dtype=np.uint8),
    spaces.Box(-(2**63), 2**63 - 1, (2,), np.int64),
    spaces.Box(0, 2**64 - 1, (1,), np.uint64),
    spaces.Box(0, 1, (2, 2), np.bool_),
    spaces.Box(0, 1, (0, 3), np.float32),
    spaces.Box(0, 1, (0,), np.uint8),
    spaces.Discrete(5),
    spaces.Discrete(5, start=-3),
    spaces.Discrete(3, dtype=np.int32),
    spaces.MultiDiscrete([2, 3, 4]),
    spaces.MultiDiscrete([[2, 3], [4, 5]], np.int32, start=[[1, 0], [-2, 7]]),
    spaces.MultiBinary(4),
    spaces.MultiBinary([2, 3]),
    spaces.MultiBinary([3]),
    spaces.Text(12),
    spaces.Text(8, min_length=0, charset="ab\u00e9 \n\"'"),
    spaces.Sequence(spaces.Box(-1, 1, (2,), np.float32)),
    spaces.Sequence(spaces.Discrete(3), stack=True),
    spaces.Graph(spaces.Box(-1, 1, (2,), np.float32), None),
    spaces.Graph(spaces.Box(-1, 1, (2,), np.float32), spaces.Discrete(4)),
    spaces.OneOf([spaces.Discrete(2), spaces.Box(0, 1, (2,), np.float32)]),
    spaces.Tuple([spaces.Discrete(2), spaces.Tuple([spaces.MultiBinary(2)])]),
    spaces.Tuple([]),
    spaces.Dict({"b": spaces.Discrete(2), "a": spaces.Dict({"x": spaces.Text(3)})}),
    spaces.Dict([("z", spaces.Discrete(2)), ("a", spaces.Discrete(3))]),
    spaces.Dict({}),
    Repeated(spaces.Dict({"hp": spaces.Box(0, 100, (1,), np.float32)}), 4),
    Repeated(Repeated(spaces.Discrete(3), 2), 5),
    Simplex((4,)),
    Simplex((2, 3), [0.5, 1.0, 2.0], np.float64),
]  # fmt: skip


@pytest.mark.parametrize("space", SPACES, ids=lambda space: str(space)[:40])
def test_a_space_comes_back_through_json(space):
    text = json.dumps(space_to_json(space), allow_nan=False)  # strict JSON: no Infinity, no NaN
    back = space_from_json(json.loads(text))
    assert type(back) is type(space)
    assert back == space
    assert back.dtype == space.dtype
    assert back.shape == space.shape
    if isinstance(space, spaces.Box):  # == compares bounds to a tolerance; the numbers are the same ones
        assert (back.low.tobytes(), back.high.tobytes()) == (space.low.tobytes(), space.high.tobytes())
    if isinstance(space, spaces.Dict):
        assert list(back.spaces) == list(space.spaces)
    if isinstance(space, Simplex):
        assert back.concentration.tolist() == space.concentration.tolist()
    space.seed(1)
    for _ in range(3):
        assert back.contains(space.sample())
    back.sample()


@pytest.mark.parametrize(
    "space",
    [
        Angle(0, 1, (2,)),
        spaces.Dict({"a": spaces.Tuple([Angle(0, 1, (2,))])}),
        spaces.Sequence(Angle(0, 1, (2,))),
        Repeated(Angle(0, 1, (2,)), 3),
        spaces.Graph(Angle(0, 1, (2,)), None),
    ],
    ids=lambda space: type(space).__name__,
)
def test_a_space_of_a_plugins_own_is_not_written_as_its_base(space):
    assert space_to_json(space) is None
    with pytest.raises(ValueError, match="kind of a plugin's own"):
        space_from_json(None)


def test_images_take_little_room():
    assert len(json.dumps(space_to_json(spaces.Box(0, 255, (210, 160, 3), np.uint8)))) < 150


def test_unknown_kinds_are_refused():
    with pytest.raises(ValueError, match="unknown kind of space 'hologram'"):
        space_from_json({"kind": "hologram"})


def test_tensorflow_is_what_tf_policies_hold():
    # The control of the tests above: framework="tf" is not torch under another name.
    policy = build("discrete", "tf")
    assert all(isinstance(variable, tf.Variable) for variable in policy.model.variables())
