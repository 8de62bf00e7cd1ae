"""Whole model dictionaries as RLlib made them: accepted in silence, and only what was asked for
counts.
"""

from __future__ import annotations

import warnings

import gymnasium as gym
import numpy as np
import pytest

from rlcatalog import Catalog, ModelCatalog, build
from rlcatalog.config.rllib_keys import REFUSED, RLLIB_DEFAULTS
from rlcatalog.errors import ConfigError, UnknownConfigKeyError
from rlcatalog.plugins.discovery import scan

VECTOR = gym.spaces.Box(-1, 1, (3,), np.float32)
TWO = gym.spaces.Discrete(2)

#: RLlib's mark of a key that is deprecated.
DEPRECATED = -1

#: The model config of RLlib 0.8.0 (December 2019), read in that version's catalog.py.
FIRST = {
    "conv_filters": None, "conv_activation": "relu", "fcnet_activation": "tanh",
    "fcnet_hiddens": [256, 256], "free_log_std": False, "no_final_linear": False,
    "vf_share_layers": True, "use_lstm": False, "max_seq_len": 20, "lstm_cell_size": 256,
    "lstm_use_prev_action_reward": False, "state_shape": None, "framestack": True, "dim": 84,
    "grayscale": False, "zero_mean": True, "custom_preprocessor": None, "custom_model": None,
    "custom_action_dist": None, "custom_options": {},
}  # fmt: skip
_INITIALIZERS = [
    "fcnet_weights", "fcnet_bias", "conv_kernel", "conv_bias", "conv_transpose_kernel",
    "conv_transpose_bias", "post_fcnet_weights", "post_fcnet_bias", "lstm_weights", "lstm_bias",
]  # fmt: skip
#: Version → what came or changed since the one before, and what went.
CHANGES = {
    "0.8.0": ({}, ()),
    "0.8.6": ({"custom_model_config": {}, "custom_options": DEPRECATED}, ()),
    "1.0.0": ({"_time_major": False}, ("custom_options", "state_shape")),
    "1.2.0": (
        {
            "lstm_use_prev_action": False,
            "lstm_use_prev_reward": False,
            "lstm_use_prev_action_reward": DEPRECATED,
            "use_attention": False,
            "attention_num_transformer_units": 1,
            "attention_dim": 64,
            "attention_num_heads": 1,
            "attention_head_dim": 32,
            "attention_memory_inference": 50,
            "attention_memory_training": 50,
            "attention_position_wise_mlp_dim": 32,
            "attention_init_gru_gate_bias": 2.0,
            "num_framestacks": "auto",
        },
        (),
    ),
    "1.4.0": (
        {
            "_use_default_native_models": False,
            "post_fcnet_hiddens": [],
            "post_fcnet_activation": "relu",
            "attention_use_n_prev_actions": 0,
            "attention_use_n_prev_rewards": 0,
        },
        (),
    ),
    "1.7.0": ({"_no_preprocessing": False}, ("num_framestacks",)),
    "1.13.0": (
        {"_disable_preprocessor_api": False, "_disable_action_flattening": False},
        ("_no_preprocessing",),
    ),
    "2.9.3": (
        {
            "_use_default_native_models": DEPRECATED,
            "encoder_latent_dim": None,
            "always_check_shapes": False,
        },
        (),
    ),
    "2.10.0": (
        {f"{name}_initializer{end}": None for name in _INITIALIZERS for end in ("", "_config")},
        (),
    ),
    "2.60.0": ({"log_std_clip_param": 20.0}, ()),
}


def model_dict(version, algorithm=True):
    """RLlib's dictionary of a version: that of its PPO, which separates the value's layers, or
    `MODEL_DEFAULTS`.
    """
    found = dict(FIRST)
    for name, (new, gone) in CHANGES.items():
        found = {key: value for key, value in {**found, **new}.items() if key not in gone}
        if name == version:
            break
    return {**found, "vf_share_layers": not algorithm}


@pytest.fixture(scope="module")
def full():
    """A catalog of all installed packages."""
    return Catalog(scan(), environ={})


def shapes(model):
    return {name: array.shape for name, array in model.get_weights().items()}


@pytest.fixture(autouse=True)
def silent():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


@pytest.mark.parametrize("algorithm", [True, False], ids=["ppo", "defaults"])
@pytest.mark.parametrize("version", CHANGES)
def test_a_whole_dictionary_asks_for_what_is_not_the_default_and_says_nothing(
    full, version, algorithm
):
    given = model_dict(version, algorithm)
    assert full.parse_config(given).given == ({"vf_share_layers": False} if algorithm else {})


