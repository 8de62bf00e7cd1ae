"""Config keys of RLlib that are not keys here: other names, keys without effect, keys that are refused.

`docs/config.md` has a row for each; a test compares.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


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
    "encoder_latent_dim": "it sizes the encoders of Ray's new stack; set the last entry of fcnet_hiddens.",
}
