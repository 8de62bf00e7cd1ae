"""The option `--config` of commands: YAML files with config keys."""

from __future__ import annotations

import pytest

from rlcatalog.errors import ConfigError
from rlcatalog_cli.config_files import read_config_file, read_model_config
from rlcatalog_cli.options import model_config


@pytest.fixture
def write(tmp_path):
    """Return a function that writes a config file and returns its path."""

    def write(text):
        path = tmp_path / "config.yaml"
        path.write_text(text)
        return path

    return write


def test_config_file_has_model_and_algorithm_keys(write):
    path = write(
        """
        model:
          fcnet_hiddens: [64, 32]
          use_lstm: true
        gamma: 0.9
        """
    )

    config = read_config_file(path)

    assert config.model == {"fcnet_hiddens": [64, 32], "use_lstm": True}
    assert config.settings == {"gamma": 0.9}


@pytest.mark.parametrize(
    ("text", "number"),
    [("3e-4", 3e-4), ("1E5", 1e5), ("-2.5e3", -2.5e3), ("3.0e-4", 3e-4), ("7", 7), ("0.5", 0.5)],
)
def test_config_file_reads_numbers(text, number, write):
    [value] = read_config_file(write(f"lr: {text}")).settings.values()

    assert value == number
    assert type(value) is type(number)


def test_config_file_may_be_json(write):
    config = read_config_file(write('{"model": {"fcnet_hiddens": [8]}, "lr": 0.1}'))

    assert config == ({"fcnet_hiddens": [8]}, {"lr": 0.1})


def test_config_file_may_share_tables(write):
    path = write("net: &net {a: 1}\nmodel:\n  <<: *net\n  b: 2\n")

    assert read_config_file(path).model == {"a": 1, "b": 2}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("model: [", "cannot be read"),
        ("lr: 1\nlr: 2", "'lr' is given twice"),
        ("model:\n  a: 1\n  a: 2", "'a' is given twice"),
        ("- a", "expected a table of config keys"),
        ("", "expected a table of config keys"),
        ("1: 2", "expected a table of config keys"),
        ("model: fcnet", "model: expected a table"),
        ("lr: !!python/object/apply:os.getcwd []", "cannot be read"),
    ],
)
def test_wrong_config_file_is_an_error(text, message, write):
    path = write(text)

    with pytest.raises(ConfigError, match="--config") as caught:
        read_config_file(path)

    assert str(caught.value).startswith(f"--config {path}: ")
    assert message in str(caught.value)


def test_missing_config_file_is_an_error(tmp_path):
    with pytest.raises(ConfigError, match="cannot be read"):
        read_config_file(tmp_path / "none.yaml")


def test_model_config_needs_the_table_of_the_model(write):
    path = write("fcnet_hiddens: [64]")  # a key of the model, but not below `model:`

    with pytest.raises(ConfigError, match="has no model config"):
        read_model_config(path)


def test_model_options_override_the_file(write):
    path = write("model: {fcnet_hiddens: [8], use_lstm: true}")

    config = model_config(path, ["fcnet_hiddens=[16]"])

    assert config == {"fcnet_hiddens": [16], "use_lstm": True}
    assert model_config(file=None, options=None) == {}
