"""Single parts of a catalog: preprocessors, distributions, models from their parts."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete, Text

import rlcatalog.models
from rlcatalog import (
    ActionDistribution,
    Match,
    ModelSpec,
    ModelV2,
    Preprocessor,
    PreprocessorSpec,
    Rank,
    SpaceInfo,
    Stage,
)
from rlcatalog.errors import (
    ConfigError,
    MissingFrameworkError,
    MissingPluginError,
    ModelContractError,
    PartError,
)
from rlcatalog.spaces import Simplex
from rlcatalog_testing import PluginEntryPoint, isolated_catalog, plugin_of

BOX, TWO = Box(-1, 1, (3,), np.float32), Discrete(2)
PARTS = (
    "rlcatalog-preprocessors",
    "rlcatalog-fcnet",
    "rlcatalog-categorical",
    "rlcatalog-gaussian",
)


@pytest.fixture(scope="module")
def shared():
    """A catalog for tests that only read it."""
    return isolated_catalog(*PARTS)


@pytest.fixture
def catalog():
    return isolated_catalog(*PARTS)


# --- preprocessors --------------------------------------------------------------------------------


class Own(Preprocessor):
    """A codec of the program, in RLlib's form."""

    def _init_shape(self, obs_space, options):
        return obs_space.shape

    def transform(self, observation):
        return observation


class Constructed(Own):
    def __init__(self, obs_space, options):
        self.given = options
        super().__init__(obs_space, options)


class Unfinished(Own):
    def __init__(self, obs_space, options):
        self.shape = obs_space.shape


class Refusing(Own):
    def _init_shape(self, obs_space, options):
        raise ModelContractError(options.get("text", "no such space"))


class Wrong(Own):
    def bounds(self):
        return None


def test_a_preprocessor_is_made_for_a_space_or_its_tree(shared):
    info = SpaceInfo.read(Dict({"a": BOX})).children[0]
    assert shared.preprocessor_for(info).info is info
    assert shared.preprocessor_for(BOX).info.path == "obs"
    made = shared.preprocessor_for(Discrete(4))
    assert (made.component.name, made.made_by, made.shape) == ("onehot", shared, (4,))
    assert not made.is_watched  # listed codecs were tested


@pytest.mark.parametrize("cls", [Own, Constructed])
def test_observations_are_checked_as_the_argument_or_else_the_options_say(catalog, cls):
    catalog.register_preprocessor("own", cls)
    chosen = catalog.registry.get("preprocessor", "own")
    for check, options, mode in (
        (None, {}, "first"),
        (None, {"check_observations": "never"}, "never"),
        ("always", {"check_observations": "never"}, "always"),
    ):
        made = catalog.preprocessor_for(BOX, options, check=check, chosen={"obs": chosen})
        assert (made.check_mode, made.component, made.is_watched) == (mode, chosen, True)
        assert made._unchecked == (mode != "never")


def test_the_component_may_be_chosen_before(catalog):
    catalog.register_preprocessor("own", Constructed)
    chosen = catalog.registry.get("preprocessor", "own")
    options = {"custom_model_config": {"k": [1]}}
    assert catalog.preprocessor_for(BOX, options).component.name == "none"
    made = catalog.preprocessor_for(BOX, options, chosen={"obs": chosen})
    assert type(made) is Constructed
    assert made.given == {**options, "custom_options": {"k": [1]}}
    made.given["custom_options"]["k"].append(2)
    assert options == {"custom_model_config": {"k": [1]}}


def codec_of(target, distribution="acme"):
    spec = PreprocessorSpec("acme_codec", {"numpy": f"{__name__}:{target}"}, "", kinds=("text",))
    return isolated_catalog(
        PluginEntryPoint(plugin_of(rlcatalog_preprocessors=[spec]), distribution)
    )


def not_a_class(space, options):
    raise AssertionError


