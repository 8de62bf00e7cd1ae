"""Keys of the model config: those that declarations name exist, and those that nothing reads are
said.
"""

from __future__ import annotations

import sys
import warnings
from types import ModuleType

import gymnasium as gym
import msgspec
import numpy as np
import pytest

import rlcatalog
from rlcatalog import Catalog, EnvWrapperSpec, Match, ModelSpec, Rank, Stage
from rlcatalog.config import KernelConfig
from rlcatalog.errors import DeclarationError, PartError, PluginWarning, UnreadKeysWarning
from rlcatalog.plugins.declarations import PLAIN_KEYS
from rlcatalog_testing import PluginEntryPoint, isolated_catalog, plugin_of

BOX = gym.spaces.Box(-1, 1, (3,), np.float32)
IMAGE = gym.spaces.Box(0, 255, (42, 42, 3), np.uint8)
TWO = gym.spaces.Discrete(2)
PARTS = (
    "rlcatalog-preprocessors", "rlcatalog-fcnet", "rlcatalog-visionnet", "rlcatalog-lstm",
    "rlcatalog-attention", "rlcatalog-complex-input", "rlcatalog-categorical", "rlcatalog-gaussian",
    "rlcatalog-multi-action", "rlcatalog-atari", "rlcatalog-autoregressive", "rlcatalog-parametric",
)  # fmt: skip


class AcmeConfig(msgspec.Struct, frozen=True, kw_only=True):
    acme_width: int = 3


@pytest.fixture
def acme(monkeypatch):
    """A catalog of the built-in parts beside a plugin with these models, whose config struct is
    `AcmeConfig`.
    """
    module = ModuleType("made_up_acme")
    module.AcmeConfig = AcmeConfig
    monkeypatch.setitem(sys.modules, "made_up_acme", module)

    def make(*specs, environ=None, parts=PARTS, **hooks):
        hooks = {"rlcatalog_models": list(specs), **hooks} if specs else hooks
        return isolated_catalog(
            *parts, PluginEntryPoint(plugin_of(**hooks), "acme"), environ=environ
        )

    return make


def spec(name="acme", **fields):
    fields = {"config": "made_up_acme:AcmeConfig", **fields}
    return ModelSpec(name, {"torch": "made_up_acme:Net"}, "made up", **fields)


def unread(catalog, obs, config, action=TWO):
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # explaining never warns
        return catalog.explain(obs, action, config, "torch").as_dict()["unread"]


# --- what declarations name -----------------------------------------------------------------------


def test_unknown_key_in_reads_error_suggests_the_nearest(acme):
    text = (
        r"is loaded, but DeclarationError: model 'acme_typo': reads names the config key"
        r" 'vf_share_layer', which no package declares\. Did you mean 'vf_share_layers'\?"
    )
    with pytest.warns(PluginWarning, match=text):
        catalog = acme(
            spec("acme_typo", reads=("vf_share_layer",)),
            spec("acme_good", reads=("vf_share_layers",)),
        )
    assert "acme_good" in catalog.registry.names(["model"])
    assert "acme_typo" not in catalog.registry.names(["model"])


def test_reads_given_as_text_is_rejected():
    with pytest.raises(
        DeclarationError, match=r"reads must be a tuple of text, found 'vf_share_layers'"
    ):
        spec(reads="vf_share_layers")


@pytest.mark.parametrize("name", [["acme_net"], None, 3])
def test_name_that_is_not_text_is_rejected(name):
    expected = r"Spec\(.*\): name must be a word of letters"
    with pytest.raises(DeclarationError, match=expected):
        spec(name)


def test_name_that_became_a_list_leaves_the_catalog_alone(acme):
    wrong = spec("acme_net")
    object.__setattr__(wrong, "name", ["acme_net"])  # the fields of a declaration are frozen
    expected = r"acme 1.0 has failed: ModelSpec\(\['acme_net'\]\): name must be a word"
    with pytest.warns(PluginWarning, match=expected):
        catalog = acme(wrong)
    assert "fcnet" in catalog.registry.names(["model"])


def test_switch_has_to_be_a_declared_key(acme):
    with pytest.warns(
        PluginWarning, match=r"switch names the config key 'use_acme', which no package declares"
    ):
        acme(spec(switch="use_acme"))
    with pytest.raises(
        DeclarationError, match=r"switch must be the name of a config key, found \['use_acme'\]"
    ):
        spec(switch=["use_acme"])


@pytest.mark.parametrize("key", ["fcnet_hiddens", "acme_width", "free_log_std"])
def test_reads_accepts_keys_of_kernel_plugin_and_others(acme, key):
    catalog = acme(spec(reads=(key,)))
    assert "acme" in catalog.registry.names(["model"])


