"""The convolutional network through the catalog: when it is chosen, what is explained, what is
refused and how.
"""

from __future__ import annotations

import re

import numpy as np
import pytest
import warm
from gymnasium import spaces

import rlcatalog
from rlcatalog import Match, ModelCatalog, Preprocessor, Rank, Request, SpaceInfo
from rlcatalog.errors import CatalogError, ConfigError, ConfigTypeError, UnsupportedSpaceError
from rlcatalog_tf import VisionNetwork as TFNet
from rlcatalog_torch import VisionNetwork as TorchNet
from rlcatalog_visionnet.plugin import match

FOUR = spaces.Discrete(4)
SCREEN = spaces.Box(0, 255, (84, 84, 4), np.uint8)


# --- choosing -------------------------------------------------------------------------------------


def asked(space, encoded_shape, config=None):
    return match(Request(SpaceInfo.read(space), None, config or {}, None, encoded_shape))


@pytest.mark.parametrize(
    ("layout", "why"),
    [
        ("hwc", "an image (84, 84, 4), read as height, width, channels"),
        ("chw", "an image (84, 84, 4), read as channels, height, width"),
    ],
)
def test_images_match(layout, why):
    found = asked(SCREEN, (84, 84, 4), {"image_layout": layout})
    assert found == Match(Rank.GENERIC, f"the encoded observation is {why}")


@pytest.mark.parametrize(
    ("space", "shape", "why"),
    [
        (SCREEN, None, "takes encoded images; pass ModelCatalog.get_preprocessor_for_space"),
        (spaces.Box(-1, 1, (4,)), (4,), r"takes images, .*; obs is Box\(4,\) float32"),
        (spaces.Box(-1, 1, (4, 5)), (4, 5), r"takes images, .*; obs is Box\(4, 5\)"),
        (spaces.Discrete(3), (3,), r"takes images, .*; obs is Discrete\(3\)"),
        (
            spaces.Dict({"a": SCREEN}),
            (28224,),
            r"takes images, .*; obs is Dict\(a: Box",
        ),
        (SCREEN, (28224,), r"the preprocessor encodes obs with shape \(28224,\)"),
    ],
    ids=str,
)
def test_other_observations_do_not_match(space, shape, why):
    found = asked(space, shape)
    assert found.rank is None
    assert re.search(why, found.why)


class Canvas(Preprocessor):
    """RLlib's old form: anything becomes a gray image."""

    def _init_shape(self, obs_space, options):
        return (42, 42, 1)

    def transform(self, observation):
        return np.full((42, 42, 1), np.sum(observation), np.float32)


class Totals(Preprocessor):
    """Anything becomes a vector."""

    def _init_shape(self, obs_space, options):
        return (5,)

    def transform(self, observation):
        return np.zeros(5, np.float32)


def layers_of(space, config):
    shapes = rlcatalog.explain(space, FOUR, config).as_dict()["shapes"]
    return [
        stage
        for stage in shapes
        if stage["stage"].startswith(("visionnet", "fcnet", "complex_input"))
    ]


@pytest.mark.parametrize(
    ("space", "codec", "like"),
    [
        (spaces.Box(-1, 1, (4,)), Canvas, spaces.Box(-1, 1, (42, 42, 1))),
        (spaces.Discrete(3), Canvas, spaces.Box(-1, 1, (42, 42, 1))),
        (spaces.Dict({"a": SCREEN}), Canvas, spaces.Box(-1, 1, (42, 42, 1))),
        (SCREEN, Totals, spaces.Box(-1, 1, (5,))),
        (spaces.Dict({"a": SCREEN}), Totals, spaces.Box(-1, 1, (5,))),
    ],
    ids=str,
)
def test_what_the_preprocessor_makes_is_what_counts(space, codec, like):
    config = (
        {"conv_filters": [[4, 8, 4], [8, 11, 1]]} if codec is Canvas else {"fcnet_hiddens": [7]}
    )
    assert layers_of(space, {**config, "custom_preprocessor": codec}) == layers_of(like, config)