@pytest.mark.parametrize("target", ["not_a_class", "SimpleNamespace", "Unfinished"])
def test_a_target_that_is_no_preprocessor_is_the_plugins_fault(target):
    with pytest.raises(
        PartError, match=r"preprocessor 'acme_codec' \(acme 1\.0\): .*(Preprocessor|__init__)"
    ):
        codec_of(target).preprocessor_for(Text(3))


def test_an_error_of_a_codec_names_its_plugin_once(catalog):
    with pytest.raises(
        ModelContractError, match=r"^preprocessor 'acme_codec' \(acme 1\.0\): no such space$"
    ):
        codec_of("Refusing").preprocessor_for(Text(3))
    text = "acme 1.0 takes no texts"
    with pytest.raises(ModelContractError, match=f"^{text}$"):
        codec_of("Refusing").preprocessor_for(Text(3), {"text": text})
    catalog.register_preprocessor("own", Refusing)
    # a class of the program has no plugin.
    with pytest.raises(ModelContractError, match=r"^no such space$"):
        catalog.preprocessor_for(BOX, {"custom_preprocessor": "own"})


def test_the_answers_of_a_codec_that_is_not_listed_are_checked_when_it_is_made(catalog):
    catalog.register_preprocessor("own", Wrong)
    with pytest.raises(ModelContractError, match="bounds"):
        catalog.preprocessor_for(BOX, {"custom_preprocessor": "own"})


# --- distributions --------------------------------------------------------------------------------


class Net(ModelV2):
    framework_of_class = "tf"


class Dist(ActionDistribution):
    framework_of_class = "tf"

    @staticmethod
    def required_model_output_shape(action_space, model_config):
        return 7


def test_a_distribution_is_of_the_framework_of_the_custom_classes(catalog):
    asked = []

    def match(request):
        asked.append(request.framework)
        return Match(Rank.GENERIC, "any")

    catalog.register_model("mine", Net)
    catalog.register_action_dist(
        "any", type("Any", (Dist,), {"framework_of_class": None}), match=match
    )
    catalog.register_action_dist("dist", Dist)
    for config, framework in (({}, "torch"), ({"custom_model": "mine"}, "tf")):
        assert catalog.action_dist(TWO, config)[1] == 7
        assert asked.pop() == framework
    assert catalog.action_dist(TWO, {"custom_action_dist": "dist"}) == (Dist, 7)
    for model in ("mine", "not installed"):  # the framework is given, so the model does not matter
        catalog.action_dist(TWO, {"custom_model": model}, framework="torch")
        assert asked.pop() == "torch"


# --- models ---------------------------------------------------------------------------------------


class Torch(ModelV2):
    framework_of_class = "torch"


@pytest.fixture
def assembled(monkeypatch):
    """What a model would be assembled from, in place of the model."""
    names = (
        "parts",
        "obs_space",
        "action_space",
        "num_outputs",
        "fresh",
        "name",
        "interface",
        "unclaimed",
        "action_dist",
    )

    def assemble(*values):
        return SimpleNamespace(**dict(zip(names, values, strict=True)))

    monkeypatch.setattr(rlcatalog.models, "assemble", assemble)


@pytest.fixture
def parts(catalog, assembled):
    """A catalog whose only parts of models are registered: they take anything and write down the
    request.
    """
    asked = []

    def describe(request):
        asked.append(request)
        if request.config["custom_model_config"].get("refused"):
            raise ConfigError("refused")
        return [Stage("all", (request.num_outputs or 5,))]

    def any_space(request):
        return Match(Rank.GENERIC, "any")

    for name, slot in (("net", "trunk"), ("gru", "memory"), ("mask", "head")):
        cls = type(name.title(), (Torch,), {"slot_of_class": slot})
        catalog.register_model(
            name,
            cls,
            describe=describe,
            reads=("max_seq_len",),
            match=any_space if slot == "trunk" else None,
        )
    # It declares no keys.
    catalog.register_model("rllib", type("Rllib", (Torch,), {}), describe=describe)
    catalog.register(
        ModelSpec("plain", {"torch": f"{__name__}:Torch"}, "", plain=True, describe=describe)
    )
    catalog.asked = asked
    return catalog


