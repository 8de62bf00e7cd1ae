"""The page of config keys: its tables say what the catalog does with each."""

import functools
import re
import warnings

import config_table
import pytest
from page_texts import PACKAGES, between, literal, quoted, read, rows

import rlcatalog
from rlcatalog.config import keys_of
from rlcatalog.errors import ConfigError, UnknownConfigKeyError
from rlcatalog_ppo import config as ppo
from rlcatalog_testing import isolated_catalog


def key_rows():
    return {quoted(row[0])[0]: row[1:] for row in rows(between(read("docs/config.md"), "keys"))}


def keys_of_status(status):
    return [key for key, row in key_rows().items() if row[0] == status]


@functools.cache
def catalog():
    return isolated_catalog(*(name for name in PACKAGES if name != "rlcatalog"))


def parse(config):
    return catalog().parse_config(config)


def test_config_table_check_finds_a_stale_page(tmp_path, monkeypatch):
    """The check of `make lint` can fail: on a page with one row taken out it does."""
    page = read("docs/config.md")
    stale = re.sub(r"^\| `fcnet_hiddens`.*\n", "", page, flags=re.M)
    assert stale != page
    (tmp_path / "config.md").write_text(stale, encoding="utf-8")
    monkeypatch.setattr(config_table, "TARGET", tmp_path / "config.md")
    assert config_table.main(["--check"]) == 1


#: What RLlib's model config ever held, by era and family; written down a second time, apart from
#: the tool's list.
RLLIB_KEYS = {
    *(f"fcnet_{k}" for k in ("hiddens", "activation")),
    *(f"post_fcnet_{k}" for k in ("hiddens", "activation")),
    *(f"conv_{k}" for k in ("filters", "activation")),
    *(
        f"lstm_{k}"
        for k in ("cell_size", "use_prev_action", "use_prev_reward", "use_prev_action_reward")
    ),
    *(
        f"attention_{k}"
        for k in ("num_transformer_units", "dim", "num_heads", "head_dim", "memory_inference")
    ),
    *(f"attention_{k}" for k in ("memory_training", "position_wise_mlp_dim", "init_gru_gate_bias")),
    *(f"attention_use_n_prev_{k}" for k in ("actions", "rewards")),
    *(f"custom_{k}" for k in ("model", "model_config", "action_dist", "preprocessor", "options")),
    "free_log_std",
    "no_final_linear",
    "vf_share_layers",
    "use_lstm",
    "use_attention",
    "max_seq_len",
    "_time_major",
    "framestack",
    "dim",
    "grayscale",
    "zero_mean",
    "num_framestacks",
    "preprocessor_pref",
    "observation_filter",
    "_disable_preprocessor_api",
    "_no_preprocessing",
    "_disable_action_flattening",
    "_use_default_native_models",
    "encoder_latent_dim",
    "always_check_shapes",
    "log_std_clip_param",
    "state_shape",
    "squash_to_range",
    "channel_major",
    "downscale_factor",
    "extra_frameskip",
    *(
        f"{prefix}_{part}_initializer{suffix}"
        for prefix, part_of_it in {
            "fcnet": "weights",
            "post_fcnet": "weights",
            "lstm": "weights",
            "conv": "kernel",
            "conv_transpose": "kernel",
        }.items()
        for part in (part_of_it, "bias")
        for suffix in ("", "_config")
    ),
}


def test_table_has_every_key():
    assert set(key_rows()) >= RLLIB_KEYS
    assert set(key_rows()) >= set(catalog().schema.keys)
    assert {row[0] for row in key_rows().values()} <= {"honoured", "alias", "ignored", "refused"}
    assert set(keys_of_status("honoured")) == set(catalog().schema.defaults())
    unplaced = [key for key, row in key_rows().items() if not row[3]]
    assert not unplaced, f"no meaning: {unplaced}"


@pytest.mark.parametrize("key", keys_of_status("honoured"))
def test_honoured(key):
    _, default, owner, _ = key_rows()[key]
    row = catalog().schema.keys[key]
    assert owner == f"`{row.owner}`"
    assert literal(default) == row.default
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert parse({key: literal(default)})[key] == rlcatalog.MODEL_DEFAULTS[key] == row.default


