"""The page of config keys: its tables say what the catalog does with each key."""

import functools

import pytest
from page_texts import PACKAGES, between, literal, quoted, read, rows

import rlcatalog
from rlcatalog.config import keys_of
from rlcatalog.errors import ConfigError, UnknownConfigKeyError
from rlcatalog_ppo import config as ppo
from rlcatalog_testing import isolated_catalog


@functools.cache
def read_key_table():
    """Return key → (status, default, owner or new keys, meaning) from the two pages of keys."""
    table = {}
    for key, default, meaning, owner in rows(between(read("docs/config.md"), "keys")):
        table[quoted(key)[0]] = ("honoured", default, owner, meaning)
    for key, *cells in rows(between(read("docs/reference/rllib_keys.md"), "rllib-keys")):
        table[quoted(key)[0]] = tuple(cells)
    return table


def keys_with_status(status):
    return [key for key, cells in read_key_table().items() if cells[0] == status]


@functools.cache
def catalog_of_all_packages():
    return isolated_catalog(*(name for name in PACKAGES if name != "rlcatalog"))


def parse(config):
    return catalog_of_all_packages().parse_config(config)


@pytest.mark.parametrize("key", keys_with_status("honoured"))
def test_honoured_key_takes_its_default_without_a_warning(key):
    default = literal(read_key_table()[key][1])
    assert default == catalog_of_all_packages().schema.keys[key].default
    assert default == rlcatalog.MODEL_DEFAULTS[key]
    # pytest makes any warning an error.
    assert parse({key: default})[key] == default


#: Alias → (a value to give, the value of the new key).
ALIASES = {
    "custom_options": ({"a": 1}, {"a": 1}),
    "always_check_shapes": (True, "always"),
    "_no_preprocessing": (True, True),
    "lstm_use_prev_action_reward": (True, True),
}


@pytest.mark.parametrize("key", keys_with_status("alias"))
def test_alias_sets_its_new_keys_and_warns(key):
    new_keys = quoted(read_key_table()[key][2])
    given, expected = ALIASES[key]
    names = " and ".join(map(repr, new_keys))
    with pytest.warns(DeprecationWarning, match=f"{key!r}.*{names}"):
        values = parse({key: given})
    assert values == {**parse({}), **dict.fromkeys(new_keys, expected)}


@pytest.mark.parametrize("key", keys_with_status("ignored"))
def test_ignored_key_changes_nothing_and_warns(key):
    with pytest.warns(DeprecationWarning, match=f"{key!r} has no effect"):
        values = parse({key: [7]})
    assert values == parse({})


@pytest.mark.parametrize("key", keys_with_status("refused"))
def test_rejected_key_gives_the_advice_of_the_table(key):
    with pytest.raises(ConfigError, match=f"{key!r} is not supported: ") as caught:
        parse({key: True})
    assert not isinstance(caught.value, UnknownConfigKeyError)
    advice = str(caught.value).partition("is not supported: ")[2].rstrip(".")
    assert advice in read_key_table()[key][3]


# --- keys of algorithms ---------------------------------------------------------------------------


def read_algorithm_table(marker):
    """Return key → (default, aliases, meaning) from a table of an algorithm's keys."""
    table = rows(between(read("docs/config.md"), marker))
    return {quoted(key)[0]: cells for key, *cells in table}


def read_algorithm_keys(config):
    """Return the same for all keys of an algorithm: shared ones, with its own in their place."""
    return read_algorithm_table("on-policy") | read_algorithm_table(config.algorithm)


ALGORITHMS = pytest.mark.parametrize("config", [ppo.PPOConfig, ppo.A2CConfig, ppo.PGConfig])


@ALGORITHMS
def test_algorithm_tables_give_its_aliases(config):
    listed = []
    for name, (default, aliases, _) in read_algorithm_keys(config).items():
        for alias in quoted(aliases):
            with pytest.warns(DeprecationWarning, match=f"{alias!r}.*{name!r}"):
                values = ppo.parse({alias: literal(default)}, config)
            assert getattr(values, name) == literal(default)
            listed.append(alias)
    assert sorted(listed) == sorted(config.aliases)


@ALGORITHMS
def test_use_pytorch_chooses_the_framework(config):
    with pytest.warns(DeprecationWarning, match="use_pytorch"):
        assert ppo.parse({"use_pytorch": True}, config).framework == "torch"


@ALGORITHMS
@pytest.mark.parametrize(
    "key", ["observation_filter", "preprocessor_pref", "_disable_preprocessor_api"]
)
def test_algorithm_takes_keys_of_the_model(config, key):
    assert ppo.parse({key: "x"}, config).model == {key: "x"}


# --- names and READMEs ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("marker", "key"),
    [("activations", "fcnet_activation"), ("initialisers", "fcnet_weights_initializer")],
)
def test_listed_names_are_values_of_the_key(marker, key):
    table = rows(between(read("docs/config.md"), marker))
    assert len(table) > 5
    for first_cell, *_, last_cell in table:
        for name in quoted(first_cell) + quoted(last_cell):  # the name, and its other spellings
            assert parse({key: name})[key] == name


def test_listed_arguments_are_those_of_the_initialiser():
    for names, arguments, *_ in rows(between(read("docs/config.md"), "initialisers")):
        config = {"fcnet_weights_initializer": quoted(names)[0]}
        pairs = [argument.split("=") for argument in quoted(arguments)]
        config["fcnet_weights_initializer_config"] = {name: float(value) for name, value in pairs}
        parse(config)  # an argument that it does not have would be an error


def read_key_table_of_readme(package):
    """Return key → default from the README of a package; a row may have several keys."""
    section = read(f"{PACKAGES[package]}/README.md").partition("## Config keys")[2]
    defaults_of_keys = {}
    for keys, defaults, _ in rows(section.partition("\n## ")[0]):
        names = quoted(keys)
        values = [literal(f"`{value}`") for value in quoted(defaults)]
        if len(values) == 1:
            values *= len(names)  # the default of all of them
        defaults_of_keys |= dict(zip(names, values, strict=True))
    return defaults_of_keys


@pytest.mark.parametrize("package", PACKAGES)
def test_readme_gives_the_defaults_of_keys(package):
    keys = dict(catalog_of_all_packages().schema.keys)
    if package == "rlcatalog-ppo":
        keys = {key.name: key for key in keys_of(ppo.PPOConfig)}
    for name, default in read_key_table_of_readme(package).items():
        assert keys[name].default == default


@pytest.mark.parametrize("package", PACKAGES)
def test_readme_lists_the_keys_that_the_package_owns(package):
    keys = catalog_of_all_packages().schema.keys
    owned = {name for name, key in keys.items() if key.owner == package}
    if package == "rlcatalog":
        # There are twenty; docs/config.md lists them.
        owned = {name for name in owned if "initializer" not in name}
    assert owned <= set(read_key_table_of_readme(package))
