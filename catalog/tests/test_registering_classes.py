"""Classes of the running program, registered with functions and decorators."""

from __future__ import annotations

import inspect
import pickle

import gymnasium as gym
import msgspec
import numpy as np
import pytest

import rlcatalog
from rlcatalog import Catalog, Filter, Match, ModelV2, PreprocessorSpec, Rank, Stage
from rlcatalog.errors import DeclarationError, DuplicateNameError, ModelContractError
from rlcatalog_testing import isolated_catalog

THREE_FEATURES = gym.spaces.Box(-1, 1, (3,), np.float32)
TWO_ACTIONS = gym.spaces.Discrete(2)


@pytest.fixture
def catalog():
    return isolated_catalog(
        "rlcatalog-preprocessors", "rlcatalog-fcnet", "rlcatalog-lstm", "rlcatalog-categorical"
    )


class Net(ModelV2):
    """A model of the running program."""

    framework_of_class = "torch"


class MineConfig(msgspec.Struct, frozen=True, kw_only=True):
    mine_width: int = 3


def make_config(name, key, default, *, type=int):
    """Return a config struct with one key, as a notebook's cell would define it."""
    fields = [(key, type, default)]
    return msgspec.defstruct(name, fields, frozen=True, kw_only=True, module="cells")


def test_register_model_decorator_returns_the_class(catalog):
    class Mine(Net):
        pass

    assert catalog.register_model("mine")(Mine) is Mine
    assert catalog.registry.get("model", "mine").load("torch") is Mine


@pytest.fixture
def catalog_of_small_spaces(catalog):
    """A catalog with a registered model for fewer than four inputs."""

    def describe(request):
        return [Stage("wide", (request.config["mine_width"],))]

    def match(request):
        if request.encoded_size < 4:
            return Match(Rank.SPECIFIC, "small")
        return Match(None, "large")

    catalog.register_model(
        "mine", match=match, describe=describe, config=MineConfig, reads=("max_seq_len",)
    )(Net)
    return catalog


def test_registered_model_is_chosen_by_its_match(catalog_of_small_spaces):
    nine_inputs = gym.spaces.Box(-1, 1, (9,), np.float32)

    small = catalog_of_small_spaces.explain(THREE_FEATURES, TWO_ACTIONS, {}, "torch").as_dict()
    large = catalog_of_small_spaces.explain(nine_inputs, TWO_ACTIONS, {}, "torch").as_dict()

    assert small["model"]["chosen"] == "mine"
    assert small["model"]["reason"] == "small"
    assert large["model"]["chosen"] == "fcnet"


def test_registered_model_has_config_keys_and_stages(catalog_of_small_spaces):
    data = catalog_of_small_spaces.explain(
        THREE_FEATURES, TWO_ACTIONS, {"mine_width": 6}, "torch"
    ).as_dict()

    assert data["model"]["config_keys"] == ["mine_width", "max_seq_len"]
    assert {"stage": "mine: wide", "shape": [6]} in data["shapes"]


def test_config_key_of_registered_model_is_checked(catalog_of_small_spaces):
    assert catalog_of_small_spaces.schema.keys["mine_width"].owner == "this process"
    with pytest.raises(rlcatalog.errors.ConfigTypeError, match="'mine_width'"):
        catalog_of_small_spaces.parse_config({"mine_width": "wide"})


@pytest.fixture
def catalog_with_memory(catalog):
    """A catalog with a registered memory that `use_mine` switches on."""
    struct = make_config("Own", "use_mine", False, type=bool)
    catalog.register_model("mine", Net, slot="memory", switch="use_mine", config=struct)
    return catalog


def test_registered_memory_is_chosen_by_its_switch(catalog_with_memory):
    data = catalog_with_memory.explain(
        THREE_FEATURES, TWO_ACTIONS, {"use_mine": True}, "torch"
    ).as_dict()

    assert data["memory"]["chosen"] == "mine"
    assert data["memory"]["reason"] == "use_mine is set"


def test_registered_memory_beside_lstm_is_ambiguous(catalog_with_memory):
    config = {"use_mine": True, "use_lstm": True}

    with pytest.raises(rlcatalog.errors.AmbiguousChoiceError, match="one of use_lstm and use_mine"):
        catalog_with_memory.explain(THREE_FEATURES, TWO_ACTIONS, config, "torch")


def test_registered_filter_is_built_by_name(catalog):
    @catalog.register_filter("half")
    class Half(Filter):
        def __call__(self, encoded, *, update=False):
            return encoded / 2

    config = {"observation_filter": "half"}
    policy = rlcatalog.build(THREE_FEATURES, TWO_ACTIONS, config, "torch", catalog=catalog)

    assert type(policy.filter) is Half


def test_registered_distribution_is_chosen_by_its_match(catalog):
    class SevenInputs(rlcatalog.ActionDistribution):
        @staticmethod
        def required_model_output_shape(action_space, model_config):
            return 7

    catalog.register_action_dist(
        "mine", SevenInputs, match=lambda request: Match(Rank.SPECIFIC, "mine")
    )

    data = catalog.explain(THREE_FEATURES, TWO_ACTIONS, {}, "torch").as_dict()

    assert data["action_dist"]["chosen"] == "mine"
    assert {"stage": "mine: inputs", "shape": [7]} in data["shapes"]