@pytest.mark.parametrize(
    ("parts", "environ"),
    [(("rlcatalog-preprocessors",), {}), (PARTS, {"RLCATALOG_DISABLE_PLUGINS": "rlcatalog-fcnet"})],
    ids=["not installed", "disabled"],
)
def test_reads_accepts_keys_of_absent_packages(acme, parts, environ):
    catalog = acme(spec(reads=("fcnet_hiddens",)), parts=parts, environ=environ)
    assert "acme" in catalog.registry.names(["model"])


def test_registered_part_with_unknown_key_is_rejected():
    catalog = Catalog([], environ={})
    with pytest.raises(DeclarationError, match="Did you mean 'max_seq_len'"):
        catalog.register(ModelSpec("mine", {"torch": "m:C"}, "mine", reads=("max_seq_length",)))
    assert catalog.components() == []


# --- what nothing reads ---------------------------------------------------------------------------


@pytest.fixture(scope="module")
def catalog():
    return isolated_catalog(*PARTS)


#: What rlcatalog-atari makes of a game: two frames, gray pixels as RLlib's, RAM; and a game as it
#: is.
FRAMES = gym.spaces.Box(0, 255, (84, 84, 2), np.uint8)
PIXELS = gym.spaces.Box(-1, 1, (84, 84, 1), np.float32)
RAM = gym.spaces.Box(-1, 127 / 128, (128,), np.float32)
RAW = gym.spaces.Box(0, 255, (210, 160, 3), np.uint8)
ATARI = {
    "framestack": 2,
    "dim": 64,
    "grayscale": True,
    "zero_mean": False,
    "atari_terminal_on_life_loss": True,
}

#: Observation space, config → the keys that nothing reads.
CASES = {
    "convolutions on a vector": (
        BOX,
        {"conv_filters": "nature", "fcnet_hiddens": [4]},
        ["conv_filters"],
    ),
    "dense layers on an image": (
        IMAGE,
        {"fcnet_hiddens": [4], "conv_activation": "tanh"},
        ["fcnet_hiddens"],
    ),
    "a memory that is not switched on": (BOX, {"lstm_cell_size": 4}, ["lstm_cell_size"]),
    "one that is": (BOX, {"lstm_cell_size": 4, "use_lstm": True, "_time_major": True}, []),
    "under a memory": (
        BOX,
        {"use_lstm": True, "no_final_linear": True, "max_seq_len": 5},
        ["no_final_linear"],
    ),
    "under none": (BOX, {"no_final_linear": True}, []),
    "in the order given": (
        BOX,
        {"dim": 42, "lstm_cell_size": 4, "attention_dim": 8, "conv_flatten": True},
        ["dim", "lstm_cell_size", "attention_dim", "conv_flatten"],
    ),
    "at its default": (BOX, {"lstm_cell_size": 256, "conv_filters": None}, []),
    "the kernel's own": (
        BOX,
        {
            "check_observations": "always",
            "action_bounds": "affine",
            "action_mask_key": "m",
            "_disable_action_flattening": True,
        },
        [],
    ),
    "arguments of no custom class": (
        BOX,
        {"custom_model_config": {"a": 1}},
        ["custom_model_config"],
    ),
    "arguments of one": (
        BOX,
        {"custom_model": "gtrxl", "custom_model_config": {"num_heads": 1}},
        [],
    ),
    "nets for the parts": (
        gym.spaces.Dict({"image": IMAGE, "vector": BOX}),
        {"conv_activation": "tanh", "fcnet_hiddens": [4], "text_encoding": "index"},
        ["text_encoding"],
    ),
    "codecs of the parts": (
        gym.spaces.Dict({"a": gym.spaces.Text(3), "b": BOX}),
        {"text_encoding": "index"},
        [],
    ),
    "integers as they are, of none": (
        BOX,
        {"_disable_preprocessor_api": True},
        ["_disable_preprocessor_api"],
    ),
    "integers as they are": (gym.spaces.Discrete(3), {"_disable_preprocessor_api": True}, []),
    "a switch that is off": (BOX, {"use_parametric": False}, []),
    "a switch that is on for nothing": (
        BOX,
        {"custom_model": "lstm", "use_attention": True},
        ["use_attention"],
    ),
    "sequences of nothing that remembers": (BOX, {"max_seq_len": 7}, ["max_seq_len"]),
    "sequences of a memory": (BOX, {"max_seq_len": 7, "use_attention": True}, []),
    "an activation of no layers": (
        BOX,
        {"post_fcnet_activation": "tanh"},
        ["post_fcnet_activation"],
    ),
    "an activation of some": (
        BOX,
        {"post_fcnet_activation": "tanh", "post_fcnet_hiddens": [4]},
        [],
    ),
    "initialisers of no layers": (
        IMAGE,
        {"post_fcnet_weights_initializer": "xavier_uniform"},
        ["post_fcnet_weights_initializer"],
    ),
    "Atari's without a game": (BOX, ATARI, list(ATARI)),
    "Atari's on another camera": (IMAGE, ATARI, list(ATARI)),
    "the size of another camera": (IMAGE, {"dim": 42, "framestack": 2}, ["framestack"]),
    "the pixel codec's on stacked frames": (
        FRAMES,
        {"framestack": 2, "grayscale": True, "zero_mean": False},
        ["grayscale", "zero_mean"],
    ),
    "the pixel codec's on its pixels": (
        PIXELS,
        {"preprocessor_pref": "rllib", "grayscale": True, "zero_mean": False, "framestack": 2},
        ["framestack"],
    ),
    "the pixel codec's on RAM": (
        RAM,
        {"preprocessor_pref": "rllib", "zero_mean": False},
        ["zero_mean"],
    ),
    "a game left as it is": (RAW, {"preprocessor_pref": None, "framestack": 2}, ["framestack"]),
    "frames that were flattened": (
        gym.spaces.Box(0, 255, (84 * 84 * 2,), np.uint8),
        {"framestack": 2},
        [],
    ),
    "frames inside a Dict, channels first": (
        gym.spaces.Dict({"game": gym.spaces.Box(0, 255, (2, 84, 84), np.uint8)}),
        {"framestack": 2},
        [],
    ),
    "a head and its distribution": (
        BOX,
        {"use_autoregressive": True, "autoregressive_hiddens": [3]},
        [],
    ),
}