@pytest.mark.parametrize("framework", ["torch", "tf"])
def test_an_image_that_a_preprocessor_makes_is_seen_as_one(framework):
    space, config = (
        spaces.Box(-1, 1, (4,)),
        {"custom_preprocessor": Canvas, "conv_filters": [[4, 8, 4], [8, 11, 1]]},
    )
    policy = rlcatalog.build(space, FOUR, config, framework)
    expected = {"torch": TorchNet, "tf": TFNet}[framework]
    assert type(policy.model) is expected
    assert policy.act(np.ones((2, 4), np.float32)).dist_inputs.shape == (2, 4)
    encoded = ModelCatalog.get_preprocessor_for_space(space, config).observation_space
    own = {name: value for name, value in config.items() if name != "custom_preprocessor"}
    assert type(ModelCatalog.get_model_v2(encoded, FOUR, 4, own, framework)) is expected


def test_categories_are_no_image():
    space = spaces.MultiDiscrete(np.full((2, 2, 2), 3))
    for config in ({}, {"_disable_preprocessor_api": True}):
        assert rlcatalog.explain(space, FOUR, config).as_dict()["model"]["chosen"] == "fcnet"
    # As in RLlib, whose codec hands a MultiBinary on in its own shape.
    assert (
        rlcatalog.explain(spaces.MultiBinary((4, 4, 3)), FOUR).as_dict()["model"]["chosen"]
        == "visionnet"
    )


@pytest.mark.parametrize("framework", ["torch", "tf"])
def test_the_catalog_builds_it_for_images(framework):
    found = rlcatalog.explain(SCREEN, FOUR, framework=framework).as_dict()
    assert found["model"]["chosen"] == "visionnet"
    assert found["model"]["distribution"] == "rlcatalog-visionnet"
    assert {c["name"]: c["rank"] for c in found["model"]["candidates"]}["fcnet"] == "FALLBACK"
    assert {"conv_filters", "image_scale", "no_final_linear"} <= set(found["model"]["config_keys"])
    prep = ModelCatalog.get_preprocessor_for_space(SCREEN)
    model = ModelCatalog.get_model_v2(prep.observation_space, FOUR, 4, {}, framework)
    assert type(model) is {"torch": TorchNet, "tf": TFNet}[framework]


def test_explain_shows_the_shape_behind_every_layer():
    config = {"post_fcnet_hiddens": [64], "conv_filters": "nature"}
    found = rlcatalog.explain(SCREEN, FOUR, config).as_dict()["shapes"]
    stages = {stage["stage"].removeprefix("visionnet: "): stage["shape"] for stage in found}
    assert list(stages.items())[2:-2] == [
        ("conv 1 (8x8/4 valid, relu)", [20, 20, 32]),
        ("conv 2 (4x4/2 valid, relu)", [9, 9, 64]),
        ("conv 3 (3x3/1 valid, relu)", [7, 7, 64]),
        ("features", [3136]),
        ("hidden 1 (relu)", [512]),
        ("hidden 2 (relu)", [64]),
        ("value", []),
        ("logits (linear)", [4]),
    ]
    found = rlcatalog.explain(
        spaces.Box(0, 255, (3, 96, 80), np.uint8),
        FOUR,
        {"image_layout": "chw", "conv_filters": "impala"},
    ).as_dict()["shapes"]
    stages = [(stage["stage"].removeprefix("visionnet: "), stage["shape"]) for stage in found]
    assert stages[2:5] == [
        ("conv 1 (3x3/1 same, linear)", [16, 96, 80]),
        ("max pool (3x3/2 same)", [16, 48, 40]),
        ("residual: conv 2, conv 3 (3x3/1 same, linear)", [16, 48, 40]),
    ]
    found = rlcatalog.explain(SCREEN, FOUR, {"no_final_linear": True}).as_dict()["shapes"]
    assert found[-3]["stage"] == "visionnet: logits (11x11/1 valid, relu)"


def test_it_can_be_built_directly_on_any_box_of_rank_three():
    space = spaces.Box(-np.inf, np.inf, (5, 6, 2), np.float64)
    for cls in (TorchNet, TFNet):
        assert cls(space, FOUR, 4, {}, "net").num_outputs == 4
        with pytest.raises(
            UnsupportedSpaceError, match=r"visionnet needs images.*found shape \(4,\).*Use fcnet"
        ):
            cls(spaces.Box(-1, 1, (4,)), FOUR, 4, {}, "net")
    with pytest.raises(UnsupportedSpaceError, match=r"found shape \(2, 2\)"):
        rlcatalog.explain(spaces.Box(-1, 1, (2, 2)), FOUR, {"custom_model": "visionnet"})


