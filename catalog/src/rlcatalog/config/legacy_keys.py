"""Config keys of RLlib that are not keys here: other names, keys without effect, keys that are refused.

`docs/config.md` has a row for each; a test compares.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rlcatalog.config.values import same


def _unchanged(value: Any) -> Any:
    return value


#: Old key → (today's key, how its value is translated).
ALIASES: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "custom_options": ("custom_model_config", _unchanged),
    "always_check_shapes": ("check_observations", lambda value: "always" if value else "first"),
    "_no_preprocessing": ("_disable_preprocessor_api", _unchanged),
}

#: Old key → today's key that a model may read it under: what it holds is the same.
OLD_NAMES: dict[str, str] = {"custom_options": "custom_model_config"}

#: Old key → today's keys that it was split into; each takes its value.
SPLIT: dict[str, tuple[str, ...]] = {
    "lstm_use_prev_action_reward": ("lstm_use_prev_action", "lstm_use_prev_reward"),
}

_NO_TRANSPOSED = "no network here has transposed convolutions."

#: Accepted with a DeprecationWarning and without effect, and why.
IGNORED: dict[str, str] = {
    "state_shape": "a model announces its state through get_initial_state().",
    "_use_default_native_models": "every default network is a ModelV2.",
    "conv_transpose_kernel_initializer": _NO_TRANSPOSED,
    "conv_transpose_kernel_initializer_config": _NO_TRANSPOSED,
    "conv_transpose_bias_initializer": _NO_TRANSPOSED,
    "conv_transpose_bias_initializer_config": _NO_TRANSPOSED,
}

#: Refused, and what to do instead.
REFUSED: dict[str, str] = {
    "squash_to_range": "choose a squashed or bounded action distribution instead.",
    "channel_major": "transpose the images in an environment wrapper.",
    "downscale_factor": "resize the images in an environment wrapper.",
    "extra_frameskip": "use gymnasium's frame-skipping wrappers.",
    "num_framestacks": "stack frames with gymnasium.wrappers.FrameStackObservation.",
    "log_std_clip_param": "diag_gaussian has no such option yet; clip in a distribution of your own.",
    "head_fcnet_hiddens": "it is a key of Ray's new stack; set post_fcnet_hiddens.",
    "head_fcnet_activation": "it is a key of Ray's new stack; set post_fcnet_activation.",
    "encoder_latent_dim": "it sizes the encoders of Ray's new stack; set the last entry of fcnet_hiddens.",
}

#: RLlib's mark of a key that is deprecated and was not given.
DEPRECATED_VALUE = -1

#: The keys of RLlib's model config, 2017 to today, with the last default that was a value. RLlib hands whole
#: dictionaries about, so a key that holds its default was not asked for.
RLLIB_DEFAULTS: dict[str, Any] = {
    "fcnet_hiddens": [256, 256], "fcnet_activation": "tanh",
    **dict.fromkeys(("fcnet_weights_initializer", "fcnet_weights_initializer_config"), None),
    **dict.fromkeys(("fcnet_bias_initializer", "fcnet_bias_initializer_config"), None),
    "post_fcnet_hiddens": [], "post_fcnet_activation": "relu",
    **dict.fromkeys(("post_fcnet_weights_initializer", "post_fcnet_weights_initializer_config"), None),
    **dict.fromkeys(("post_fcnet_bias_initializer", "post_fcnet_bias_initializer_config"), None),
    "vf_share_layers": True, "free_log_std": False, "no_final_linear": False,
    "conv_filters": None, "conv_activation": "relu",
    **dict.fromkeys(("conv_kernel_initializer", "conv_kernel_initializer_config"), None),
    **dict.fromkeys(("conv_bias_initializer", "conv_bias_initializer_config"), None),
    **dict.fromkeys(("conv_transpose_kernel_initializer", "conv_transpose_kernel_initializer_config"), None),
    **dict.fromkeys(("conv_transpose_bias_initializer", "conv_transpose_bias_initializer_config"), None),
    "use_lstm": False, "max_seq_len": 20, "lstm_cell_size": 256,
    "lstm_use_prev_action": False, "lstm_use_prev_reward": False, "lstm_use_prev_action_reward": False,
    **dict.fromkeys(("lstm_weights_initializer", "lstm_weights_initializer_config"), None),
    **dict.fromkeys(("lstm_bias_initializer", "lstm_bias_initializer_config"), None),
    "_time_major": False, "_disable_action_flattening": False,
    "use_attention": False, "attention_num_transformer_units": 1, "attention_dim": 64, "attention_num_heads": 1,
    "attention_head_dim": 32, "attention_memory_inference": 50, "attention_memory_training": 50,
    "attention_position_wise_mlp_dim": 32, "attention_init_gru_gate_bias": 2.0,
    "attention_use_n_prev_actions": 0, "attention_use_n_prev_rewards": 0,
    "framestack": True, "dim": 84, "grayscale": False, "zero_mean": True,
    "custom_model": None, "custom_model_config": {}, "custom_options": {}, "custom_action_dist": None,
    "custom_preprocessor": None, "always_check_shapes": False, "state_shape": None,
    "_use_default_native_models": False, "_disable_preprocessor_api": False, "_no_preprocessing": False,
    "num_framestacks": "auto", "squash_to_range": False, "channel_major": False,
    "head_fcnet_hiddens": [], "head_fcnet_activation": "relu",
    "encoder_latent_dim": None, "log_std_clip_param": 20.0,
}  # fmt: skip


def asks_nothing(key: str, value: Any) -> bool:
    """Whether a key that is not one here has no effect: it holds RLlib's default, or what stands for "not given".

    Args:
        key: The key.
        value: Its value, already `plain`.
    """
    if key in RLLIB_DEFAULTS and same(value, RLLIB_DEFAULTS[key]):
        return True
    return (key in ALIASES or key in SPLIT or key in IGNORED or key in REFUSED) and (
        value is None or same(value, DEPRECATED_VALUE)
    )
