"""Config keys that declarations name, and keys of a config that no chosen part reads."""

from __future__ import annotations

import sys
from types import ModuleType

import gymnasium as gym
import msgspec
import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete, MultiDiscrete, Text

import rlcatalog
from rlcatalog import Catalog, EnvWrapperSpec, Match, ModelSpec, Rank
from rlcatalog.config import KernelConfig
from rlcatalog.errors import (
    ConfigError,
    DeclarationError,
    PartError,
    PluginWarning,
    UnreadKeysWarning,
)
from rlcatalog.plugins.declarations import PLAIN_KEYS
from rlcatalog_testing import PluginEntryPoint, isolated_catalog, plugin_of
from rlcatalog_torch import FullyConnectedNetwork

THREE_FEATURES = Box(-1, 1, (3,), np.float32)
IMAGE = Box(0, 255, (42, 42, 3), np.uint8)
TWO_ACTIONS = Discrete(2)
BUILT_IN = (
    "rlcatalog-preprocessors", "rlcatalog-fcnet", "rlcatalog-visionnet", "rlcatalog-lstm",
    "rlcatalog-attention", "rlcatalog-complex-input", "rlcatalog-categorical", "rlcatalog-gaussian",
    "rlcatalog-multi-action", "rlcatalog-atari", "rlcatalog-autoregressive", "rlcatalog-parametric",
)  # fmt: skip


class AcmeConfig(msgspec.Struct, frozen=True, kw_only=True):
    acme_width: int = 3


@pytest.fixture
def acme_module(monkeypatch):
    """The module of package acme. Its config struct has the key `acme_width`."""
    module = ModuleType("made_up_acme")
    module.AcmeConfig = AcmeConfig
    monkeypatch.setitem(sys.modules, "made_up_acme", module)
    return module


@pytest.fixture
def make_catalog(acme_module):
    """Return a catalog of built-in packages and of package acme, which declares these parts."""

    def make(*models, built_in=BUILT_IN, env_wrappers=(), environ=None):
        plugin = plugin_of(rlcatalog_models=list(models), rlcatalog_env_wrappers=list(env_wrappers))
        return isolated_catalog(*built_in, PluginEntryPoint(plugin, "acme"), environ=environ)

    return make


def declare_model(name="acme_net", **fields):
    """Return the declaration of a model of package acme."""
    targets = {"torch": "made_up_acme:Net"}
    return ModelSpec(name, targets, "made up", config="made_up_acme:AcmeConfig", **fields)


def match_best(request):
    return Match(Rank.SPECIFIC, "fits")


def match_none(request):
    return Match(None, "does not fit")


def find_unread_keys(catalog, config, *, obs=THREE_FEATURES, action=TWO_ACTIONS):
    """Return the unread keys that an explanation lists; it must not warn about them."""
    # pytest makes any warning an error.
    return catalog.explain(obs, action, config, "torch").as_dict()["unread"]


# --- keys that declarations name ------------------------------------------------------------------


@pytest.fixture
def declarations_with_typo():
    """Two models of package acme; the first one says that it reads a key that does not exist."""
    return [
        declare_model("acme_typo", reads=("vf_share_layer",)),
        declare_model("acme_good", reads=("vf_share_layers",)),
    ]


def test_unknown_key_in_reads_warning_suggests_the_nearest(make_catalog, declarations_with_typo):
    with pytest.warns(PluginWarning, match=r"Did you mean 'vf_share_layers'\?") as caught:
        make_catalog(*declarations_with_typo)

    assert (
        "is loaded, but DeclarationError: model 'acme_typo': reads names the config key"
        " 'vf_share_layer', which no package declares."
    ) in str(caught[0].message)


def test_unknown_key_in_reads_leaves_out_only_its_part(make_catalog, declarations_with_typo):
    with pytest.warns(PluginWarning, match="vf_share_layer"):
        catalog = make_catalog(*declarations_with_typo)

    names = catalog.registry.names(["model"])
    assert "acme_good" in names
    assert "acme_typo" not in names