def test_registered_preprocessor_is_chosen_by_its_match(catalog):
    class TwoNumbers(rlcatalog.Preprocessor):
        def _init_shape(self, obs_space, options):
            return (2,)

    catalog.register_preprocessor(
        "two",
        TwoNumbers,
        kinds=("multi_binary",),
        match=lambda request: Match(Rank.SPECIFIC, "bits"),
    )

    resolution = catalog.resolve(gym.spaces.MultiBinary(2), TWO_ACTIONS)

    assert resolution.part("preprocessor").name == "two"


def test_register_filter_rejects_another_class(catalog):
    with pytest.raises(ModelContractError, match=r"must be a subclass of rlcatalog\.Filter"):
        catalog.register_filter("no", int)


@pytest.fixture
def default_catalog(catalog, monkeypatch):
    """A new catalog in place of the process's default one."""
    monkeypatch.setattr("rlcatalog.catalog.default.default_catalog", lambda: catalog)
    return catalog


@pytest.mark.parametrize(
    ("kind", "base"),
    [
        ("model", Net),
        ("filter", Filter),
        ("preprocessor", rlcatalog.Preprocessor),
        ("action_dist", rlcatalog.ActionDistribution),
    ],
)
def test_top_level_decorator_registers_in_default_catalog(default_catalog, kind, base):
    cls = type("Mine", (base,), {})

    getattr(rlcatalog, f"register_{kind}")("mine")(cls)

    part = default_catalog.registry.get(kind, "mine")
    assert part.objects[part.frameworks[0]] is cls


def test_top_level_refresh_keeps_registered_classes(default_catalog):
    rlcatalog.register_model("mine", config=MineConfig)(Net)

    assert rlcatalog.refresh() == []
    assert default_catalog.registry.get("model", "mine").load("torch") is Net


TOP_LEVEL_FUNCTIONS = ["explain", "refresh", "register_filter", "register_model", "wrap_env"]


@pytest.mark.parametrize("name", TOP_LEVEL_FUNCTIONS)
def test_top_level_function_has_signature_of_the_method(name):
    function = inspect.signature(getattr(rlcatalog, name))
    method = inspect.signature(getattr(Catalog, name))

    _self, *method_parameters = method.parameters.values()
    assert list(function.parameters.values()) == method_parameters


@pytest.mark.parametrize("name", TOP_LEVEL_FUNCTIONS)
def test_top_level_function_can_be_pickled(name):
    function = getattr(rlcatalog, name)

    assert pickle.loads(pickle.dumps(function)) is function


def test_registering_again_replaces_the_config_struct(catalog):
    catalog.register_model("again", Net, config=make_config("Again", "again_width", 3))
    assert catalog.parse_config({})["again_width"] == 3

    catalog.register_model("again", Net, config=make_config("Again", "again_width", 5))
    assert catalog.parse_config({})["again_width"] == 5

    catalog.register_model("again", Net, config=make_config("Renamed", "again_width", 8))
    assert catalog.parse_config({})["again_width"] == 8

    catalog.register_model("again", Net)
    assert "again_width" not in catalog.schema.keys


@pytest.mark.parametrize(
    ("key", "owner"),
    [
        ("vf_share_layers", "rlcatalog"),
        ("fcnet_hiddens", "rlcatalog-fcnet"),
        ("mine_width", "this process"),
    ],
)
def test_config_key_of_another_owner_is_rejected(catalog, key, owner):
    catalog.register_model("mine", Net, config=MineConfig)

    with pytest.raises(DuplicateNameError, match=f"'{key}' belongs to {owner}"):
        catalog.register_model("other", Net, config=make_config("Taken", key, 1))

    assert "other" not in catalog.registry.names(["model"])
    assert catalog.parse_config({})["mine_width"] == 3


def test_config_struct_with_invalid_default_is_rejected(catalog):
    struct = make_config("Wrong", "wrong_width", "wide")

    with pytest.raises(DeclarationError, match="does not allow its own default"):
        catalog.register_model("wrong", Net, config=struct)

    assert "wrong" not in catalog.registry.names(["model"])


def test_config_struct_of_two_parts_stays_while_one_has_it(catalog):
    catalog.register_model("mine", Net, config=MineConfig)
    catalog.register_filter("half", Filter, config=MineConfig)

    catalog.register_model("mine", Net)  # without the struct

    assert catalog.parse_config({"mine_width": 9}).given == {"mine_width": 9}


def test_register_functions_take_name_and_class_by_position():
    catalog = Catalog([], environ={})

    catalog.register_model("a", Net)
    catalog.register_preprocessor("b", rlcatalog.Preprocessor)
    catalog.register_action_dist("c", rlcatalog.ActionDistribution)
    catalog.register(PreprocessorSpec("d", {"numpy": "m:C"}, ""))

    assert [part.name for part in catalog.parts()] == ["c", "a", "b", "d"]
