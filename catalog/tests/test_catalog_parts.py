"""A catalog builds single parts: preprocessors, action distributions, and models from parts."""

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
from rlcatalog.catalog import build_model
from rlcatalog.errors import (
    ConfigError,
    MissingPluginError,
    ModelContractError,
    PartError,
)
from rlcatalog.spaces import Simplex
from rlcatalog_testing import PluginEntryPoint, isolated_catalog, plugin_of

THREE_FEATURES = Box(-1, 1, (3,), np.float32)
TWO_ACTIONS = Discrete(2)
PARTS = (
    "rlcatalog-preprocessors",
    "rlcatalog-fcnet",
    "rlcatalog-categorical",
    "rlcatalog-gaussian",
)


@pytest.fixture(scope="module")
def read_only_catalog():
    """A catalog for tests that only read it."""
    return isolated_catalog(*PARTS)


@pytest.fixture
def catalog():
    return isolated_catalog(*PARTS)


# --- preprocessors --------------------------------------------------------------------------------


class CustomPreprocessor(Preprocessor):
    """Returns observations as they are."""

    def _init_shape(self, obs_space, options):
        return obs_space.shape

    def transform(self, observation):
        return observation


class OptionsPreprocessor(CustomPreprocessor):
    """Keeps the options that its constructor gets."""

    def __init__(self, obs_space, options):
        self.received_options = options
        super().__init__(obs_space, options)


class WithoutSuperInit(CustomPreprocessor):
    """Forgets to call the constructor of its base class."""

    def __init__(self, obs_space, options):
        self.shape = obs_space.shape


class RejectsItsSpace(CustomPreprocessor):
    """Raises an error with the option "text"."""

    def _init_shape(self, obs_space, options):
        raise ModelContractError(options.get("text", "no such space"))


class WithoutBounds(CustomPreprocessor):
    """Returns no bounds, although the method has to."""

    def bounds(self):
        return None


def test_preprocessor_of_a_space_starts_at_obs(read_only_catalog):
    assert read_only_catalog.preprocessor_for(THREE_FEATURES).info.path == "obs"


def test_preprocessor_of_a_part_keeps_its_place(read_only_catalog):
    part = SpaceInfo.read(Dict({"a": THREE_FEATURES})).children[0]

    assert read_only_catalog.preprocessor_for(part).info is part


def test_preprocessor_of_discrete_is_onehot(read_only_catalog):
    preprocessor = read_only_catalog.preprocessor_for(Discrete(4))

    assert preprocessor.part.name == "onehot"
    assert preprocessor.made_by is read_only_catalog
    assert preprocessor.shape == (4,)


def test_built_in_preprocessor_is_not_watched(read_only_catalog):
    assert not read_only_catalog.preprocessor_for(Discrete(4)).is_watched


@pytest.mark.parametrize(
    ("check", "options", "mode"),
    [
        pytest.param(None, {}, "first", id="default"),
        pytest.param(None, {"check_observations": "never"}, "never", id="config"),
        pytest.param(
            "always", {"check_observations": "never"}, "always", id="argument-overrides-config"
        ),
    ],
)
def test_check_mode_comes_from_argument_or_config(catalog, check, options, mode):
    # The mode says which observations are checked: by default the first ones.
    catalog.register_preprocessor("own", CustomPreprocessor)
    own = catalog.registry.get("preprocessor", "own")

    preprocessor = catalog.preprocessor_for(
        THREE_FEATURES, options, check=check, chosen={"obs": own}
    )

    assert preprocessor.check_mode == mode
    assert preprocessor.part is own
    assert preprocessor.is_watched  # unlike the codecs that the conformance kit has tested


def test_chosen_part_replaces_the_default(catalog):
    catalog.register_preprocessor("own", CustomPreprocessor)
    own = catalog.registry.get("preprocessor", "own")

    assert catalog.preprocessor_for(THREE_FEATURES).part.name == "none"
    assert type(catalog.preprocessor_for(THREE_FEATURES, chosen={"obs": own})) is CustomPreprocessor


