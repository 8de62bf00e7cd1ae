"""The convolutional network in the catalog: its choice, explanation, direct use, and errors."""

from __future__ import annotations

import re

import numpy as np
import pytest
import warm
from gymnasium import spaces

import rlcatalog
from rlcatalog import Match, ModelCatalog, Preprocessor, Rank, Request, SpaceInfo
from rlcatalog.errors import ConfigError, ConfigTypeError, NoMatchError, UnsupportedSpaceError
from rlcatalog_tf import VisionNetwork as TFNet
from rlcatalog_torch import VisionNetwork as TorchNet
from rlcatalog_visionnet.plugin import match

FOUR_ACTIONS = spaces.Discrete(4)
SCREEN = spaces.Box(0, 255, (84, 84, 4), np.uint8)


# --- matching -------------------------------------------------------------------------------------


def match_request(space, encoded_shape, config=None):
    return match(Request(SpaceInfo.read(space), None, config or {}, None, encoded_shape))


@pytest.mark.parametrize(
    ("layout", "axes"),
    [("hwc", "height, width, channels"), ("chw", "channels, height, width")],
)
def test_images_match(layout, axes):
    result = match_request(SCREEN, (84, 84, 4), {"image_layout": layout})

    why = f"the encoded observation is an image (84, 84, 4), read as {axes}"
    assert result == Match(Rank.GENERIC, why)


@pytest.mark.parametrize(
    ("space", "encoded_shape", "why"),
    [
        pytest.param(
            SCREEN,
            None,
            "takes encoded images; pass ModelCatalog.get_preprocessor_for_space",
            id="not-encoded",
        ),
        pytest.param(
            spaces.Box(-1, 1, (4,)),
            (4,),
            r"takes images, .*; obs is Box\(4,\) float32",
            id="vector",
        ),
        pytest.param(
            spaces.Box(-1, 1, (4, 5)), (4, 5), r"takes images, .*; obs is Box\(4, 5\)", id="matrix"
        ),
        pytest.param(
            spaces.Discrete(3), (3,), r"takes images, .*; obs is Discrete\(3\)", id="Discrete"
        ),
        pytest.param(
            spaces.Dict({"a": SCREEN}),
            (28224,),
            r"takes images, .*; obs is Dict\(a: Box",
            id="Dict",
        ),
        pytest.param(
            SCREEN, (28224,), r"the preprocessor encodes obs with shape \(28224,\)", id="flattened"
        ),
    ],
)
def test_other_observations_do_not_match(space, encoded_shape, why):
    result = match_request(space, encoded_shape)

    assert result.rank is None
    assert re.search(why, result.why)


# --- preprocessors --------------------------------------------------------------------------------


class GrayImagePreprocessor(Preprocessor):
    """Makes a gray image of any observation, in RLlib's old style."""

    def _init_shape(self, obs_space, options):
        return (42, 42, 1)

    def transform(self, observation):
        return np.full((42, 42, 1), np.sum(observation), np.float32)


class VectorPreprocessor(Preprocessor):
    """Makes a vector of any observation."""

    def _init_shape(self, obs_space, options):
        return (5,)

    def transform(self, observation):
        return np.zeros(5, np.float32)


def find_chosen_model(space, config):
    return rlcatalog.explain(space, FOUR_ACTIONS, config).as_dict()["model"]["chosen"]


@pytest.mark.parametrize(
    "space",
    [spaces.Box(-1, 1, (4,)), spaces.Discrete(3), spaces.Dict({"a": SCREEN})],
    ids=["vector", "Discrete", "Dict"],
)
def test_preprocessor_that_returns_images_gets_a_visionnet(space):
    assert find_chosen_model(space, {"custom_preprocessor": GrayImagePreprocessor}) == "visionnet"


@pytest.mark.parametrize(
    "space", [SCREEN, spaces.Dict({"a": SCREEN})], ids=["image", "Dict-with-image"]
)
def test_preprocessor_that_returns_vectors_gets_an_fcnet(space):
    assert find_chosen_model(space, {"custom_preprocessor": VectorPreprocessor}) == "fcnet"


both_frameworks = pytest.mark.parametrize(
    ("framework", "cls"), [("torch", TorchNet), ("tf", TFNet)]
)