# --- what is refused ------------------------------------------------------------------------------

REFUSED = {
    "too little": (
        {"conv_filters": [[16, 8, 4], [32, 4, 2]]},
        "config key 'conv_filters': this list does not fit images of size 84x84x4: the output of"
        " the last convolution is 9x9 instead of 1x1. Layer by layer: image 84x84x4 -> conv 1"
        " (8x8/4 same, relu) 21x21x16 -> conv 2 (4x4/2 valid, relu) 9x9x32. This list fits: [[16,"
        " [8, 8], 4], [32, [4, 4], 2], [256, [11, 11], 1]]. Or set conv_flatten=True.",
    ),
    "a last kernel for another size": (
        {"conv_filters": [[16, 8, 4], [32, 4, 2], [64, 9, 1]]},
        " This list fits: [[16, [8, 8], 4], [32, [4, 4], 2], [64, [11, 11], 1]]. Or set"
        " conv_flatten=True.",
    ),
    "a kernel too large": (
        {
            "conv_filters": [[16, 8, 4], [32, [4, 30], 2], [64, 9, 1]],
            "conv_padding": "valid",
            "conv_flatten": True,
        },
        "kernel 4x30 of conv 2 does not fit into 20x20. Layer by layer: image 84x84x4 -> conv 1"
        " (8x8/4 valid, relu) 20x20x16. This list fits: [[16, [8, 8], 4], [32, [4, 4], 2], [256,"
        " [9, 9], 1]].",
    ),
    "a preset's padding": (
        {"conv_filters": "nature", "conv_padding": "same"},
        "config key 'conv_padding': the preset 'nature' defines its own padding, but found"
        " conv_padding='same'. Remove conv_padding, or write the layers as a list.",
    ),
    "an unknown preset": (
        {"conv_filters": "natur"},
        "config key 'conv_filters': unknown preset 'natur'. Did you mean 'nature'? Use nature,"
        " impala, or a list of [channels, kernel, stride].",
    ),
    "two numbers": (
        {"conv_filters": [[16, 8, 4], [32, 4]]},
        "config key 'conv_filters': entry 1 must be [channels, kernel, stride] with integers >= 1,"
        " where kernel and stride may also be [height, width]; found [32, 4].",
    ),
    "a stride of zero": ({"conv_filters": [[16, 8, 0]]}, "entry 0 must be"),
    "three kernel sizes": ({"conv_filters": [[16, [8, 8, 8], 4]]}, "entry 0 must be"),
    "a float": ({"conv_filters": [[16, 8.0, 4]]}, "entry 0 must be"),
    "a bool": ({"conv_filters": [[True, 8, 4]]}, "entry 0 must be"),
    "a flat list": ({"conv_filters": [16, 8, 4]}, "entry 0 must be"),
    "no layer to resize": (
        {"conv_filters": [[16, 8, 4]], "conv_flatten": True, "no_final_linear": True},
        "no_final_linear makes the last layer the output, but the output of the last convolution"
        " is 20x20x16 instead of 1x1. Add post_fcnet_hiddens, or convolutions that reduce the"
        " image to 1x1.",
    ),
    "a scale that says nothing": (
        {"image_scale": True},
        "config key 'image_scale': expected a positive factor, False for no scaling, or None to"
        " scale integers by their bounds; found True.",
    ),
    "a scale of zero": ({"image_scale": 0}, "found 0"),
    "a scale without end": ({"image_scale": float("inf")}, "found inf"),
    "no number": ({"image_scale": float("nan")}, "found nan"),
    "an unknown layout": ({"image_layout": "nchw"}, "invalid enum value 'nchw'"),
    "an unknown padding": ({"conv_padding": "full"}, "invalid enum value 'full'"),
    "an unknown activation": (
        {"conv_activation": "rlu"},
        "'conv_activation': unknown activation 'rlu'. Did you mean",
    ),
    "an unknown initialiser": (
        {"conv_kernel_initializer": "xavier"},
        "'conv_kernel_initializer': unknown initialiser 'xavier'",
    ),
    "a matrix for a bias": (
        {"conv_bias_initializer": "orthogonal"},
        "'orthogonal' needs a matrix, but a bias is a",
    ),
    "arguments without an initialiser": (
        {"conv_kernel_initializer_config": {"gain": 2.0}},
        "needs 'conv_kernel_initializer'",
    ),
    "a number for the filters": ({"conv_filters": 3}, "'conv_filters'"),
    "text for a switch": ({"conv_flatten": "yes"}, "'conv_flatten'"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_wrong_config_is_refused_with_reasons(name):
    config, message = REFUSED[name]
    with pytest.raises(ConfigError) as caught:
        rlcatalog.explain(SCREEN, FOUR, config)
    assert message in str(caught.value)
    assert isinstance(caught.value, ConfigTypeError) == (
        name in ("a number for the filters", "text for a switch")
    )


@pytest.mark.parametrize(
    ("filters", "size", "needed"),
    [
        ("nature", (35, 84, 4), "kernel 3x3 of conv 3 does not fit into 2x9"),
        ("nature", (7, 7, 3), "kernel 8x8 of conv 1 does not fit into 7x7"),
    ],
)
def test_an_image_too_small_for_a_preset_is_refused(filters, size, needed):
    with pytest.raises(ConfigError, match=f"the preset 'nature' does not fit.*{needed}") as caught:
        rlcatalog.explain(spaces.Box(0, 255, size, np.uint8), FOUR, {"conv_filters": filters})
    works = eval(re.search(r"This list fits: (\[.*\])\.", str(caught.value))[1])
    rlcatalog.explain(spaces.Box(0, 255, size, np.uint8), FOUR, {"conv_filters": works})


@pytest.mark.parametrize("no_final_linear", [True, False])
def test_an_odd_number_of_outputs_cannot_be_halved(no_final_linear):
    config = {"free_log_std": True, "no_final_linear": no_final_linear}
    for cls in (TorchNet, TFNet):
        with pytest.raises(
            ConfigError, match=r"free_log_std needs an even number of outputs.*found 3"
        ):
            cls(SCREEN, None, 3, config, "net")


@pytest.mark.parametrize(
    "key", ["kernel_initializer", "kernel_initializer_config", "bias_initializer"]
)
def test_transposed_convolutions_have_no_keys(key):
    with pytest.warns(
        DeprecationWarning, match=f"'conv_transpose_{key}' has no effect: .*transposed convolution"
    ):
        rlcatalog.explain(SCREEN, FOUR, {f"conv_transpose_{key}": "zeros_"})


def test_numpy_numbers_and_tuples_are_taken():
    config = {
        "conv_filters": ((np.int64(16), (np.int32(8), 8), 4), (32, np.array([4, 4]), 2), (8, 11, 1))
    }
    found = rlcatalog.explain(SCREEN, FOUR, config).as_dict()["shapes"]
    assert [stage["shape"] for stage in found[2:5]] == [[21, 21, 16], [11, 11, 32], [1, 1, 8]]


BAD = """
import sys
import gymnasium as gym
import rlcatalog
from rlcatalog.errors import CatalogError

screen, two = gym.spaces.Box(0, 255, (84, 84, 4), "uint8"), gym.spaces.Discrete(2)
for config in (
    {"conv_filters": [[16, 8, 4]]},
    {"conv_filters": "x"},
    {"image_scale": -1},
    {"conv_padding": 3},
):
    for framework in ("torch", "tf"):
        try:
            rlcatalog.build(screen, two, config, framework)
        except CatalogError as error:
            print(type(error).__name__, sorted({"torch", "tensorflow"} & set(sys.modules)))
        else:
            print(config, "was accepted")
"""


def test_a_wrong_config_is_refused_before_a_framework_is_imported(tmp_path):
    done = warm.run(["-c", BAD], tmp_path, frameworks=False)
    kinds = ["ConfigError", "ConfigError", "ConfigError", "ConfigTypeError"]
    assert done.stdout.splitlines() == [f"{kind} []" for kind in kinds for _ in range(2)]
    assert issubclass(ConfigError, CatalogError)


def test_an_empty_list_is_the_default_as_in_rllib():
    found = [
        rlcatalog.explain(SCREEN, FOUR, {"conv_filters": filters}).as_dict()["shapes"]
        for filters in ([], None)
    ]
    assert found[0] == found[1]
    assert len(found[0]) > 3
