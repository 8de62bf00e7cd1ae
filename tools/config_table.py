"""Writes the tables of `docs/config.md`, with every config key there is, and of
`docs/reference/rllib_keys.md`, with the keys that RLlib had and that have another fate here.

Run it after a config key has changed: `python tools/config_table.py`, or with `--check` to only say
whether the pages are up to date. What a table says comes from the code; the history of RLlib's keys
stands below.
"""

from __future__ import annotations

import sys
from typing import Any

from generated import ROOT, fill, table, write
from public_index import packages

from rlcatalog import Catalog
from rlcatalog.config import ACTIVATIONS, INITIALIZERS, keys_of
from rlcatalog.config.layer_names import ACTIVATION_ALIASES, INITIALIZER_ALIASES
from rlcatalog.config.rllib_keys import IGNORED, REFUSED, RENAMED, RLLIB_DEFAULTS
from rlcatalog.plugins.discovery import scan
from rlcatalog_ppo import config as ppo

TARGET = ROOT / "docs/config.md"
RLLIB_TARGET = ROOT / "docs/reference/rllib_keys.md"

#: Heading of the page → beginnings of the keys below it; the first heading that fits a key has it.
TASKS = {
    "Your own classes": ("custom_", "module_images"),
    "Fully connected layers": ("fcnet_", "post_fcnet_", "vf_share_layers", "no_final_linear"),
    "Images": ("conv_", "image_"),
    "Atari": ("preprocessor_pref", "framestack", "dim", "grayscale", "zero_mean", "atari_"),
    "Dict, text and graph observations": (
        "input_nets",
        "embeddings",
        "text_",
        "sequence_",
        "graph_",
    ),
    "Checks, scaling and filters of observations": (
        "check_observations",
        "scale_integers",
        "observation_filter",
        "filter_",
        "_disable_preprocessor_api",
    ),
    "Memory": (
        "memory",
        "max_seq_len",
        "use_lstm",
        "lstm_",
        "use_attention",
        "attention_",
        "vf_memory",
        "_time_major",
        "_disable_action_flattening",
    ),
    "Actions and masks": (
        "action_",
        "free_log_std",
        "gaussian_",
        "categorical_",
        "num_quantiles",
        "gumbel_softmax_",
        "use_autoregressive",
        "autoregressive_",
        "use_parametric",
    ),
    "Value and training": ("critic", "obs_groups", "freeze_parts", "init"),
}
#: The heading over all other keys.
OTHER_TASK = "Other keys"

#: A default nobody wrote down.
UNKNOWN = object()