@both_frameworks
def test_policy_acts_on_images_of_a_preprocessor(framework, cls):
    config = {
        "custom_preprocessor": GrayImagePreprocessor,  # returns images of 42x42x1
        "conv_filters": [[4, 8, 4], [8, 11, 1]],
    }
    policy = rlcatalog.build(spaces.Box(-1, 1, (4,)), FOUR_ACTIONS, config, framework)

    step = policy.act(np.ones((2, 4), np.float32))

    assert type(policy.model) is cls
    assert step.dist_inputs.shape == (2, 4)  # 2 observations, 4 actions


# --- the choice -----------------------------------------------------------------------------------


@pytest.mark.parametrize("config", [{}, {"_disable_preprocessor_api": True}], ids=str)
def test_categories_with_three_axes_are_not_an_image(config):
    space = spaces.MultiDiscrete(np.full((2, 2, 2), 3))

    assert find_chosen_model(space, config) == "fcnet"


def test_multi_binary_with_three_axes_is_an_image():
    # As in RLlib, whose preprocessor keeps the shape of a MultiBinary.
    assert find_chosen_model(spaces.MultiBinary((4, 4, 3)), {}) == "visionnet"


def test_image_chooses_visionnet():
    model = rlcatalog.explain(SCREEN, FOUR_ACTIONS).as_dict()["model"]

    ranks = {candidate["name"]: candidate["rank"] for candidate in model["candidates"]}
    assert model["chosen"] == "visionnet"
    assert model["distribution"] == "rlcatalog-visionnet"
    assert ranks["fcnet"] == "FALLBACK"
    assert "conv_filters" in model["config_keys"]
    assert "image_scale" in model["config_keys"]
    assert "no_final_linear" in model["config_keys"]


@both_frameworks
def test_get_model_v2_builds_a_visionnet_for_images(framework, cls):
    preprocessor = ModelCatalog.get_preprocessor_for_space(SCREEN)

    model = ModelCatalog.get_model_v2(
        preprocessor.observation_space, FOUR_ACTIONS, 4, {}, framework
    )

    assert type(model) is cls


# --- the explanation ------------------------------------------------------------------------------


def explain_shapes(space, config):
    """Return (stage, shape) of each layer of the visionnet."""
    shapes = []
    for row in rlcatalog.explain(space, FOUR_ACTIONS, config).as_dict()["shapes"]:
        if row["stage"].startswith("visionnet: "):
            shapes.append((row["stage"].removeprefix("visionnet: "), row["shape"]))
    return shapes


def test_explanation_lists_the_layers_of_nature():
    screen = spaces.Box(0, 255, (84, 84, 4), np.uint8)

    shapes = explain_shapes(screen, {"conv_filters": "nature", "post_fcnet_hiddens": [64]})

    assert shapes == [
        ("conv 1 (8x8/4 valid, relu)", [20, 20, 32]),
        ("conv 2 (4x4/2 valid, relu)", [9, 9, 64]),
        ("conv 3 (3x3/1 valid, relu)", [7, 7, 64]),
        ("features", [7 * 7 * 64]),
        ("hidden 1 (relu)", [512]),
        ("hidden 2 (relu)", [64]),
        ("value", []),
        ("logits (linear)", [4]),
    ]


def test_explanation_has_the_layout_of_the_images():
    image = spaces.Box(0, 255, (3, 96, 80), np.uint8)

    shapes = explain_shapes(image, {"image_layout": "chw", "conv_filters": "impala"})

    assert shapes[:3] == [
        ("conv 1 (3x3/1 same, linear)", [16, 96, 80]),
        ("max pool (3x3/2 same)", [16, 48, 40]),
        ("residual: conv 2, conv 3 (3x3/1 same, linear)", [16, 48, 40]),
    ]


def test_explanation_shows_a_convolution_as_output():
    screen = spaces.Box(0, 255, (84, 84, 4), np.uint8)

    shapes = explain_shapes(screen, {"no_final_linear": True})

    last_stage, _ = shapes[-1]
    assert last_stage == "logits (11x11/1 valid, relu)"


def test_empty_list_of_filters_means_the_default():
    # As in RLlib.
    with_empty_list = explain_shapes(SCREEN, {"conv_filters": []})

    assert with_empty_list == explain_shapes(SCREEN, {"conv_filters": None})
    assert len(with_empty_list) > 3


