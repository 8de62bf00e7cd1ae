"""RLlib's complete model dictionaries: they are accepted without a warning, and only values that
differ from RLlib's defaults count.
"""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest

from rlcatalog import Catalog, ModelCatalog, build
from rlcatalog.config.rllib_keys import REFUSED, RLLIB_DEFAULTS
from rlcatalog.errors import ConfigError, UnknownConfigKeyError
from rlcatalog.plugins.discovery import scan

THREE_FEATURES = gym.spaces.Box(-1, 1, (3,), np.float32)
TWO_ACTIONS = gym.spaces.Discrete(2)

#: RLlib's mark of a key that is deprecated.
DEPRECATED = -1

#: The model config of RLlib 0.8.0 (December 2019), read in that version's catalog.py.
DEFAULTS_OF_0_8_0 = {
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


#: What PPO sets in RLlib's dictionary: a separate value net.
SET_BY_PPO = {"vf_share_layers": False}


def make_model_defaults(version):
    """Return RLlib's `MODEL_DEFAULTS` in a version."""
    defaults = dict(DEFAULTS_OF_0_8_0)
    for name, (added, removed) in CHANGES.items():
        defaults |= added
        for key in removed:
            del defaults[key]
        if name == version:
            break
    return defaults


def make_ppo_model_config(version):
    """Return the model dictionary of RLlib's PPO in a version."""
    return make_model_defaults(version) | SET_BY_PPO


@pytest.fixture(scope="module")
def catalog_of_all():
    """A catalog of all installed packages."""
    return Catalog(scan(), environ={})


@pytest.mark.parametrize("version", CHANGES)
def test_rllib_ppo_config_counts_only_what_ppo_sets(catalog_of_all, version):
    assert catalog_of_all.parse_config(make_ppo_model_config(version)).given == SET_BY_PPO


CHANGED_KEYS = {"fcnet_hiddens": [5], "fcnet_activation": "relu", "vf_share_layers": False}


def read_shapes(model):
    return {name: array.shape for name, array in model.get_weights().items()}


each_major_change = pytest.mark.parametrize("version", ["0.8.0", "0.8.6", "1.4.0", "2.60.0"])


@each_major_change
def test_rllib_config_chooses_onehot_preprocessor(version):
    config = make_ppo_model_config(version)

    preprocessor = ModelCatalog.get_preprocessor_for_space(TWO_ACTIONS, config)

    assert preprocessor.transform(1).tolist() == [0, 1]


@each_major_change
def test_rllib_config_with_changed_keys_builds_a_policy(version):
    config = make_ppo_model_config(version) | CHANGED_KEYS

    policy = build(THREE_FEATURES, TWO_ACTIONS, config=config, framework="torch")

    expected = ModelCatalog.get_model_v2(THREE_FEATURES, TWO_ACTIONS, 2, CHANGED_KEYS, "torch")
    assert read_shapes(policy.model) == read_shapes(expected)
    assert policy.act(np.zeros((1, 3), np.float32)).action.shape == (1,)


def test_installed_rllib_has_the_defaults_of_2_60_0():
    pytest.importorskip("ray.rllib", reason="Ray is not installed")
    from ray.rllib.algorithms.ppo import PPOConfig
    from ray.rllib.models.catalog import MODEL_DEFAULTS

    assert PPOConfig().to_dict()["model"] == make_ppo_model_config("2.60.0")
    assert make_model_defaults("2.60.0") == MODEL_DEFAULTS


@pytest.mark.parametrize("version", CHANGES)
def test_table_of_rllib_defaults_has_every_key(version):
    for key, value in make_model_defaults(version).items():
        assert value in (RLLIB_DEFAULTS[key], DEPRECATED), key


@pytest.fixture(scope="module")
def catalog_without_lstm():
    names = ("fcnet", "categorical")
    return Catalog([point for point in scan() if point.name in names], environ={})


@pytest.mark.parametrize("version", CHANGES)
def test_rllib_config_is_accepted_without_its_packages(catalog_without_lstm, version):
    assert catalog_without_lstm.parse_config(make_ppo_model_config(version)).given == SET_BY_PPO


@pytest.mark.parametrize(
    ("config", "key"),
    [
        pytest.param(make_ppo_model_config("2.60.0") | {"use_lstm": True}, "use_lstm", id="switch"),
        # RLlib's default is 256.
        pytest.param({"lstm_cell_size": None}, "lstm_cell_size", id="not-the-default"),
    ],
)
def test_changed_key_of_missing_package_is_rejected(catalog_without_lstm, config, key):
    with pytest.raises(UnknownConfigKeyError, match=f"'{key}' is provided by") as caught:
        catalog_without_lstm.parse_config(config)

    assert "rlcatalog-lstm, which is not" in str(caught.value)


@pytest.mark.parametrize("value", [None, DEPRECATED], ids=str)
@pytest.mark.parametrize(
    "key", [*REFUSED, "custom_options", "lstm_use_prev_action_reward", "state_shape"]
)
def test_old_key_that_is_not_set_does_not_warn(read_only_catalog, key, value):
    assert read_only_catalog.parse_config({key: value}).given == {}


def test_old_key_at_its_default_does_not_override_new_key(catalog_of_all):
    # Old names of keys, with their default values.
    old_keys = {
        "custom_options": {},
        "lstm_use_prev_action_reward": False,
        "always_check_shapes": False,
    }
    # The present names of the same keys.
    new_keys = {
        "custom_model_config": {"a": 1},
        "lstm_use_prev_action": True,
        "check_observations": "never",
    }

    assert catalog_of_all.parse_config(old_keys | new_keys).given == new_keys


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
def test_unsupported_key_that_is_set_is_rejected(read_only_catalog, key, value):
    with pytest.raises(ConfigError, match=f"{key!r} is not supported: "):
        read_only_catalog.parse_config({**make_ppo_model_config("1.4.0"), key: value})


def test_mark_of_deprecated_keys_is_rejected_for_current_keys(read_only_catalog):
    with pytest.raises(ConfigError, match="'max_seq_len'"):
        read_only_catalog.parse_config({"max_seq_len": DEPRECATED})