#: RLlib's model config keys from 2017 to today → what they meant there. The line is shown for keys
#: that are not honoured; it is empty for keys whose owner describes them.
RLLIB: dict[str, str] = {
    "fcnet_hiddens": "",
    "fcnet_activation": "",
    "fcnet_weights_initializer": "",
    "fcnet_weights_initializer_config": "",
    "fcnet_bias_initializer": "",
    "fcnet_bias_initializer_config": "",
    "post_fcnet_hiddens": "",
    "post_fcnet_activation": "",
    "post_fcnet_weights_initializer": "",
    "post_fcnet_weights_initializer_config": "",
    "post_fcnet_bias_initializer": "",
    "post_fcnet_bias_initializer_config": "",
    "vf_share_layers": "",
    "free_log_std": "",
    "no_final_linear": "",
    "conv_filters": "",
    "conv_activation": "",
    "conv_kernel_initializer": "",
    "conv_kernel_initializer_config": "",
    "conv_bias_initializer": "",
    "conv_bias_initializer_config": "",
    "conv_transpose_kernel_initializer": "initialiser of transposed convolutions' kernels",
    "conv_transpose_kernel_initializer_config": "arguments for that initialiser",
    "conv_transpose_bias_initializer": "initialiser of transposed convolutions' biases",
    "conv_transpose_bias_initializer_config": "arguments for that initialiser",
    "use_lstm": "",
    "max_seq_len": "",
    "lstm_cell_size": "",
    "lstm_use_prev_action": "",
    "lstm_use_prev_reward": "",
    "lstm_use_prev_action_reward": "both of these in one key, before they were split in 2020",
    "lstm_weights_initializer": "",
    "lstm_weights_initializer_config": "",
    "lstm_bias_initializer": "",
    "lstm_bias_initializer_config": "",
    "_time_major": "",
    "_disable_action_flattening": "keep nested actions as structures; needed there to feed them"
    " back",
    "use_attention": "",
    "attention_num_transformer_units": "",
    "attention_dim": "",
    "attention_num_heads": "",
    "attention_head_dim": "",
    "attention_memory_inference": "",
    "attention_memory_training": "",
    "attention_position_wise_mlp_dim": "",
    "attention_init_gru_gate_bias": "",
    "attention_use_n_prev_actions": "",
    "attention_use_n_prev_rewards": "",
    "preprocessor_pref": "",
    "framestack": "",
    "dim": "",
    "grayscale": "",
    "zero_mean": "",
    "custom_model": "",
    "custom_model_config": "",
    "custom_options": "keyword arguments for custom classes, until 2020",
    "custom_action_dist": "",
    "custom_preprocessor": "",
    "observation_filter": "",
    "always_check_shapes": "check every tensor's shape in Ray's new stack",
    "state_shape": "shape of a version-1 model's state, 2019 to 2020",
    "_use_default_native_models": "default networks as plain Keras models, 2021 to 2022",
    "_disable_preprocessor_api": "",
    "_no_preprocessing": "original name of `_disable_preprocessor_api`, for two weeks in 2021",
    "num_framestacks": "frames stacked through view requirements, 2021",
    "squash_to_range": "squash the outputs into the action bounds, 2018 to 2019",
    "channel_major": "images with channels first, 2018",
    "downscale_factor": "shrink images by this factor, 2017",
    "extra_frameskip": "repeat each action this many more times, 2017",
    "head_fcnet_hiddens": "layers after the encoder in Ray's new stack",
    "head_fcnet_activation": "activation of those layers",
    "encoder_latent_dim": "width of the encoder's output in Ray's new stack",
    "log_std_clip_param": (
        "clip log standard deviations to ± this number, in Ray's new stack; the classic layer"
        " never read it, and `diag_gaussian` does not clip"
    ),
}

#: What the owner's line does not say about an honoured key.
NOTES = {
    "max_seq_len": "used when models with memory are trained, by our PPO and under RLlib",
    "custom_model_config": "arguments that a custom class does not take are left out, with an"
    " `UnreadKeysWarning`; a misspelt argument, or one for a plugin's class, raises an error",
    "observation_filter": "RLlib has the key next to `model`, where PPO also takes it",
    "preprocessor_pref": "RLlib has the key next to `model`, where PPO also takes it",
    "_disable_preprocessor_api": "the rest is unchanged: structures under `obs`, one vector under"
    " `obs_flat`; RLlib and PPO also have the key next to `model`",
    "action_mask_key": "left out of the model's input, except for custom preprocessors and custom"
    " models in RLlib's form, and out of filters",
}


def public_index_catalog() -> Catalog:
    """Return a catalog of this repository's packages, whatever else is installed."""
    distributions = packages()
    return Catalog([ep for ep in scan() if ep.dist.name in distributions], environ={})


def code(value: Any) -> str:
    """Return a value as it stands in Python, in backticks."""
    return "—" if value is UNKNOWN else f"`{value!r}`".replace("'", '"')


def task_of(key: str) -> str:
    """Return the heading below which a key is listed."""
    for task, beginnings in TASKS.items():
        if key.startswith(beginnings):
            return task
    return OTHER_TASK


def key_tables(catalog: Catalog) -> str:
    """Return the tables of model config keys, each below the heading of its task."""
    keys = catalog.schema.keys
    rows: dict[str, list[tuple[str, ...]]] = {task: [] for task in [*TASKS, OTHER_TASK]}
    in_order = [key for key in RLLIB if key in keys] + [key for key in keys if key not in RLLIB]
    for key in in_order:
        rows[task_of(key)].append(key_row(key, catalog))
    head = ("key", "default", "meaning", "package")
    sections = [f"### {task}\n\n{table(head, *found)}" for task, found in rows.items() if found]
    return "\n\n".join(sections)


def key_row(key: str, catalog: Catalog) -> tuple[str, ...]:
    """Return one row of the tables of model config keys."""
    row = catalog.schema.keys[key]
    meaning = "; ".join(filter(None, (row.meaning, NOTES.get(key, ""))))
    return f"`{key}`", code(row.default), meaning, f"`{row.owner}`"