def test_reads_given_as_text_is_rejected():
    with pytest.raises(DeclarationError, match="reads must be a tuple of text") as caught:
        declare_model(reads="vf_share_layers")

    assert "found 'vf_share_layers'" in str(caught.value)


@pytest.mark.parametrize("name", [["acme_net"], None, 3], ids=repr)
def test_name_that_is_not_text_is_rejected(name):
    with pytest.raises(DeclarationError, match=r"Spec\(.*\): name must be a word"):
        declare_model(name)


def test_name_that_became_a_list_leaves_the_catalog_alone(make_catalog):
    spec = declare_model("acme_net")
    # The fields of a declaration are frozen, but a plugin can get around that.
    object.__setattr__(spec, "name", ["acme_net"])

    with pytest.warns(PluginWarning, match=r"has failed: ModelSpec\(\['acme_net'\]\)"):
        catalog = make_catalog(spec)

    assert "fcnet" in catalog.registry.names(["model"])


def test_plain_trunk_with_config_keys_is_refused():
    target = {"torch": "acme.torch:Net"}
    with pytest.raises(DeclarationError, match="a plain module gets no config"):
        ModelSpec("acme_net", target, "a toy", plain=True, config="acme.config:NetConfig")

    ModelSpec("acme_gru", target, "a toy", plain=True, slot="memory", config="acme.config:Switch")


def test_switch_has_to_be_a_declared_key(make_catalog):
    with pytest.warns(PluginWarning, match="switch names the config key 'use_acme'") as caught:
        make_catalog(declare_model(switch="use_acme"))

    assert "which no package declares" in str(caught[0].message)


def test_switch_has_to_be_text():
    with pytest.raises(DeclarationError, match="switch must be the name of a config key") as caught:
        declare_model(switch=["use_acme"])

    assert "found ['use_acme']" in str(caught.value)


@pytest.mark.parametrize(
    "key",
    [
        pytest.param("free_log_std", id="kernel"),
        pytest.param("acme_width", id="its-own-package"),
        pytest.param("fcnet_hiddens", id="another-package"),
    ],
)
def test_reads_accepts_keys_of_kernel_and_packages(make_catalog, key):
    catalog = make_catalog(declare_model("acme_net", reads=(key,)))

    assert "acme_net" in catalog.registry.names(["model"])


@pytest.mark.parametrize(
    "options",
    [
        pytest.param({"built_in": ("rlcatalog-preprocessors",)}, id="not-installed"),
        pytest.param({"environ": {"RLCATALOG_DISABLE_PLUGINS": "rlcatalog-fcnet"}}, id="disabled"),
    ],
)
def test_reads_accepts_keys_of_absent_packages(make_catalog, options):
    # The key is one of rlcatalog-fcnet.
    catalog = make_catalog(declare_model("acme_net", reads=("fcnet_hiddens",)), **options)

    assert "acme_net" in catalog.registry.names(["model"])


def test_registered_part_with_unknown_key_is_rejected():
    catalog = Catalog([], environ={})
    spec = ModelSpec("mine", {"torch": "m:C"}, "mine", reads=("max_seq_length",))

    with pytest.raises(DeclarationError, match="Did you mean 'max_seq_len'"):
        catalog.register(spec)

    assert catalog.parts() == []


# --- keys that no chosen part reads ---------------------------------------------------------------


@pytest.fixture(scope="module")
def catalog():
    """A catalog of built-in parts."""
    return isolated_catalog(*BUILT_IN)