@pytest.mark.parametrize("version", ["0.8.0", "0.8.6", "1.4.0", "2.60.0"])
def test_what_stands_in_a_whole_dictionary_counts(version):
    asked = {"fcnet_hiddens": [5], "fcnet_activation": "relu", "vf_share_layers": False}
    found = ModelCatalog.get_model_v2(VECTOR, TWO, 2, {**model_dict(version), **asked}, "torch")
    alone = ModelCatalog.get_model_v2(VECTOR, TWO, 2, asked, "torch")
    assert shapes(found) == shapes(alone)
    dist, size = ModelCatalog.get_action_dist(
        TWO, {**model_dict(version), **asked}, framework="torch"
    )
    assert (dist, size) == ModelCatalog.get_action_dist(TWO, asked, framework="torch")
    preprocessor = ModelCatalog.get_preprocessor_for_space(TWO, model_dict(version))
    assert preprocessor.transform(1).tolist() == [0, 1]
    policy = build(VECTOR, TWO, config={**model_dict(version), **asked}, framework="torch")
    assert policy.model.get_weights().keys() == found.get_weights().keys()
    assert policy.act(np.zeros((1, 3), np.float32)).action.shape == (1,)


def test_the_installed_versions_dictionary():
    pytest.importorskip("ray.rllib", reason="Ray is not installed")
    from ray.rllib.algorithms.ppo import PPOConfig
    from ray.rllib.models.catalog import MODEL_DEFAULTS

    assert PPOConfig().to_dict()["model"] == model_dict("2.60.0")
    assert model_dict("2.60.0", algorithm=False) == MODEL_DEFAULTS


def test_the_table_holds_every_key_and_default():
    for version in CHANGES:
        for key, value in model_dict(version, algorithm=False).items():
            assert value in (RLLIB_DEFAULTS[key], DEPRECATED), (version, key)


def test_a_dictionary_passes_where_its_packages_are_not_installed():
    bare = Catalog(
        [point for point in scan() if point.name in ("fcnet", "categorical")], environ={}
    )
    for version in CHANGES:
        assert bare.parse_config(model_dict(version)).given == {"vf_share_layers": False}
    with pytest.raises(
        UnknownConfigKeyError, match="'use_lstm' is provided by rlcatalog-lstm, which is not"
    ):
        bare.parse_config({**model_dict("2.60.0"), "use_lstm": True})
    with pytest.raises(UnknownConfigKeyError, match="'lstm_cell_size' is provided by"):
        bare.parse_config({"lstm_cell_size": None})  # not what RLlib has there


@pytest.mark.parametrize("value", [None, DEPRECATED], ids=str)
@pytest.mark.parametrize(
    "key", [*REFUSED, "custom_options", "lstm_use_prev_action_reward", "state_shape"]
)
def test_what_stands_for_not_given_says_nothing(shared, key, value):
    assert shared.parse_config({key: value}).given == {}


def test_a_key_and_its_alias_at_rllibs_default_are_no_conflict(full):
    given = {
        "custom_options": {},
        "custom_model_config": {"a": 1},
        "lstm_use_prev_action_reward": False,
        "lstm_use_prev_action": True,
        "always_check_shapes": False,
        "check_observations": "never",
    }
    asked = {
        "custom_model_config": {"a": 1},
        "lstm_use_prev_action": True,
        "check_observations": "never",
    }
    assert full.parse_config(given).given == asked


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("num_framestacks", 4),
        ("num_framestacks", 0),
        ("log_std_clip_param", 5.0),
        ("encoder_latent_dim", 64),
        ("squash_to_range", True),
        ("channel_major", 0),
        ("downscale_factor", False),
    ],
)
def test_other_values_of_refused_keys_stay_errors(shared, key, value):
    with pytest.raises(ConfigError, match=f"{key!r} is not supported: "):
        shared.parse_config({**model_dict("1.4.0"), key: value})


def test_other_values_of_old_keys_still_warn(full):
    with pytest.warns(DeprecationWarning, match="now split"):
        assert (
            full.parse_config({"lstm_use_prev_action_reward": True}).given["lstm_use_prev_action"]
            is True
        )
    with pytest.warns(DeprecationWarning, match="no effect"):
        full.parse_config({"_use_default_native_models": True})


def test_minus_one_is_no_default_of_a_key_of_ours(shared):
    with pytest.raises(ConfigError, match="'max_seq_len'"):
        shared.parse_config({"max_seq_len": DEPRECATED})
