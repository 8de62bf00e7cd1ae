"""Constants and small helpers that RLlib code imports from `ray.rllib.utils`, `ray.tune.utils` and
`ray.util`.
"""

from __future__ import annotations

import contextlib
import copy
import importlib
import inspect
import json
from collections.abc import Mapping
from functools import partial
from typing import Any, TypeVar

from rlcatalog.errors import ConfigError

FLOAT_MIN, FLOAT_MAX = -3.4e38, 3.4e38
SMALL_NUMBER = 1e-6
LARGE_INTEGER = 100_000_000
MIN_LOG_NN_OUTPUT, MAX_LOG_NN_OUTPUT = -5, 2
DEFAULT_POLICY_ID = "default_policy"
LEARNER_INFO, LEARNER_STATS_KEY = "learner", "learner_stats"
ATARI_OBS_SHAPE, ATARI_RAM_OBS_SHAPE = (210, 160, 3), (128,)
T = TypeVar("T")

NullContextManager = contextlib.nullcontext


class EnvError(Exception):
    """Invalid environment."""


class EnvContext(dict[str, Any]):
    """Environment config that also contains the environment's index.

    Args:
        env_config: The config.
        worker_index: Index of the worker, 0 in the main process.
        vector_index: Index of the environment within the worker.
        remote: Whether it runs in a separate process.
        num_workers: Number of workers.
        recreated_worker: Whether the worker replaces a failed worker.
    """

    def __init__(
        self,
        env_config: Mapping[str, Any],
        worker_index: int = 0,
        vector_index: int = 0,
        remote: bool = False,
        num_workers: int | None = None,
        recreated_worker: bool = False,
    ) -> None:
        super().__init__(env_config)
        self.worker_index, self.vector_index, self.remote = worker_index, vector_index, remote
        self.num_workers, self.recreated_worker = num_workers, recreated_worker

    def copy_with_overrides(
        self, env_config: Mapping[str, Any] | None = None, **overrides: Any
    ) -> EnvContext:
        """Return a copy with some attributes or the whole config replaced; None keeps the current
        value.
        """
        attributes = {
            **vars(self),
            **{name: value for name, value in overrides.items() if value is not None},
        }
        return EnvContext(
            copy.deepcopy(dict(self)) if env_config is None else env_config, **attributes
        )

    def set_defaults(self, defaults: Mapping[str, Any]) -> None:
        """Set the keys that are missing."""
        for key, value in defaults.items():
            self.setdefault(key, value)


def deep_update(
    original: dict[str, Any],
    new_dict: Mapping[str, Any],
    new_keys_allowed: bool = False,
    allow_new_subkey_list: list[str] | None = None,
    override_all_if_type_changes: list[str] | None = None,
) -> dict[str, Any]:
    """Recursively merge one dictionary into another, and return the latter.

    Args:
        original: The dictionary to change.
        new_dict: Dictionary to merge.
        new_keys_allowed: Whether `new_dict` may add keys.
        allow_new_subkey_list: Keys whose dictionaries may get new keys.
        override_all_if_type_changes: Keys whose dictionary is replaced if its `"type"` differs.

    Raises:
        KeyError: A new key is not allowed.
    """
    for key, value in new_dict.items():
        if not new_keys_allowed and key not in original:
            raise KeyError(
                f"Unknown config parameter {key!r}; known: {sorted(map(str, original))}."
            )
        old = original.get(key)
        if not (isinstance(old, dict) and isinstance(value, Mapping)):
            original[key] = value
        elif (
            key in (override_all_if_type_changes or ())
            and "type" in value
            and value["type"] != old.get("type")
        ):
            original[key] = dict(value)
        else:
            deep_update(old, value, new_keys_allowed or key in (allow_new_subkey_list or ()))
    return original


def merge_dicts(d1: Mapping[str, Any], d2: Mapping[str, Any]) -> dict[str, Any]:
    """Return the recursive merge of two dictionaries; values in `d2` take precedence."""
    return deep_update(copy.deepcopy(dict(d1)), d2, new_keys_allowed=True)


def force_list(elements: Any = None, to_tuple: bool = False) -> Any:
    """Return a list or tuple: empty for None, the items of a list or tuple, or a single value as
    one item.
    """
    kind = tuple if to_tuple else list
    if elements is None:
        return kind()
    return kind(elements) if isinstance(elements, list | tuple) else kind([elements])


force_tuple = partial(force_list, to_tuple=True)


def pretty_print(result: Mapping[str, Any]) -> str:
    """Return a result as indented text."""
    return json.dumps(result, indent=2, default=str)


def from_config(cls: Any, config: Any = None, **kwargs: Any) -> Any:
    """Return the object that a config describes.

    Args:
        cls: The class to create if the config does not name a class, or its `"module.Class"`. A
            dict or string without a config is the config. For an abstract class, the result is
            None.
        config: An object of the class, which is returned; or a description of the object, directly
            or under `"type"` next to its arguments: a key of the class's `__type_registry__`, a
            callable, `"module.Class"`, or a name in the class's module.
        **kwargs: Additional arguments, which override those in the config; `_args` is the list of
            positional arguments.

    Raises:
        ConfigError: The name is unknown, or there is none.
    """
    if config is None and isinstance(cls, dict | str):
        cls, config = None, cls
    if isinstance(cls, str):  # the class's name, beside its arguments
        cls, config = None, {"type": cls, **dict(config or {})}
    if isinstance(cls, type) and isinstance(config, cls):
        return config
    given = {**config, **kwargs} if isinstance(config, Mapping) else {"type": config, **kwargs}
    if (wanted := given.pop("type", None)) is False:
        return False
    registry = getattr(cls, "__type_registry__", {})
    made = cls if wanted is None else registry.get(wanted)
    if made is None and isinstance(wanted, str):
        home, _, name = wanted.rpartition(".")
        made = registry.get("".join(filter(str.isalnum, wanted.lower())))
        try:
            made = made or getattr(importlib.import_module(home or cls.__module__), name)
        except (ImportError, AttributeError):
            known = sorted(map(str, registry))
            raise ConfigError(
                f"from_config: expected 'module.Class' or one of {known}, found {wanted!r}."
            ) from None
    constructor = wanted if made is None else made
    if not callable(constructor):
        raise ConfigError(f"from_config: expected a class or its name, found {constructor!r}.")
    if inspect.isabstract(constructor):
        return None  # as in RLlib
    return constructor(*force_list(given.pop("_args", None)), **given)