@pytest.mark.parametrize(
    ("obs", "config", "unread"),
    [
        pytest.param(
            THREE_FEATURES,
            {"conv_filters": "nature", "fcnet_hiddens": [4]},
            ["conv_filters"],
            id="convolutions-on-a-vector",
        ),
        pytest.param(
            IMAGE,
            {"fcnet_hiddens": [4], "conv_activation": "tanh"},
            ["fcnet_hiddens"],
            id="dense-layers-on-an-image",
        ),
        pytest.param(
            gym.spaces.Dict({"image": IMAGE, "vector": THREE_FEATURES}),
            {"conv_activation": "tanh", "fcnet_hiddens": [4]},
            [],
            id="both-on-a-dict",
        ),
        pytest.param(
            THREE_FEATURES,
            {"post_fcnet_activation": "tanh"},
            ["post_fcnet_activation"],
            id="activation-without-layers",
        ),
        pytest.param(
            THREE_FEATURES,
            {"post_fcnet_activation": "tanh", "post_fcnet_hiddens": [4]},
            [],
            id="activation-with-layers",
        ),
        pytest.param(
            IMAGE,
            {"post_fcnet_weights_initializer": "xavier_uniform"},
            ["post_fcnet_weights_initializer"],
            id="initializer-without-layers",
        ),
        pytest.param(
            THREE_FEATURES,
            {"lstm_cell_size": 256, "conv_filters": None},
            [],
            id="keys-at-their-defaults",
        ),
    ],
)
def test_layer_keys_without_effect_are_unread(catalog, obs, config, unread):
    assert find_unread_keys(catalog, config, obs=obs) == unread


@pytest.mark.parametrize(
    ("config", "unread"),
    [
        pytest.param({"lstm_cell_size": 4}, ["lstm_cell_size"], id="memory-is-off"),
        pytest.param(
            {"lstm_cell_size": 4, "use_lstm": True, "_time_major": True}, [], id="memory-is-on"
        ),
        # A memory has no hidden layer that could be the output.
        pytest.param(
            {"use_lstm": True, "no_final_linear": True, "max_seq_len": 5},
            ["no_final_linear"],
            id="no-final-layer-below-an-lstm",
        ),
        pytest.param({"no_final_linear": True}, [], id="no-final-layer-without-memory"),
        pytest.param({"max_seq_len": 7}, ["max_seq_len"], id="sequences-without-memory"),
        pytest.param({"max_seq_len": 7, "use_attention": True}, [], id="sequences-of-attention"),
    ],
)
def test_memory_keys_without_effect_are_unread(catalog, config, unread):
    assert find_unread_keys(catalog, config) == unread


def test_unread_keys_have_the_order_of_the_config(catalog):
    config = {"dim": 42, "lstm_cell_size": 4, "attention_dim": 8, "conv_flatten": True}

    assert find_unread_keys(catalog, config) == list(config)


@pytest.mark.parametrize(
    ("config", "unread"),
    [
        pytest.param(
            {
                "check_observations": "always",
                "action_bounds": "affine",
                "action_mask_key": "m",
                "_disable_action_flattening": True,
            },
            [],
            id="read-by-the-kernel",
        ),
        pytest.param({"custom_model_config": {"a": 1}}, ["custom_model_config"], id="no-model"),
        pytest.param(
            {"custom_model": "gtrxl", "custom_model_config": {"num_heads": 1}}, [], id="model"
        ),
        pytest.param({"use_parametric": False}, [], id="switch-is-off"),
    ],
)
def test_kernel_keys_without_effect_are_unread(catalog, config, unread):
    assert find_unread_keys(catalog, config) == unread


@pytest.mark.parametrize(
    ("obs", "unread"),
    [
        pytest.param(Discrete(3), [], id="discrete"),
        pytest.param(THREE_FEATURES, ["_disable_preprocessor_api"], id="vector"),
    ],
)
def test_disabled_encoding_is_unread_if_nothing_is_encoded(catalog, obs, unread):
    assert find_unread_keys(catalog, {"_disable_preprocessor_api": True}, obs=obs) == unread


@pytest.mark.parametrize(
    ("entry", "unread"),
    [
        pytest.param(Text(3), [], id="text"),
        pytest.param(IMAGE, ["text_encoding"], id="image"),
    ],
)
def test_text_encoding_is_unread_if_no_entry_is_text(catalog, entry, unread):
    obs = gym.spaces.Dict({"a": entry, "b": THREE_FEATURES})

    assert find_unread_keys(catalog, {"text_encoding": "index"}, obs=obs) == unread


def test_keys_of_a_head_and_its_distribution_are_read(catalog):
    config = {"use_autoregressive": True, "autoregressive_hiddens": [3]}

    assert find_unread_keys(catalog, config, action=MultiDiscrete([2, 2])) == []