def asked_of(catalog, obs, config=None, action=TWO, **more):
    made = catalog.model_v2(obs, action, 2, config or {}, "torch", **more)
    return made, catalog.asked[-1]


def test_a_model_is_asked_with_the_encoded_shape_and_gets_the_space_as_it_is(parts):
    made, request = asked_of(parts, BOX)
    assert (request.encoded_shape, request.num_outputs, request.framework) == ((3,), 2, "torch")
    assert (request.obs.path, request.action.path, request.catalog, request.mask_key) == (
        "obs",
        "action",
        parts,
        None,
    )
    assert (made.obs_space, made.action_space, made.num_outputs) == (BOX, TWO, 2)
    assert [(part.slot, part.component.name) for part in made.parts] == [("trunk", "net")]
    assert (made.name, made.interface, made.unclaimed, made.action_dist) == (
        "default_model",
        None,
        None,
        None,
    )


@pytest.mark.parametrize(
    ("model", "space", "encoded"),
    [
        (None, Dict({"a": BOX, "b": TWO}), True),  # a model of the catalog sees it encoded
        ("net", Dict({"a": BOX, "b": TWO}), True),
        ("plain", Dict({"a": BOX, "b": TWO}), True),
        ("rllib", Dict({"a": BOX, "b": TWO}), False),  # a class in RLlib's form sees the structure
        (None, TWO, False),
        ("net", TWO, False),
        ("rllib", TWO, False),
        ("plain", TWO, True),  # a plain module needs numbers
        ("plain", BOX, False),
        ("rllib", BOX, False),
    ],
)
def test_a_space_is_encoded_for_the_models_that_need_it(parts, model, space, encoded):
    made, request = asked_of(parts, space, {"custom_model": model})
    assert (made.obs_space is not space) == encoded
    # The part knows what is behind the numbers.
    assert request.obs.describe() == SpaceInfo.read(space).describe()
    assert request.encoded_shape == (
        made.obs_space.shape if isinstance(made.obs_space, Box) else None
    )
    assert (request.preprocessor is not None) == encoded
    inner = parts.preprocessor_for(space).observation_space
    again, request = asked_of(parts, inner, {"custom_model": model})
    assert again.obs_space is inner  # an encoded space is not encoded again
    assert request.encoded_shape == inner.shape


def test_numbers_are_not_encoded_for_a_plain_module_whatever_the_config_says(parts):
    twice = type("Twice", (Own,), {"_init_shape": lambda self, space, options: (6,)})
    config = {"custom_model": "plain", "custom_preprocessor": twice}
    assert asked_of(parts, TWO, config)[1].encoded_shape == (6,)
    assert asked_of(parts, BOX, config)[1].encoded_shape == (3,)
    index = Discrete(4)
    index.original_space, index.preprocessor = TWO, parts.preprocessor_for(TWO)
    # a preprocessor made it.
    assert asked_of(parts, index, {"custom_model": "plain"})[0].obs_space is index


def test_a_default_model_is_used_unless_the_config_names_one(parts):
    default_model = type("Default", (Torch,), {})
    assert asked_of(parts, BOX)[0].parts[0].component.name == "net"
    assert (
        parts.model_v2(BOX, TWO, 2, {}, "torch", default_model=default_model)
        .parts[0]
        .component.name
        == "Default"
    )
    named = parts.model_v2(
        BOX, TWO, 2, {"custom_model": "rllib"}, "torch", default_model=default_model
    )
    assert named.parts[0].component.name == "rllib"


def test_a_head_gets_the_action_distribution(parts):
    made, _ = asked_of(parts, BOX, {"custom_model": "mask"})
    assert [part.slot for part in made.parts] == ["trunk", "head"]
    assert made.action_dist is parts.action_dist(TWO, framework="torch")[0]