def rllib_table(catalog: Catalog) -> str:
    """Return the table of RLlib's keys that are not keys here."""
    rows = [rllib_row(key, catalog) for key in RLLIB if key not in catalog.schema.keys]
    return table(("key", "status", "RLlib's last default", "use instead", "meaning"), *rows)


def rllib_row(key: str, catalog: Catalog) -> tuple[str, ...]:
    """Return one row of that table."""
    default, line = RLLIB_DEFAULTS.get(key, UNKNOWN), RLLIB[key]
    if not line:
        raise SystemExit(
            f"tools/config_table.py: {key!r} is not honoured (any more); say in RLLIB what it"
            " meant."
        )
    if key in RENAMED and all(name in catalog.schema.keys for name in RENAMED[key]):
        status, owner = "alias", ", ".join(f"`{name}`" for name in RENAMED[key])
    elif key in IGNORED:
        status, owner, line = "ignored", "—", f"{line}. Without effect: {IGNORED[key].rstrip('.')}"
    elif key in REFUSED:
        status, owner, line = "refused", "—", f"{line}. Refused: {REFUSED[key].rstrip('.')}"
    else:
        raise SystemExit(
            f"tools/config_table.py: {key!r} has no fate: honour, rename, ignore or refuse it."
        )
    return f"`{key}`", status, code(default), owner, line


def algorithm_table(config: type[ppo.OnPolicyConfig]) -> str:
    """Return the table of the keys that an algorithm has beside the shared ones, or with a default
    of its own.
    """
    old: dict[str, list[str]] = {}
    for alias, key in config.aliases.items():
        old.setdefault(key, []).append(f"`{alias}`")
    shared = () if config is ppo.OnPolicyConfig else keys_of(ppo.OnPolicyConfig)
    rows = [
        (f"`{row.name}`", code(row.default), ", ".join(old.get(row.name, [])) or "—", row.meaning)
        for row in keys_of(config)
        if row not in shared
    ]
    return table(("key", "default", "also accepted, with a DeprecationWarning", "meaning"), *rows)


def activation_table() -> str:
    """Return the table of activations."""
    return names_table(dict.fromkeys(ACTIVATIONS, "—"), ACTIVATION_ALIASES, ("activation",))


def initializer_table() -> str:
    """Return the table of initialisers."""
    arguments = {
        name: ", ".join(f"`{key}={value}`" for key, value in defaults.items()) or "—"
        for name, defaults in INITIALIZERS.items()
    }
    return names_table(
        arguments, INITIALIZER_ALIASES, ("initialiser", "arguments and their defaults")
    )


def names_table(names: dict[str, str], aliases: dict[str, str], head: tuple[str, ...]) -> str:
    """Return a table of names with their aliases, and with a column for their arguments where
    `head` has one.
    """
    rows = []
    for name, arguments in names.items():
        also = ", ".join(f"`{alias}`" for alias, target in aliases.items() if target == name) or "—"
        rows.append((f"`{name}`", *([arguments] if len(head) > 1 else []), also))
    return table((*head, "also written"), *rows)


def filled(text: str) -> str:
    """Return the page with its tables written anew, each between its two markers."""
    tables = {
        "keys": key_tables(public_index_catalog()),
        "on-policy": algorithm_table(ppo.OnPolicyConfig),
        "PPO": algorithm_table(ppo.PPOConfig),
        "A2C": algorithm_table(ppo.A2CConfig),
        "PG": algorithm_table(ppo.PGConfig),
        "activations": activation_table(),
        "initialisers": initializer_table(),
    }
    return fill(TARGET, text, tables)


def main(arguments: list[str]) -> int:
    """Write the pages, or with `--check` say whether they are up to date."""
    rllib_page = RLLIB_TARGET.read_text(encoding="utf-8")
    rllib_tables = {"rllib-keys": rllib_table(public_index_catalog())}
    pages = {
        TARGET: filled(TARGET.read_text(encoding="utf-8")),
        RLLIB_TARGET: fill(RLLIB_TARGET, rllib_page, rllib_tables),
    }
    return write(pages, arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