@pytest.mark.parametrize(("obs", "config", "expected"), CASES.values(), ids=CASES)
def test_unread_keys_are_listed(catalog, obs, config, expected):
    action = gym.spaces.MultiDiscrete([2, 2]) if "use_autoregressive" in config else TWO
    assert unread(catalog, obs, config, action) == expected


def test_distribution_of_a_part_of_the_action_reads_keys(catalog):
    action = gym.spaces.Dict({"aim": BOX, "go": TWO})
    config = {"gaussian_log_std_min": -2.0, "categorical_temperature": 2.0}
    assert unread(catalog, BOX, config, action) == []
    assert unread(catalog, BOX, config, TWO) == ["gaussian_log_std_min"]


def test_key_of_an_environment_wrapper_counts_as_read(acme):
    wrapper = EnvWrapperSpec(
        "acme_wrapper",
        {"numpy": "m:f"},
        "",
        match=lambda r: Match(None, "no"),
        config="made_up_acme:AcmeConfig",
    )
    asked = acme(rlcatalog_env_wrappers=[wrapper], environ={"RLCATALOG_PREFER_PLUGINS": "acme"})
    assert unread(asked, BOX, {"acme_width": 4}) == []
    for catalog in (acme(rlcatalog_env_wrappers=[wrapper]), acme(spec())):
        assert unread(catalog, BOX, {"acme_width": 4}) == ["acme_width"]


def test_custom_class_in_rllib_form_reads_all_keys():
    class Mine(rlcatalog.ModelV2):
        framework_of_class = "torch"

    catalog = isolated_catalog(*PARTS)
    config = {"conv_filters": "nature", "custom_model": Mine, "vf_share_layers": False}
    assert unread(catalog, BOX, config) == []
    catalog.register_model("mine", Mine)
    assert unread(catalog, BOX, {**config, "custom_model": "mine"}) == []
    # Which then says what it reads.
    catalog.register_model("mine", Mine, reads=("vf_share_layers",))
    assert unread(catalog, BOX, {**config, "custom_model": "mine"}) == ["conv_filters"]


def test_warning_lists_unread_keys_at_the_line_of_the_caller(catalog):
    config = {"conv_filters": "nature", "lstm_cell_size": 4, "fcnet_hiddens": [5]}
    with pytest.warns(UnreadKeysWarning) as caught:
        catalog.resolve(BOX, TWO, config, "torch")
    assert [str(w.message) for w in caught] == [
        "model config: no chosen part reads conv_filters (read by visionnet), lstm_cell_size (read"
        " by lstm). Remove keys without effect, or choose a part that reads them; explain() lists"
        " the parts and their keys."
    ]
    assert caught[0].filename == __file__