def test_filters_may_be_tuples_and_numpy_numbers():
    filters = ((np.int64(16), (np.int32(8), 8), 4), (32, np.array([4, 4]), 2), (8, 11, 1))

    shapes = explain_shapes(SCREEN, {"conv_filters": filters})

    assert [shape for _, shape in shapes[:3]] == [[21, 21, 16], [11, 11, 32], [1, 1, 8]]


# --- direct use -----------------------------------------------------------------------------------


@pytest.mark.parametrize("cls", [TorchNet, TFNet])
def test_class_takes_any_box_with_three_axes(cls):
    space = spaces.Box(-np.inf, np.inf, (5, 6, 2), np.float64)

    model = cls(space, FOUR_ACTIONS, num_outputs=4, model_config={}, name="net")

    assert model.num_outputs == 4


@pytest.mark.parametrize("cls", [TorchNet, TFNet])
def test_class_rejects_a_vector(cls):
    with pytest.raises(UnsupportedSpaceError, match=r"visionnet needs images.*Use fcnet") as caught:
        cls(spaces.Box(-1, 1, (4,)), FOUR_ACTIONS, num_outputs=4, model_config={}, name="net")

    assert "found shape (4,)" in str(caught.value)


def test_custom_model_visionnet_rejects_a_matrix():
    with pytest.raises(NoMatchError, match=r"takes images.*obs is Box\(2, 2\)"):
        rlcatalog.explain(spaces.Box(-1, 1, (2, 2)), FOUR_ACTIONS, {"custom_model": "visionnet"})


# --- errors ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("config", "message"),
    [
        pytest.param(
            {"conv_filters": [[16, 8, 4], [32, 4, 2]]},
            "last convolution is 9x9 instead of 1x1",
            id="filters that do not reduce the image to 1x1",
        ),
        pytest.param(
            {"conv_filters": [[16, 8, 4], [32, [4, 30], 2]], "conv_padding": "valid"},
            "kernel 4x30 of conv 2 does not fit into 20x20",
            id="a kernel larger than its input",
        ),
        pytest.param(
            {"conv_filters": "nature", "conv_padding": "same"},
            "the preset 'nature' defines its own padding",
            id="padding for a preset",
        ),
        pytest.param(
            {"conv_filters": "natur"},
            "unknown preset 'natur'. Did you mean 'nature'?",
            id="an unknown preset",
        ),
        pytest.param(
            {"conv_filters": [[16, 8, 4], [32, 4]]},
            "entry 1 must be [channels, kernel, stride]",
            id="an entry of two numbers",
        ),
        pytest.param({"conv_filters": [[16, 8, 0]]}, "entry 0 must be", id="a stride of zero"),
        pytest.param(
            {"conv_filters": [[16, [8, 8, 8], 4]]}, "entry 0 must be", id="three kernel sizes"
        ),
        pytest.param({"conv_filters": [[16, 8.0, 4]]}, "entry 0 must be", id="a float as kernel"),
        pytest.param({"conv_filters": [[True, 8, 4]]}, "entry 0 must be", id="a bool as channels"),
        pytest.param({"conv_filters": [16, 8, 4]}, "entry 0 must be", id="a flat list"),
        pytest.param(
            {"conv_filters": [[16, 8, 4]], "conv_flatten": True, "no_final_linear": True},
            "no_final_linear makes the last layer the output, but",
            id="no layer that can be the output",
        ),
        pytest.param({"image_scale": True}, "found True", id="a scale of True"),
        pytest.param({"image_scale": 0}, "found 0", id="a scale of zero"),
        pytest.param({"image_scale": float("inf")}, "found inf", id="an infinite scale"),
        pytest.param({"image_scale": float("nan")}, "found nan", id="a scale of NaN"),
        pytest.param({"image_layout": "nchw"}, "invalid enum value 'nchw'", id="an unknown layout"),
        pytest.param(
            {"conv_padding": "full"}, "invalid enum value 'full'", id="an unknown padding"
        ),
        pytest.param(
            {"conv_activation": "rlu"}, "unknown activation 'rlu'", id="an unknown activation"
        ),
        pytest.param(
            {"conv_kernel_initializer": "xavier"},
            "unknown initialiser 'xavier'",
            id="an unknown initializer",
        ),
        pytest.param(
            {"conv_bias_initializer": "orthogonal"},
            "'orthogonal' needs a matrix, but a bias is a",
            id="an orthogonal bias",
        ),
        pytest.param(
            {"conv_kernel_initializer_config": {"gain": 2.0}},
            "needs 'conv_kernel_initializer'",
            id="arguments without an initializer",
        ),
    ],
)
def test_invalid_config_is_an_error(config, message):
    with pytest.raises(ConfigError, match=re.escape(message)) as caught:
        rlcatalog.explain(SCREEN, FOUR_ACTIONS, config)

    assert not isinstance(caught.value, ConfigTypeError)