def test_a_model_without_a_head_needs_no_distribution(parts):
    with pytest.raises(MissingPluginError, match="rlcatalog-bounded"):
        parts.action_dist(Simplex((3,)))
    assert asked_of(parts, BOX, action=Simplex((3,)))[0].action_dist is None


def test_keyword_arguments_go_to_the_trunk_and_the_configs_to_the_part_it_names(parts):
    config = {"custom_model_config": {"a": 1, "b": 2}}

    def arguments(**config):
        made = parts.model_v2(BOX, TWO, 2, config, "torch", kwargs={"b": 3, "c": 4})
        return {part.slot: part.kwargs for part in made.parts}

    assert arguments(**config) == {"trunk": {"b": 3, "c": 4}}  # the config's are for a custom model
    assert arguments(**config, custom_model="net") == {"trunk": {"a": 1, "b": 2, "c": 4}}
    assert arguments(**config, custom_model="gru") == {
        "trunk": {"b": 3, "c": 4},
        "memory": {"a": 1, "b": 2},
    }


def test_a_config_that_cannot_be_built_is_refused_before_anything_is_imported(parts):
    with pytest.raises(ConfigError, match=r"^refused$"):
        parts.model_v2(
            BOX,
            TWO,
            2,
            {"custom_model": "rllib", "custom_model_config": {"refused": True}},
            "torch",
        )


def test_each_model_has_a_config_of_its_own_that_names_a_plain_module(parts):
    made, _ = asked_of(parts, BOX, {"custom_model": "plain", "custom_model_config": {"a": [1]}})
    first, second = made.fresh(), made.fresh()
    first["custom_model_config"]["a"].append(2)
    assert second["custom_model_config"] == {"a": [1]}
    cls = type("Given", (Torch,), {})
    made, _ = asked_of(parts, BOX, {"custom_model": "net"})
    assert made.fresh()["custom_model"] == "net"
    made = parts.model_v2(BOX, TWO, 2, {"custom_model": cls}, "torch")
    assert made.fresh()["custom_model"] is cls
    values, config = made.fresh(), parts.parse_config({"custom_model": cls})
    plain = parts.registry.get("model", "plain")
    made = parts.model({"trunk": plain}, BOX, TWO, 2, config, "torch")
    # An instance would be one of the model's weights.
    assert made.fresh()["custom_model"] == "plain"
    empty = parts.model({}, BOX, TWO, 2, config, "torch")
    assert (empty.parts, empty.fresh()) == ([], values)


def test_a_plugins_target_is_a_model_class_of_the_framework(assembled):
    for target, fits in (("Torch", True), ("Net", False), ("SimpleNamespace", False)):
        spec = ModelSpec("acme_net", {"torch": f"{__name__}:{target}"}, "")
        catalog = isolated_catalog(
            *PARTS, PluginEntryPoint(plugin_of(rlcatalog_models=[spec]), "acme")
        )
        component, config = catalog.registry.get("model", "acme_net"), catalog.parse_config({})
        if fits:
            assert (
                catalog.model({"trunk": component}, BOX, TWO, 2, config, "torch").parts[0].cls
                is Torch
            )
        else:
            with pytest.raises(PartError, match=r"model 'acme_net' \(acme 1\.0\): .*'torch'"):
                catalog.model({"trunk": component}, BOX, TWO, 2, config, "torch")
    # a class of the program may be.
    catalog.register(ModelSpec("mine", {"torch": f"{__name__}:SimpleNamespace"}, ""))
    made = catalog.model(
        {"trunk": catalog.registry.get("model", "mine")}, BOX, TWO, 2, config, "torch"
    )
    assert made.parts[0].cls is SimpleNamespace
    with pytest.raises(MissingFrameworkError, match="'no such framework'"):
        catalog.model({}, BOX, TWO, 2, config, "no such framework")