@pytest.mark.parametrize(
    ("action", "unread"),
    [
        pytest.param(
            gym.spaces.Dict({"aim": THREE_FEATURES, "go": TWO_ACTIONS}), [], id="both-parts"
        ),
        pytest.param(TWO_ACTIONS, ["gaussian_log_std_min"], id="discrete"),
    ],
)
def test_distribution_of_a_part_of_the_action_reads_keys(catalog, action, unread):
    # The Gaussian of the Box reads the first key, the categorical distribution the second one.
    config = {"gaussian_log_std_min": -2.0, "categorical_temperature": 2.0}

    assert find_unread_keys(catalog, config, action=action) == unread


# --- keys of Atari games --------------------------------------------------------------------------

#: Observations of a game after the wrappers of rlcatalog-atari.
TWO_FRAMES = Box(0, 255, (84, 84, 2), np.uint8)
RLLIB_PIXELS = Box(-1, 1, (84, 84, 1), np.float32)
RAM = Box(-1, 127 / 128, (128,), np.float32)


@pytest.mark.parametrize(
    "obs",
    [pytest.param(THREE_FEATURES, id="vector"), pytest.param(IMAGE, id="image-of-another-size")],
)
def test_atari_keys_are_unread_without_a_game(catalog, obs):
    config = {
        "framestack": 2,
        "dim": 64,
        "grayscale": True,
        "zero_mean": False,
        "atari_terminal_on_life_loss": True,
    }

    assert find_unread_keys(catalog, config, obs=obs) == list(config)


@pytest.mark.parametrize(
    ("obs", "config", "unread"),
    [
        # An image of this size may be a game's, but three channels are not two frames.
        pytest.param(IMAGE, {"dim": 42, "framestack": 2}, ["framestack"], id="size-of-the-image"),
        pytest.param(
            TWO_FRAMES,
            {"framestack": 2, "grayscale": True, "zero_mean": False},
            ["grayscale", "zero_mean"],
            id="stacked-frames",
        ),
        pytest.param(
            RLLIB_PIXELS,
            {"preprocessor_pref": "rllib", "grayscale": True, "zero_mean": False, "framestack": 2},
            ["framestack"],
            id="pixels-like-rllib",
        ),
        pytest.param(
            RAM, {"preprocessor_pref": "rllib", "zero_mean": False}, ["zero_mean"], id="ram"
        ),
        pytest.param(
            Box(0, 255, (210, 160, 3), np.uint8),
            {"preprocessor_pref": None, "framestack": 2},
            ["framestack"],
            id="game-without-wrappers",
        ),
        pytest.param(
            Box(0, 255, (84 * 84 * 2,), np.uint8), {"framestack": 2}, [], id="flattened-frames"
        ),
        pytest.param(
            gym.spaces.Dict({"game": Box(0, 255, (2, 84, 84), np.uint8)}),
            {"framestack": 2},
            [],
            id="frames-in-a-dict-channels-first",
        ),
    ],
)
def test_atari_keys_without_effect_are_unread(catalog, obs, config, unread):
    assert find_unread_keys(catalog, config, obs=obs) == unread


# --- keys of plugins and custom classes -----------------------------------------------------------


@pytest.mark.parametrize(
    ("preferred", "unread"),
    [
        pytest.param("acme", [], id="wrapper-is-preferred"),
        pytest.param("", ["acme_width"], id="wrapper-is-never-asked"),
    ],
)
def test_key_of_an_environment_wrapper_counts_as_read(make_catalog, preferred, unread):
    wrapper = EnvWrapperSpec(
        "acme_wrapper", {"numpy": "m:f"}, "", match=match_none, config="made_up_acme:AcmeConfig"
    )
    environ = {"RLCATALOG_PREFER_PLUGINS": preferred}
    catalog = make_catalog(env_wrappers=[wrapper], environ=environ)

    assert find_unread_keys(catalog, {"acme_width": 4}) == unread


def test_key_of_a_model_that_is_not_chosen_is_unread(make_catalog):
    catalog = make_catalog(declare_model())

    assert find_unread_keys(catalog, {"acme_width": 4}) == ["acme_width"]


