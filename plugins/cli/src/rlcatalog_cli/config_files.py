"""Config files of commands: YAML files with the model's and the algorithm's config keys."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from rlcatalog.errors import ConfigError, one_line, shown

#: The key with the model config, as in the config of an algorithm.
_MODEL = "model"
#: YAML 1.1, which PyYAML reads, takes 3e-4 for a text, because it has no point.
_NUMBER_WITH_EXPONENT = re.compile(r"[-+]?\d+(\.\d*)?[eE][-+]?\d+$")
#: The tag of `<<`, which adds another table.
_MERGE = "tag:yaml.org,2002:merge"


class FileConfig(NamedTuple):
    """Config from a file; see `read_config_file`.

    Attributes:
        model: The model config.
        settings: The algorithm's config keys.
    """

    model: dict[str, Any]
    settings: dict[str, Any]


def read_config_file(path: Path) -> FileConfig:
    """Read a config file: a table with the algorithm's config keys, and the model config under
    `model`, as in the config of `rlcatalog_ppo.PPO`.

    Args:
        path: The file, in YAML. It cannot contain objects of Python, so it runs no code.

    Raises:
        ConfigError: The file cannot be read, or does not have this form.
    """
    try:
        text = path.read_text(encoding="utf-8")
        content = yaml.load(text, _Loader)
    except (OSError, UnicodeError, yaml.YAMLError, RecursionError) as error:
        raise ConfigError(f"--config {path}: cannot be read: {one_line(str(error))}") from error
    _check_table(content, f"--config {path}")
    settings = dict(content)
    model = settings.pop(_MODEL, {})
    _check_table(model, f"--config {path}: {_MODEL}")
    return FileConfig(dict(model), settings)


def read_model_config(path: Path) -> dict[str, Any]:
    """Return the model config of a config file, for commands that use nothing else of it.

    Raises:
        ConfigError: As for `read_config_file`; or the file has no model config.
    """
    config = read_config_file(path)
    if not config.model:
        raise ConfigError(
            f"--config {path}: has no model config. Write the keys of the model below `{_MODEL}:`,"
            " for example `model: {fcnet_hiddens: [64, 64]}`."
        )
    return config.model


def _check_table(value: Any, what: str) -> None:
    if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
        raise ConfigError(
            f"{what}: expected a table of config keys, such as `fcnet_hiddens: [64, 64]`, found"
            f" {shown(value)}."
        )


class _Loader(yaml.SafeLoader):  # type: ignore[misc]
    """YAML loader that accepts plain values only, reads 3e-4 as a number, and refuses a key that is
    given twice.
    """

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """Return a table; raise an error for a repeated key, whose last value YAML would keep."""
        keys = []
        for key_node, _ in node.value:
            if key_node.tag == _MERGE:
                continue
            key = self.construct_object(key_node, deep=True)
            if key in keys:
                raise yaml.constructor.ConstructorError(
                    problem=f"{shown(key)} is given twice", problem_mark=key_node.start_mark
                )
            keys.append(key)
        table: dict[Any, Any] = super().construct_mapping(node, deep)
        return table


_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float", _NUMBER_WITH_EXPONENT, list("-+0123456789")
)