def test_warning_says_what_an_unread_key_needs(catalog):
    config = {
        "zero_mean": False,
        "post_fcnet_activation": "tanh",
        "framestack": 2,
        "max_seq_len": 3,
    }
    with pytest.warns(UnreadKeysWarning) as caught:
        catalog.resolve(FRAMES, TWO, config, "torch")
    (text,) = [str(w.message) for w in caught]
    assert text.startswith(
        "model config: no chosen part reads zero_mean (read with preprocessor_pref='rllib'),"
        " post_fcnet_activation (read with post_fcnet_hiddens), max_seq_len (read by "
    )


def test_ignores_function_makes_keys_unread(acme):
    fits = Match(Rank.SPECIFIC, "fits")
    environ = {"RLCATALOG_PREFER_PLUGINS": "acme"}
    ignoring = spec(
        match=lambda r: fits,
        ignores=lambda r: {"acme_width": "a wider space"} if r.obs.rank == 1 else {},
    )
    catalog = acme(ignoring, environ=environ)
    assert unread(catalog, BOX, {"acme_width": 4}) == ["acme_width"]
    assert unread(catalog, gym.spaces.Box(-1, 1, (3, 3)), {"acme_width": 4}) == []
    catalog = acme(spec(match=lambda r: fits, ignores=lambda r: ["acme_width"]), environ=environ)
    with pytest.raises(
        rlcatalog.errors.PartError, match=r"its ignores function returned .* a dict of config keys"
    ):
        unread(catalog, BOX, {"acme_width": 4})


def test_trunk_of_a_plugin_may_read_max_seq_len(acme):
    catalog = acme(spec(reads=("fcnet_hiddens",)))
    assert unread(catalog, BOX, {"custom_model": "acme", "max_seq_len": 3}) == []


def test_build_warns_once_for_equal_configs():
    catalog, config = isolated_catalog(*PARTS), {"conv_filters": "nature", "fcnet_hiddens": [6]}
    catalog.explain(BOX, TWO, config, "torch")  # is no reason to be silent later
    with pytest.warns(UnreadKeysWarning) as caught:
        policy = rlcatalog.build(BOX, TWO, config, "torch", catalog=catalog)
    assert len(caught) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        rlcatalog.build(BOX, TWO, dict(config), "torch", catalog=catalog)
    assert policy.explain().as_dict()["unread"] == ["conv_filters"]


def test_failing_lookup_does_not_warn(catalog):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(
            rlcatalog.errors.ConfigError, match="free_log_std trains the second half"
        ):
            catalog.resolve(
                BOX,
                gym.spaces.Discrete(3),
                {"free_log_std": True, "conv_filters": "nature"},
                "torch",
            )


def test_failing_build_does_not_warn(acme):
    catalog = acme(spec("acme_broken"))  # its module has no such class
    config = {"conv_filters": "nature", "custom_model": "acme_broken"}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(2):
            with pytest.raises(PartError, match="acme_broken"):
                rlcatalog.build(BOX, TWO, config, "torch", catalog=catalog)
    from rlcatalog_torch import FullyConnectedNetwork

    sys.modules["made_up_acme"].Net = FullyConnectedNetwork
    with pytest.warns(UnreadKeysWarning, match="conv_filters"):
        rlcatalog.build(BOX, TWO, config, "torch", catalog=catalog)


def test_keys_of_an_inner_trunk_count_as_read(acme):
    """A stranger's model that holds others is looked after as the built-in one: by what it asks the
    catalog for.
    """

    def asks_for_fcnet(request):
        return [Stage(f"around {request.catalog.trunk(request, 'fcnet').name}", (3,))]

    fits = Match(Rank.SPECIFIC, "fits")
    catalog = acme(
        spec(match=lambda r: fits, describe=asks_for_fcnet),
        environ={"RLCATALOG_PREFER_PLUGINS": "acme"},
    )
    config = {"fcnet_hiddens": [4], "conv_filters": "nature", "acme_width": 2}
    assert unread(catalog, BOX, config) == ["conv_filters"]


def test_kernel_keys_are_all_read_somewhere():
    """None can be set without an effect anywhere: a key that nobody reads is none."""
    from rlcatalog.config.kernel_keys import READ_BESIDE, READ_BY_KERNEL, READ_WITH_MEMORY

    catalog = isolated_catalog(*PARTS)
    read = {key for component in catalog.components() for key in catalog.config_keys(component)}
    fields = set(KernelConfig.__struct_fields__)
    assert fields - read - READ_BY_KERNEL - READ_WITH_MEMORY - {*PLAIN_KEYS} == set()
    assert fields >= READ_BY_KERNEL | READ_WITH_MEMORY | set(READ_BESIDE)