def test_trunk_of_a_plugin_may_read_max_seq_len(make_catalog):
    catalog = make_catalog(declare_model("acme_net"))

    config = {"custom_model": "acme_net", "max_seq_len": 3}
    assert find_unread_keys(catalog, config) == []


class RllibModel(rlcatalog.ModelV2):
    """A model in RLlib's form, which reads what it likes from the config."""

    framework_of_class = "torch"


@pytest.fixture
def own_catalog():
    """A catalog of built-in parts, for tests that change it."""
    return isolated_catalog(*BUILT_IN)


def test_custom_class_in_rllib_form_reads_all_keys(own_catalog):
    config = {"conv_filters": "nature", "custom_model": RllibModel, "vf_share_layers": False}

    assert find_unread_keys(own_catalog, config) == []


def test_registered_class_in_rllib_form_reads_all_keys(own_catalog):
    own_catalog.register_model("mine", RllibModel)

    config = {"conv_filters": "nature", "custom_model": "mine", "vf_share_layers": False}
    assert find_unread_keys(own_catalog, config) == []


def test_registered_class_may_say_which_keys_it_reads(own_catalog):
    own_catalog.register_model("mine", RllibModel, reads=("vf_share_layers",))

    config = {"conv_filters": "nature", "custom_model": "mine", "vf_share_layers": False}
    assert find_unread_keys(own_catalog, config) == ["conv_filters"]


@pytest.mark.parametrize(
    ("obs", "unread"),
    [
        pytest.param(THREE_FEATURES, ["acme_width"], id="vector"),
        pytest.param(Box(-1, 1, (3, 3)), [], id="matrix"),
    ],
)
def test_ignores_function_makes_keys_unread(make_catalog, obs, unread):
    def ignore_width_for_vectors(request):
        if request.obs.rank == 1:
            return {"acme_width": "a wider space"}
        return {}

    spec = declare_model(match=match_best, ignores=ignore_width_for_vectors)
    catalog = make_catalog(spec, environ={"RLCATALOG_PREFER_PLUGINS": "acme"})

    assert find_unread_keys(catalog, {"acme_width": 4}, obs=obs) == unread


def test_ignores_function_has_to_return_a_dict(make_catalog):
    def return_a_list(request):
        return ["acme_width"]

    spec = declare_model(match=match_best, ignores=return_a_list)
    catalog = make_catalog(spec, environ={"RLCATALOG_PREFER_PLUGINS": "acme"})

    with pytest.raises(PartError, match=r"ignores function returned .* a dict of"):
        find_unread_keys(catalog, {"acme_width": 4})


def test_keys_of_an_inner_net_count_as_read(make_catalog):
    def name_inner_net(request):
        inner = request.catalog.trunk(request, "fcnet")
        return {"acme_nets": {"obs": inner.address}}

    spec = declare_model(match=match_best, pinned_keys=name_inner_net)
    catalog = make_catalog(spec, environ={"RLCATALOG_PREFER_PLUGINS": "acme"})

    config = {"fcnet_hiddens": [4], "conv_filters": "nature", "acme_width": 2}
    assert find_unread_keys(catalog, config) == ["conv_filters"]


# --- the warning ----------------------------------------------------------------------------------


def test_warning_lists_unread_keys_and_the_parts_that_read_them(catalog):
    config = {"conv_filters": "nature", "lstm_cell_size": 4, "fcnet_hiddens": [5]}

    with pytest.warns(UnreadKeysWarning) as caught:
        catalog.resolve(THREE_FEATURES, TWO_ACTIONS, config, "torch")

    [warning] = caught
    assert str(warning.message) == (
        "model config: no chosen part reads conv_filters (read by visionnet), lstm_cell_size (read"
        " by lstm). Remove keys without effect, or choose a part that reads them; explain() lists"
        " the parts and their keys."
    )


def test_warning_points_to_the_line_of_the_caller(catalog):
    with pytest.warns(UnreadKeysWarning) as caught:
        catalog.resolve(THREE_FEATURES, TWO_ACTIONS, {"conv_filters": "nature"}, "torch")

    assert caught[0].filename == __file__