def test_preprocessor_gets_its_options_under_rllibs_names(catalog):
    catalog.register_preprocessor("own", OptionsPreprocessor)
    own = catalog.registry.get("preprocessor", "own")
    options = {"custom_model_config": {"k": [1]}}

    preprocessor = catalog.preprocessor_for(THREE_FEATURES, options, chosen={"obs": own})

    # "custom_options" is RLlib's old name of the key.
    assert preprocessor.received_options == {
        "custom_model_config": {"k": [1]},
        "custom_options": {"k": [1]},
    }


def make_catalog_of_plugin(target):
    """Return a catalog whose plugin names `target`, an object of this module, as preprocessor."""
    spec = PreprocessorSpec("acme_codec", {"numpy": f"{__name__}:{target}"}, "", kinds=("text",))
    return isolated_catalog(PluginEntryPoint(plugin_of(rlcatalog_preprocessors=[spec]), "acme"))


def not_a_class(space, options):
    raise AssertionError


@pytest.mark.parametrize(
    ("target", "cause"),
    [
        pytest.param("not_a_class", "Preprocessor", id="function"),
        pytest.param("SimpleNamespace", "Preprocessor", id="another-class"),
        pytest.param("WithoutSuperInit", "__init__", id="constructor-without-super"),
    ],
)
def test_target_that_is_not_a_preprocessor_names_the_plugin(target, cause):
    with pytest.raises(PartError) as caught:
        make_catalog_of_plugin(target).preprocessor_for(Text(3))

    owner, _, reason = str(caught.value).partition(": ")
    assert owner == "preprocessor 'acme_codec' (acme 1.0)"
    assert cause in reason


def test_preprocessor_error_names_its_plugin():
    with pytest.raises(ModelContractError) as caught:
        make_catalog_of_plugin("RejectsItsSpace").preprocessor_for(Text(3))

    assert str(caught.value) == "preprocessor 'acme_codec' (acme 1.0): no such space"


def test_preprocessor_error_names_its_plugin_only_once():
    message = "acme 1.0 takes no texts"

    with pytest.raises(ModelContractError) as caught:
        make_catalog_of_plugin("RejectsItsSpace").preprocessor_for(Text(3), {"text": message})

    assert str(caught.value) == message


def test_error_of_registered_preprocessor_names_no_plugin(catalog):
    catalog.register_preprocessor("own", RejectsItsSpace)

    with pytest.raises(ModelContractError, match=r"^no such space$"):
        catalog.preprocessor_for(THREE_FEATURES, {"custom_preprocessor": "own"})


def test_bounds_of_registered_preprocessor_are_checked(catalog):
    catalog.register_preprocessor("own", WithoutBounds)

    with pytest.raises(ModelContractError, match="bounds"):
        catalog.preprocessor_for(THREE_FEATURES, {"custom_preprocessor": "own"})


# --- distributions --------------------------------------------------------------------------------


class TFModel(ModelV2):
    framework_of_class = "tf"


class SevenInputs(ActionDistribution):
    """A distribution of any framework that needs seven inputs."""

    @staticmethod
    def required_model_output_shape(action_space, model_config):
        return 7


class TFSevenInputs(SevenInputs):
    framework_of_class = "tf"


@pytest.fixture
def record_framework(catalog):
    """Register a distribution; return the list of frameworks that its match is asked for."""
    frameworks = []

    def match(request):
        frameworks.append(request.framework)
        return Match(Rank.GENERIC, "any")

    catalog.register_model("mine", TFModel)
    catalog.register_action_dist("any", SevenInputs, match=match)
    catalog.register_action_dist("dist", TFSevenInputs)
    return frameworks