def test_error_of_an_orthogonal_bias_lists_what_fits_biases():
    with pytest.raises(ConfigError, match="For biases: ") as caught:
        rlcatalog.explain(SCREEN, FOUR_ACTIONS, {"conv_bias_initializer": "orthogonal"})

    names = str(caught.value).partition("For biases: ")[2].rstrip(".").split(", ")
    assert "zeros" in names
    assert "orthogonal" not in names


def test_error_of_filters_shows_the_layers_and_a_list_that_fits():
    with pytest.raises(ConfigError) as caught:
        rlcatalog.explain(SCREEN, FOUR_ACTIONS, {"conv_filters": [[16, 8, 4], [32, 4, 2]]})

    message = str(caught.value)
    assert "image 84x84x4 -> conv 1 (8x8/4 same, relu) 21x21x16 -> conv 2" in message
    assert "[[16, [8, 8], 4], [32, [4, 4], 2], [256, [11, 11], 1]]" in message
    assert "Or set conv_flatten=True" in message


@pytest.mark.parametrize(
    ("key", "value"),
    [
        pytest.param("conv_filters", 3, id="number-as-filters"),
        pytest.param("conv_flatten", "yes", id="text-as-switch"),
    ],
)
def test_value_of_another_type_is_a_config_type_error(key, value):
    with pytest.raises(ConfigTypeError, match=f"'{key}'"):
        rlcatalog.explain(SCREEN, FOUR_ACTIONS, {key: value})


@pytest.mark.parametrize(
    ("shape", "reason"),
    [
        ((35, 84, 4), "kernel 3x3 of conv 3 does not fit into 2x9"),
        ((7, 7, 3), "kernel 8x8 of conv 1 does not fit into 7x7"),
    ],
    ids=str,
)
def test_image_too_small_for_nature_is_an_error(shape, reason):
    image = spaces.Box(0, 255, shape, np.uint8)

    with pytest.raises(ConfigError, match="the preset 'nature' does not fit") as caught:
        rlcatalog.explain(image, FOUR_ACTIONS, {"conv_filters": "nature"})

    assert reason in str(caught.value)
    assert "This list fits: [[" in str(caught.value)


@pytest.mark.parametrize("no_final_linear", [True, False])
def test_free_log_std_rejects_an_odd_number_of_outputs(framework, no_final_linear, build_net):
    config = {"free_log_std": True, "no_final_linear": no_final_linear}

    with pytest.raises(ConfigError, match="free_log_std needs an even number") as caught:
        build_net(framework, (84, 84, 4), num_outputs=3, **config)

    assert "found 3" in str(caught.value)


@pytest.mark.parametrize(
    "key", ["kernel_initializer", "kernel_initializer_config", "bias_initializer"]
)
def test_keys_of_transposed_convolutions_are_warned_of(key):
    message = f"'conv_transpose_{key}' has no effect: .*transposed convolution"

    with pytest.warns(DeprecationWarning, match=message):
        rlcatalog.explain(SCREEN, FOUR_ACTIONS, {f"conv_transpose_{key}": "zeros_"})


#: Prints the type of each error, and which frameworks are imported then.
BUILD_WITH_INVALID_CONFIGS = """
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


def test_invalid_config_is_an_error_before_frameworks_load(tmp_path):
    process = warm.run(["-c", BUILD_WITH_INVALID_CONFIGS], tmp_path, frameworks=False)

    # Each of the four configs is tried in two frameworks; "[]": neither is imported.
    assert process.stdout.splitlines() == ["ConfigError []"] * 6 + ["ConfigTypeError []"] * 2