def test_warning_says_what_an_unread_key_needs(catalog):
    config = {"zero_mean": False, "post_fcnet_activation": "tanh", "framestack": 2}
    two_frames_of_a_game = Box(0, 255, (84, 84, 2), np.uint8)  # for which framestack is read

    with pytest.warns(UnreadKeysWarning) as caught:
        catalog.resolve(two_frames_of_a_game, TWO_ACTIONS, config, "torch")

    [warning] = caught
    assert str(warning.message).startswith(
        "model config: no chosen part reads zero_mean (read with preprocessor_pref='rllib'),"
        " post_fcnet_activation (read with post_fcnet_hiddens). "
    )


def test_build_warns_once_for_equal_configs(own_catalog):
    config = {"conv_filters": "nature", "fcnet_hiddens": [6]}

    with pytest.warns(UnreadKeysWarning) as caught:
        rlcatalog.build(THREE_FEATURES, TWO_ACTIONS, config, "torch", catalog=own_catalog)
    assert len(caught) == 1

    # pytest makes any warning an error.
    rlcatalog.build(THREE_FEATURES, TWO_ACTIONS, dict(config), "torch", catalog=own_catalog)


def test_build_warns_after_an_explanation(own_catalog):
    config = {"conv_filters": "nature"}
    own_catalog.explain(THREE_FEATURES, TWO_ACTIONS, config, "torch")  # does not warn

    with pytest.warns(UnreadKeysWarning):
        rlcatalog.build(THREE_FEATURES, TWO_ACTIONS, config, "torch", catalog=own_catalog)


def test_explanation_of_policy_lists_unread_keys(own_catalog):
    with pytest.warns(UnreadKeysWarning):
        policy = rlcatalog.build(
            THREE_FEATURES, TWO_ACTIONS, {"conv_filters": "nature"}, "torch", catalog=own_catalog
        )

    assert policy.explain().as_dict()["unread"] == ["conv_filters"]


def test_failing_lookup_does_not_warn(catalog):
    config = {"free_log_std": True, "conv_filters": "nature"}

    # Discrete(3) has three logits, which have no halves.
    with pytest.raises(ConfigError, match="free_log_std trains the second half"):
        catalog.resolve(THREE_FEATURES, Discrete(3), config, "torch")


def test_failing_build_does_not_warn(make_catalog):
    # The module of acme has no class Net.
    catalog = make_catalog(declare_model("acme_net"))
    config = {"conv_filters": "nature", "custom_model": "acme_net"}

    for _attempt in range(2):
        with pytest.raises(PartError, match="acme_net"):
            rlcatalog.build(THREE_FEATURES, TWO_ACTIONS, config, "torch", catalog=catalog)


def test_build_warns_after_a_failing_build(make_catalog, acme_module):
    catalog = make_catalog(declare_model("acme_net"))
    config = {"conv_filters": "nature", "custom_model": "acme_net"}
    with pytest.raises(PartError, match="acme_net"):
        rlcatalog.build(THREE_FEATURES, TWO_ACTIONS, config, "torch", catalog=catalog)

    acme_module.Net = FullyConnectedNetwork

    with pytest.warns(UnreadKeysWarning, match="conv_filters"):
        rlcatalog.build(THREE_FEATURES, TWO_ACTIONS, config, "torch", catalog=catalog)


# --- keys of the kernel ---------------------------------------------------------------------------


def test_kernel_keys_are_all_read_somewhere():
    from rlcatalog.config.kernel_keys import READ_BY_KERNEL, READ_WITH_MEMORY

    catalog = isolated_catalog(*BUILT_IN)
    read_by_parts = {key for part in catalog.parts() for key in catalog.config_keys(part)}
    keys = set(KernelConfig.__struct_fields__)

    assert keys - read_by_parts - READ_BY_KERNEL - READ_WITH_MEMORY - {*PLAIN_KEYS} == set()


def test_kernel_keys_with_other_readers_exist():
    from rlcatalog.config.kernel_keys import READ_BESIDE, READ_BY_KERNEL, READ_WITH_MEMORY

    keys = set(KernelConfig.__struct_fields__)

    assert keys >= READ_BY_KERNEL | READ_WITH_MEMORY | set(READ_BESIDE)