@pytest.mark.parametrize(
    ("config", "framework"),
    [
        pytest.param({}, "torch", id="default-model"),
        pytest.param({"custom_model": "mine"}, "tf", id="custom-tf-model"),
    ],
)
def test_distribution_has_framework_of_the_model(catalog, record_framework, config, framework):
    _, size = catalog.action_dist(TWO_ACTIONS, config)

    assert size == 7
    assert record_framework[-1] == framework


def test_distribution_class_decides_its_framework(catalog, record_framework):
    assert catalog.action_dist(TWO_ACTIONS, {"custom_action_dist": "dist"}) == (TFSevenInputs, 7)


@pytest.mark.parametrize("model", ["mine", "not installed"])
def test_framework_argument_makes_the_model_irrelevant(catalog, record_framework, model):
    catalog.action_dist(TWO_ACTIONS, {"custom_model": model}, framework="torch")

    assert record_framework[-1] == "torch"


# --- models ---------------------------------------------------------------------------------------


class TorchModel(ModelV2):
    framework_of_class = "torch"


@pytest.fixture
def assembled(monkeypatch):
    """Return what a model would be assembled from, in place of the model."""
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
def model_catalog(catalog, assembled):
    """A catalog with registered models that fit every space; `requests` lists what they were asked.

    "net" is a trunk, "gru" a memory, "mask" a head, "rllib" a class in RLlib's form, which declares
    no keys, and "plain" a plain module.
    """
    catalog.requests = []

    def describe(request):
        catalog.requests.append(request)
        if request.config["custom_model_config"].get("refused"):
            raise ConfigError("refused")
        return [Stage("all", (request.num_outputs or 5,))]

    def match_any_space(request):
        return Match(Rank.GENERIC, "any")

    def register(name, slot, match=None):
        cls = type(name.title(), (TorchModel,), {"slot_of_class": slot})
        catalog.register_model(name, cls, describe=describe, reads=("max_seq_len",), match=match)

    register("net", "trunk", match_any_space)
    register("gru", "memory")
    register("mask", "head")
    catalog.register_model("rllib", type("Rllib", (TorchModel,), {}), describe=describe)
    target = f"{__name__}:TorchModel"
    catalog.register(ModelSpec("plain", {"torch": target}, "", plain=True, describe=describe))
    return catalog


def make_model(catalog, obs_space, config=None, *, action_space=TWO_ACTIONS, **options):
    """Return what a PyTorch model with two outputs would be assembled from."""
    return catalog.model_v2(obs_space, action_space, 2, config or {}, "torch", **options)


def test_model_describes_itself_for_a_complete_request(model_catalog):
    make_model(model_catalog, THREE_FEATURES)

    # The models of this catalog record the requests that they get.
    request = model_catalog.requests[-1]
    assert request.encoded_shape == (3,)
    assert request.num_outputs == 2  # a logit for each of two actions
    assert request.framework == "torch"
    assert request.obs.path == "obs"
    assert request.action.path == "action"
    assert request.catalog is model_catalog
    assert request.mask_key is None


def test_model_of_a_box_is_one_trunk(model_catalog):
    model = make_model(model_catalog, THREE_FEATURES)

    [trunk] = model.parts
    assert trunk.slot == "trunk"
    assert trunk.chosen.name == "net"
    assert model.obs_space == THREE_FEATURES
    assert model.action_space == TWO_ACTIONS
    assert model.num_outputs == 2
    assert model.name == "default_model"