#: Alias → a value to give, and what stands under the new name then.
ALIASED = {
    "custom_options": ({"a": 1}, {"a": 1}),
    "always_check_shapes": (True, "always"),
    "_no_preprocessing": (True, True),
    "lstm_use_prev_action_reward": (True, True),
}


@pytest.mark.parametrize("key", keys_of_status("alias"))
def test_alias(key):
    targets = quoted(key_rows()[key][2])
    given, expected = ALIASED[key]
    with pytest.warns(DeprecationWarning, match=f"{key!r}.*{' and '.join(map(repr, targets))}"):
        values = parse({key: given})
    assert values == {**parse({}), **dict.fromkeys(targets, expected)}


@pytest.mark.parametrize("key", keys_of_status("ignored"))
def test_ignored(key):
    with pytest.warns(DeprecationWarning, match=f"{key!r} has no effect"):
        assert parse({key: [7]}) == parse({})


@pytest.mark.parametrize("key", keys_of_status("refused"))
def test_refused(key):
    with pytest.raises(ConfigError, match=f"{key!r} is not supported: ") as caught:
        parse({key: True})
    assert not isinstance(caught.value, UnknownConfigKeyError)
    advice = str(caught.value).partition("is not supported: ")[2].rstrip(".")
    assert advice in key_rows()[key][3]


@pytest.mark.parametrize("config", [ppo.PPOConfig, ppo.A2CConfig, ppo.PGConfig])
def test_keys_of_algorithms(config):
    """Keys of all algorithms have one table; a table for each algorithm has what it adds or
    changes.
    """
    page, name = read("docs/config.md"), config.algorithm
    shared, own = (
        {quoted(row[0])[0]: row[1:] for row in rows(between(page, part))}
        for part in ("on-policy", name)
    )
    known = {row.name: row for row in keys_of(config)}
    assert set(shared) == set(ppo.OnPolicyConfig.__struct_fields__)
    assert own.keys() - shared.keys() == known.keys() - shared.keys()
    found = shared | own
    for key, (default, aliases, meaning) in found.items():
        value = literal(default)
        assert value == known[key].default == getattr(ppo.parse({key: value}, config), key)
        assert meaning, f"{name} key {key!r} has no meaning"
        for alias in quoted(aliases):
            with pytest.warns(DeprecationWarning, match=f"{alias!r}.*{key!r}"):
                assert getattr(ppo.parse({alias: value}, config), key) == value
    assert sorted(alias for row in found.values() for alias in quoted(row[1])) == sorted(
        config.aliases
    )
    with pytest.warns(DeprecationWarning, match="use_pytorch"):
        assert ppo.parse({"use_pytorch": True}, config).framework == "torch"
    for key in ("observation_filter", "preprocessor_pref", "_disable_preprocessor_api"):
        assert ppo.parse({key: "x"}, config).model == {key: "x"}


@pytest.mark.parametrize(
    ("marker", "key"),
    [("activations", "fcnet_activation"), ("initialisers", "fcnet_weights_initializer")],
)
def test_names_are_accepted(marker, key):
    found = rows(between(read("docs/config.md"), marker))
    assert len(found) > 5
    for row in found:
        for name in [*quoted(row[0]), *quoted(row[-1])]:
            assert parse({key: name})[key] == name
        if marker == "initialisers":
            arguments = dict(argument.split("=") for argument in quoted(row[1]))
            parse(
                {
                    key: quoted(row[0])[0],
                    f"{key}_config": {k: float(v) for k, v in arguments.items()},
                }
            )


@pytest.mark.parametrize("package", PACKAGES)
def test_key_tables_of_package_readmes(package):
    """Each key a README gives exists, with this default; a plugin's README gives all keys the
    plugin owns.
    """
    known = dict(catalog().schema.keys)
    if package == "rlcatalog-ppo":
        known = {row.name: row for row in keys_of(ppo.PPOConfig)}
    text = (
        read(f"{PACKAGES[package]}/README.md").partition("## Config keys")[2].partition("\n## ")[0]
    )
    given = set()
    for keys, defaults, _ in rows(text):
        names, values = quoted(keys), [literal(f"`{value}`") for value in quoted(defaults)]
        values *= len(names) if len(values) == 1 else 1
        assert [known[name].default for name in names] == values
        given |= set(names)
    owned = {name for name, row in catalog().schema.keys.items() if row.owner == package}
    assert given >= (
        owned if package != "rlcatalog" else {n for n in owned if "initializer" not in n}
    )
