"""The complex-input network in the catalog: choice, explanation, named nets, saving, errors."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import warm
from gymnasium import spaces

import rlcatalog
from rlcatalog import Match, ModelCatalog, ModelSpec, Rank, Stage
from rlcatalog.errors import (
    AmbiguousChoiceError,
    ConfigError,
    ConfigTypeError,
    ModelContractError,
    NoMatchError,
    UnknownNameError,
    UnsupportedSpaceError,
)
from rlcatalog.spaces import Repeated
from rlcatalog_policy import load
from rlcatalog_tf import ComplexInputNetwork as TFNet
from rlcatalog_torch import ComplexInputNetwork as TorchNet, FullyConnectedNetwork

IMAGE = spaces.Box(0, 255, (4, 4, 3), np.uint8)
THREE_FEATURES = spaces.Box(-1, 1, (3,), np.float32)
#: An image, a vector, and a list of up to three pairs of vectors.
MIXED = spaces.Dict(
    {
        "camera": IMAGE,
        "speed": THREE_FEATURES,
        "units": Repeated(spaces.Tuple((THREE_FEATURES, THREE_FEATURES)), 3),
    }
)
THREE_ACTIONS = spaces.Discrete(3)


# --- the choice -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("space", "image"),
    [
        pytest.param(MIXED, "obs['camera']", id="Dict"),
        pytest.param(spaces.Tuple((THREE_FEATURES, IMAGE)), "obs[1]", id="Tuple"),
        pytest.param(
            spaces.Dict({"a": spaces.Tuple((THREE_FEATURES, spaces.Dict({"b": IMAGE})))}),
            "obs['a'][1]['b']",
            id="nested",
        ),
        pytest.param(
            spaces.Dict({"frames": Repeated(IMAGE, 2)}), "obs['frames'][:]", id="list-of-images"
        ),
        pytest.param(
            spaces.Tuple((spaces.Sequence(spaces.Dict({"b": IMAGE})),)),
            "obs[0][:]['b']",
            id="sequence-of-dicts",
        ),
    ],
)
def test_observation_with_an_image_chooses_complex_input(space, image, catalog):
    model = catalog.explain(space, THREE_ACTIONS, {"sequence_max_len": 2}).as_dict()["model"]

    assert model["chosen"] == "complex_input"
    assert model["distribution"] == "rlcatalog-complex-input"
    assert model["reason"] == f"gives the image {image} and each other part a separate net"
    ranks = {candidate["name"]: candidate["rank"] for candidate in model["candidates"]}
    assert ranks == {"complex_input": "GENERIC", "fcnet": "FALLBACK"}


OTHER_SPACES = [
    pytest.param(
        spaces.Dict({"a": THREE_FEATURES, "b": spaces.Discrete(3)}),
        "no part of the observation is an image",
        id="Dict-without-image",
    ),
    pytest.param(
        spaces.Tuple((THREE_FEATURES, spaces.Box(0, 1, (2, 2, 2, 2)))),
        "no part of the observation is an image",
        id="Tuple-without-image",
    ),
    pytest.param(THREE_FEATURES, "takes Dict and Tuple observations; this is a box", id="vector"),
    pytest.param(IMAGE, "takes Dict and Tuple observations; this is a box", id="image"),
    pytest.param(
        Repeated(IMAGE, 2), "takes Dict and Tuple observations; this is a repeated", id="list"
    ),
]


@pytest.mark.parametrize(("space", "reason"), OTHER_SPACES)
def test_other_observations_choose_fcnet(space, reason, catalog):
    model = catalog.explain(space, THREE_ACTIONS).as_dict()["model"]

    assert model["chosen"] == "fcnet"
    reasons = {candidate["name"]: candidate["reason"] for candidate in model["candidates"]}
    assert reasons["complex_input"].startswith(reason)


@pytest.mark.parametrize(("space", "reason"), OTHER_SPACES)
def test_custom_model_names_complex_input_for_any_observation(space, reason, framework, catalog):
    config = {"fcnet_hiddens": [5], "custom_model": "complex_input"}
    policy = rlcatalog.build(space, THREE_ACTIONS, config, framework, catalog=catalog)

    step = policy.act([space.sample(), space.sample()])

    assert type(policy.model).__name__ == "ComplexInputNetwork"
    assert step.dist_inputs.shape == (2, 3)  # 2 observations, 3 actions
    assert np.isfinite(step.value).all()


def test_both_frameworks_export_the_class():
    assert TorchNet.framework_of_class == "torch"
    assert TFNet.framework_of_class == "tf"


def test_get_model_v2_builds_from_a_preprocessed_space():
    preprocessor = ModelCatalog.get_preprocessor_for_space(MIXED)
    config = {"fcnet_hiddens": [5], "input_nets": {"obs['camera']": "fcnet"}}

    model = ModelCatalog.get_model_v2(
        preprocessor.observation_space, THREE_ACTIONS, 3, config, framework="torch"
    )

    assert type(model).__name__ == "ComplexInputNetwork"


# --- the explanation ------------------------------------------------------------------------------


def explain_shapes(catalog, config):
    """Return the shape of each stage: name → shape."""
    explanation = catalog.explain(MIXED, THREE_ACTIONS, config).as_dict()
    return {row["stage"]: row["shape"] for row in explanation["shapes"]}


def test_explanation_lists_each_part_with_its_net(catalog):
    config = {"fcnet_hiddens": [5], "post_fcnet_hiddens": [7, 6], "no_final_linear": True}

    shapes = explain_shapes(catalog, config)

    expected = {
        "complex_input: obs['camera']: fcnet: hidden 1 (tanh)": [5],
        "complex_input: obs['speed']: fcnet: hidden 1 (tanh)": [5],
        "complex_input: obs['units'][:][0]: fcnet: hidden 1 (tanh)": [5],
        "complex_input: obs['units'][:][1]: fcnet: hidden 1 (tanh)": [5],
        "complex_input: obs['units']: average of the items, length": [5 + 5 + 1],
        "complex_input: concatenated features": [5 + 5 + 11],
        "complex_input: post_fcnet 1 (relu)": [7],
        "complex_input: value": [],
        "complex_input: logits (relu)": [3],
    }
    assert {stage: shape for stage, shape in shapes.items() if stage in expected} == expected


@pytest.mark.parametrize(
    ("config", "scaling_of_camera"),
    [
        pytest.param({}, "scaled to [0, 1]", id="by-bounds"),
        # A factor for images replaces their scaling by bounds.
        pytest.param({"image_scale": 0.5}, "", id="image_scale"),
    ],
)
def test_explanation_says_what_scales_each_part(config, scaling_of_camera):
    camera = spaces.Box(0, 255, (84, 84, 3), np.uint8)
    space = spaces.Dict({"camera": camera, "items": spaces.Box(0, 9, (3,), np.int64)})
    policy = rlcatalog.build(space, spaces.Discrete(2), config, "torch")

    camera_row, items_row = policy.explain().as_dict()["plan"]

    assert camera_row["scaling"] == scaling_of_camera
    assert items_row["scaling"] == "scaled to [0, 1]"


def test_net_without_description_has_unknown_widths(make_catalog):
    catalog = make_catalog()
    # Explaining does not import the class, so that there need not be one.
    catalog.register(ModelSpec("silent", {"torch": "nowhere:Silent"}, "describes nothing"))
    config = {
        "fcnet_hiddens": [5],
        "input_nets": {"obs['speed']": "silent"},
        "post_fcnet_hiddens": [7],
    }

    shapes = explain_shapes(catalog, config)

    assert shapes["complex_input: obs['speed']: silent: output"] is None
    assert shapes["complex_input: concatenated features"] is None
    assert shapes["complex_input: post_fcnet 1 (relu)"] == [7]


def test_model_knows_the_sequence_max_len_of_its_preprocessor(catalog):
    space = spaces.Dict({"frames": spaces.Sequence(IMAGE)})
    preprocessor = catalog.preprocessor_for(space, catalog.parse_config({"sequence_max_len": 2}))

    # Without sequence_max_len.
    config = {"fcnet_hiddens": [5]}
    model = catalog.model_v2(preprocessor.observation_space, THREE_ACTIONS, 3, config, "torch")

    assert model.hidden.outputs == 5 + 1  # average of the frames, and their number


# --- named nets -----------------------------------------------------------------------------------


def test_input_nets_chooses_the_net_of_a_part(make_catalog):
    def describe(request):
        return [Stage("all zeros", (2,))]

    # Explaining does not import the class, so that there need not be one.
    catalog = make_catalog()
    catalog.register(
        ModelSpec("zeros", {"torch": "nowhere:Zeros"}, "returns two zeros", describe=describe)
    )
    config = {"fcnet_hiddens": [5], "input_nets": {"obs['units'][:][1]": "zeros"}}

    shapes = explain_shapes(catalog, config)

    assert shapes["complex_input: obs['units'][:][1]: zeros: all zeros"] == [2]
    assert shapes["complex_input: obs['units']: average of the items, length"] == [5 + 2 + 1]


@pytest.mark.parametrize(
    ("space", "config"),
    [
        pytest.param(spaces.Box(-1, 1, (3,), np.float32), {}, id="vector"),
        pytest.param(
            spaces.Discrete(4), {"_disable_preprocessor_api": True}, id="integer as it is"
        ),
    ],
)
def test_input_nets_finds_a_net_of_the_catalog_that_builds(space, config, make_catalog):
    """These observations reach the model without a preprocessor that knows its catalog."""

    class RegisteredNet(FullyConnectedNetwork):
        """A net that the default catalog does not know."""

    catalog = make_catalog()
    catalog.register_model("registered_net", RegisteredNet)
    config = {**config, "custom_model": "complex_input", "input_nets": {"obs": "registered_net"}}
    policy = rlcatalog.build(space, THREE_ACTIONS, config, "torch", catalog=catalog)
    assert type(policy.model.nets[0]) is RegisteredNet


def test_input_nets_with_unknown_path_lists_the_parts(catalog):
    with pytest.raises(ConfigError) as caught:
        catalog.resolve(MIXED, THREE_ACTIONS, {"input_nets": {"obs['camra']": "fcnet"}})

    assert str(caught.value) == (
        "input_nets: \"obs['camra']\" is not a part of the observation. Did you mean"
        " \"obs['camera']\"? Parts: obs['camera'], obs['speed'], obs['units'][:][0],"
        " obs['units'][:][1]."
    )


def test_input_nets_with_the_path_of_a_list_is_an_error(catalog):
    with pytest.raises(ConfigError, match=r"obs\['units'\]\" is not a part"):
        catalog.resolve(MIXED, THREE_ACTIONS, {"input_nets": {"obs['units']": "fcnet"}})


def test_input_nets_with_unknown_name_lists_the_models(catalog):
    with pytest.raises(UnknownNameError) as caught:
        catalog.resolve(MIXED, THREE_ACTIONS, {"input_nets": {"obs['camera']": "fnet"}})

    message = str(caught.value)
    assert message.startswith(
        "input_nets: for \"obs['camera']\": Unknown model 'fnet'. Did you mean 'fcnet'?"
    )
    assert "Known: complex_input, fcnet." in message


def test_input_nets_with_a_memory_is_an_error(make_catalog):
    catalog = make_catalog()
    catalog.register(ModelSpec("recall", {"torch": "nowhere:Recall"}, "a memory", slot="memory"))

    with pytest.raises(ConfigError) as caught:
        catalog.resolve(MIXED, THREE_ACTIONS, {"input_nets": {"obs['speed']": "recall"}})

    assert str(caught.value) == (
        "input_nets: for \"obs['speed']\": 'recall' is a memory, not a trunk."
        " Name a model that takes observations as input."
    )


def test_input_nets_takes_short_paths(catalog):
    config = {"fcnet_hiddens": [5], "input_nets": {"camera": "fcnet", "units[:][1]": "fcnet"}}

    resolution = catalog.resolve(MIXED, THREE_ACTIONS, config)

    # A saved policy has the paths in the form that `explain` shows.
    paths = ["obs['camera']", "obs['speed']", "obs['units'][:][0]", "obs['units'][:][1]"]
    assert list(resolution.pinned_keys()["input_nets"]) == paths
    assert "complex_input: obs['camera']: fcnet: hidden 1 (tanh)" in explain_shapes(catalog, config)


def test_input_nets_with_two_paths_of_one_part_is_an_error(catalog):
    nets = {"camera": "fcnet", "obs['camera']": "visionnet"}

    with pytest.raises(ConfigError, match="two paths name the part obs"):
        catalog.resolve(MIXED, THREE_ACTIONS, {"input_nets": nets})


@pytest.mark.parametrize("net", [3, None, ["fcnet"], torch.nn.Flatten()], ids=str)
def test_input_nets_with_another_value_is_an_error(catalog, net):
    with pytest.raises(ConfigTypeError, match="expected the name of a model") as caught:
        catalog.parse_config({"input_nets": {"obs['speed']": net}})

    assert "'input_nets': for \"obs['speed']\"" in str(caught.value)


def test_input_nets_with_a_class_of_something_else_is_an_error(catalog):
    with pytest.raises(ModelContractError, match="input_nets: for") as caught:
        catalog.resolve(MIXED, THREE_ACTIONS, {"input_nets": {"speed": int}})

    assert "custom_model" not in str(caught.value)


def test_tie_between_nets_says_how_to_name_one(make_catalog):
    def match(request):
        return Match(Rank.GENERIC, "fits everything")

    catalog = make_catalog()
    catalog.register(ModelSpec("twin", {"torch": "nowhere:Twin"}, "a net", match=match))
    catalog.register(ModelSpec("other_twin", {"torch": "nowhere:Twin"}, "a net", match=match))

    with pytest.raises(AmbiguousChoiceError, match="equally well") as caught:
        catalog.resolve(MIXED, THREE_ACTIONS, {"custom_model": "complex_input"})

    hint = "To choose a net for this part only, set input_nets={\"obs['camera']\": name}."
    assert hint in str(caught.value)


# --- saving ---------------------------------------------------------------------------------------


def test_loaded_policy_keeps_its_nets(framework, make_catalog, tmp_path):
    policy = rlcatalog.build(
        MIXED, THREE_ACTIONS, {"fcnet_hiddens": [5]}, framework, catalog=make_catalog()
    )
    policy.save(tmp_path)
    # Later a net is installed that fits every part better.
    better = ModelSpec(
        "better",
        {"torch": "nowhere:Better", "tf": "nowhere:Better"},
        "a net",
        match=lambda request: Match(Rank.SPECIFIC, "better"),
    )
    later_catalog = make_catalog()
    later_catalog.register(better)

    loaded = load(tmp_path, catalog=later_catalog)

    assert set(loaded.config["input_nets"].values()) == {"rlcatalog-fcnet/fcnet"}
    observations = [MIXED.sample(), MIXED.sample()]
    step = loaded.act(observations, explore=False)
    expected = policy.act(observations, explore=False)
    np.testing.assert_array_equal(step.dist_inputs, expected.dist_inputs)


def make_net_spec(rank):
    """Return the declaration of a fully connected net that answers every request with a rank."""
    return ModelSpec(
        "mine",
        {"torch": "rlcatalog_torch:FullyConnectedNetwork"},
        "a net",
        match=lambda request: Match(rank, "takes images"),
    )


def test_loaded_policy_keeps_a_net_that_refuses_its_part_by_now(make_catalog, tmp_path):
    catalog = make_catalog()
    catalog.register(make_net_spec(Rank.FALLBACK))
    config = {"fcnet_hiddens": [5], "input_nets": {"obs['speed']": "mine"}}
    policy = rlcatalog.build(MIXED, THREE_ACTIONS, config, "torch", catalog=catalog)
    policy.save(tmp_path)
    later_catalog = make_catalog()
    later_catalog.register(make_net_spec(rank=None))

    loaded = load(tmp_path, catalog=later_catalog)

    observations = [MIXED.sample(), MIXED.sample()]
    step = loaded.act(observations, explore=False)
    expected = policy.act(observations, explore=False)
    np.testing.assert_array_equal(step.dist_inputs, expected.dist_inputs)
    with pytest.raises(NoMatchError, match=r"'mine'.*does not fit .*: takes images"):
        later_catalog.resolve(MIXED, THREE_ACTIONS, config, "torch")


# --- errors ---------------------------------------------------------------------------------------


def test_no_final_linear_needs_post_fcnet_layers(catalog):
    with pytest.raises(ConfigError) as caught:
        catalog.resolve(MIXED, THREE_ACTIONS, {"no_final_linear": True})

    assert str(caught.value) == (
        "no_final_linear uses the last post_fcnet layer as the output, but post_fcnet_hiddens is"
        " empty. Set post_fcnet_hiddens, or no_final_linear=False."
    )


def test_model_v2_encodes_a_raw_space(catalog):
    space = spaces.Dict({"a": spaces.Discrete(2)})

    model = catalog.model_v2(space, THREE_ACTIONS, 3, {"custom_model": "complex_input"})

    assert model.obs_space.original_space is space


def test_network_class_rejects_a_raw_space():
    space = spaces.Dict({"a": spaces.Discrete(2)})

    with pytest.raises(UnsupportedSpaceError) as caught:
        TorchNet(space, THREE_ACTIONS, 3, {}, "net")

    assert str(caught.value) == (
        "complex_input needs encoded observations, not observations of Dict(a: Discrete(2)): pass"
        " ModelCatalog.get_preprocessor_for_space(space).observation_space."
    )


def test_observation_without_values_is_an_error(catalog):
    space = spaces.Dict({"a": spaces.Box(0, 1, (0,)), "b": Repeated(THREE_FEATURES, 0)})

    with pytest.raises(UnsupportedSpaceError, match=r"^obs: Dict\(a: .*\) has no values\.$"):
        catalog.resolve(space, THREE_ACTIONS, {"custom_model": "complex_input"})


#: Prints the type of each error, and which frameworks are imported then.
BUILD_WITH_INVALID_CONFIGS = """
import sys
import gymnasium as gym
import numpy as np
import rlcatalog
from rlcatalog.errors import CatalogError

space = gym.spaces.Dict(
    {"a": gym.spaces.Box(0, 255, (84, 84, 3), np.uint8), "b": gym.spaces.Discrete(3)}
)
catalog = rlcatalog.default_catalog()
for actions, config in [
    (2, {"input_nets": {"obs['c']": "fcnet"}}),
    (2, {"input_nets": {"obs['b']": "nobody"}}),
    (2, {"no_final_linear": True}),
    (3, {"free_log_std": True}),
]:
    for framework in ("torch", "tf"):
        box = gym.spaces.Discrete(actions)
        try:
            rlcatalog.build(space, box, config, framework)
        except CatalogError as error:
            print(type(error).__name__, sorted({"torch", "tensorflow"} & set(sys.modules)))
        else:
            print(config, "was accepted")
"""


def test_invalid_config_is_an_error_before_frameworks_load(tmp_path):
    process = warm.run(["-c", BUILD_WITH_INVALID_CONFIGS], tmp_path, frameworks=False)

    # Each of the four configs is tried in two frameworks; "[]": neither is imported.
    assert process.stdout.splitlines() == [
        *["ConfigError []"] * 2,
        *["UnknownNameError []"] * 2,
        *["ConfigError []"] * 4,
    ]