DICT = Dict({"a": THREE_FEATURES, "b": TWO_ACTIONS})
each_model_and_space = pytest.mark.parametrize(
    ("model", "space", "is_encoded"),
    [
        # Models of the catalog read numbers.
        pytest.param(None, DICT, True, id="default-dict"),
        pytest.param("net", DICT, True, id="custom-dict"),
        pytest.param("plain", DICT, True, id="plain-dict"),
        # A class in RLlib's form reads the structure.
        pytest.param("rllib", DICT, False, id="rllib-dict"),
        pytest.param(None, TWO_ACTIONS, False, id="default-discrete"),
        pytest.param("net", TWO_ACTIONS, False, id="custom-discrete"),
        pytest.param("rllib", TWO_ACTIONS, False, id="rllib-discrete"),
        # A plain module cannot read an index.
        pytest.param("plain", TWO_ACTIONS, True, id="plain-discrete"),
        pytest.param("plain", THREE_FEATURES, False, id="plain-box"),
        pytest.param("rllib", THREE_FEATURES, False, id="rllib-box"),
    ],
)


@each_model_and_space
def test_space_is_encoded_for_models_that_need_it(model_catalog, model, space, is_encoded):
    built = make_model(model_catalog, space, {"custom_model": model})

    request = model_catalog.requests[-1]
    assert (built.obs_space is not space) == is_encoded
    assert (request.preprocessor is not None) == is_encoded
    # The model is told what the numbers mean.
    assert request.obs.describe() == SpaceInfo.read(space).describe()
    expected_shape = built.obs_space.shape if isinstance(built.obs_space, Box) else None
    assert request.encoded_shape == expected_shape


@each_model_and_space
def test_encoded_space_is_not_encoded_again(model_catalog, model, space, is_encoded):
    encoded_space = model_catalog.preprocessor_for(space).observation_space

    built = make_model(model_catalog, encoded_space, {"custom_model": model})

    assert built.obs_space is encoded_space
    assert model_catalog.requests[-1].encoded_shape == encoded_space.shape


class SixOutputs(CustomPreprocessor):
    def _init_shape(self, obs_space, options):
        return (6,)


@pytest.mark.parametrize(
    ("space", "encoded_shape"),
    [
        pytest.param(TWO_ACTIONS, (6,), id="discrete-is-encoded"),
        pytest.param(THREE_FEATURES, THREE_FEATURES.shape, id="box-is-not-encoded"),
    ],
)
def test_custom_preprocessor_leaves_numbers_alone(model_catalog, space, encoded_shape):
    make_model(model_catalog, space, {"custom_model": "plain", "custom_preprocessor": SixOutputs})

    assert model_catalog.requests[-1].encoded_shape == encoded_shape


def test_discrete_space_that_a_preprocessor_returned_is_kept(model_catalog):
    index = Discrete(4)
    # A preprocessor leaves these two attributes on the space that it returns.
    index.original_space = TWO_ACTIONS
    index.preprocessor = model_catalog.preprocessor_for(TWO_ACTIONS)

    model = make_model(model_catalog, index, {"custom_model": "plain"})

    assert model.obs_space is index


def test_encoded_space_without_preprocessor_asks_this_catalog(model_catalog):
    # As a space arrives from another process: with the original space, but without preprocessor.
    encoded_space = Box(0, 1, (2,), np.float32)
    encoded_space.original_space = TWO_ACTIONS

    make_model(model_catalog, encoded_space, {"custom_model": "plain"})

    assert encoded_space.preprocessor.catalog is model_catalog


class DefaultModel(TorchModel):
    pass


@pytest.mark.parametrize(
    ("config", "default_model", "name"),
    [
        pytest.param({}, None, "net", id="neither"),
        pytest.param({}, DefaultModel, "DefaultModel", id="argument"),
        pytest.param({"custom_model": "rllib"}, DefaultModel, "rllib", id="config"),
    ],
)
def test_default_model_is_used_if_config_names_none(model_catalog, config, default_model, name):
    model = make_model(model_catalog, THREE_FEATURES, config, default_model=default_model)

    assert model.parts[0].chosen.name == name


def test_head_gets_the_action_distribution(model_catalog):
    model = make_model(model_catalog, THREE_FEATURES, {"custom_model": "mask"})

    assert [part.slot for part in model.parts] == ["trunk", "head"]
    assert model.action_dist is model_catalog.action_dist(TWO_ACTIONS, framework="torch")[0]


def test_model_without_head_needs_no_distribution(model_catalog):
    simplex = Simplex((3,))
    with pytest.raises(MissingPluginError, match="rlcatalog-bounded"):
        model_catalog.action_dist(simplex)

    assert make_model(model_catalog, THREE_FEATURES, action_space=simplex).action_dist is None


@pytest.mark.parametrize(
    ("custom_model", "arguments"),
    [
        # Without a custom model, `custom_model_config` applies to nothing.
        pytest.param(None, {"trunk": {"b": 3, "c": 4}}, id="no-custom-model"),
        pytest.param("net", {"trunk": {"a": 1, "b": 2, "c": 4}}, id="trunk"),
        pytest.param("gru", {"trunk": {"b": 3, "c": 4}, "memory": {"a": 1, "b": 2}}, id="memory"),
    ],
)
def test_custom_model_config_goes_to_the_custom_part(model_catalog, custom_model, arguments):
    config = {"custom_model": custom_model, "custom_model_config": {"a": 1, "b": 2}}

    model = make_model(model_catalog, THREE_FEATURES, config, kwargs={"b": 3, "c": 4})

    assert {part.slot: part.kwargs for part in model.parts} == arguments


def test_config_error_of_describe_is_raised_before_assembly(model_catalog):
    config = {"custom_model": "rllib", "custom_model_config": {"refused": True}}

    with pytest.raises(ConfigError, match=r"^refused$"):
        make_model(model_catalog, THREE_FEATURES, config)


@pytest.mark.parametrize("custom_model", ["net", pytest.param(DefaultModel, id="class")])
def test_config_of_a_model_keeps_custom_model(model_catalog, custom_model):
    model = make_model(model_catalog, THREE_FEATURES, {"custom_model": custom_model})

    assert model.fresh()["custom_model"] == custom_model


def test_config_of_plain_module_has_its_name(model_catalog):
    config = model_catalog.parse_config({"custom_model": DefaultModel})
    plain = model_catalog.registry.get("model", "plain")

    model = build_model({"trunk": plain}, THREE_FEATURES, TWO_ACTIONS, 2, config, "torch")

    # A module instance in the config would become one of the model's weights.
    assert model.fresh()["custom_model"] == "plain"


def make_model_of_plugin(target):
    """Return a model whose trunk is `target`, an object of this module, from a plugin."""
    spec = ModelSpec("acme_net", {"torch": f"{__name__}:{target}"}, "")
    plugin = PluginEntryPoint(plugin_of(rlcatalog_models=[spec]), "acme")
    catalog = isolated_catalog(*PARTS, plugin)
    trunk = catalog.registry.get("model", "acme_net")
    return build_model(
        {"trunk": trunk}, THREE_FEATURES, TWO_ACTIONS, 2, catalog.parse_config({}), "torch"
    )


def test_plugin_target_may_be_a_model_class(assembled):
    assert make_model_of_plugin("TorchModel").parts[0].cls is TorchModel


@pytest.mark.parametrize(
    "target",
    [
        pytest.param("TFModel", id="model-of-another-framework"),
        pytest.param("SimpleNamespace", id="not-a-model"),
    ],
)
def test_plugin_target_of_another_kind_is_rejected(assembled, target):
    with pytest.raises(PartError, match=r"'acme_net' \(acme 1\.0\): .*'torch'"):
        make_model_of_plugin(target)


def test_registered_target_may_be_any_class(catalog, assembled):
    catalog.register(ModelSpec("mine", {"torch": f"{__name__}:SimpleNamespace"}, ""))
    mine = catalog.registry.get("model", "mine")

    model = build_model(
        {"trunk": mine}, THREE_FEATURES, TWO_ACTIONS, 2, catalog.parse_config({}), "torch"
    )

    assert model.parts[0].cls is SimpleNamespace
