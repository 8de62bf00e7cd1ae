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

FLOAT_MIN = -3.4e38
FLOAT_MAX = 3.4e38
SMALL_NUMBER = 1e-6
LARGE_INTEGER = 100_000_000
MIN_LOG_NN_OUTPUT = -5
MAX_LOG_NN_OUTPUT = 2
DEFAULT_POLICY_ID = "default_policy"
LEARNER_INFO = "learner"
LEARNER_STATS_KEY = "learner_stats"
ATARI_OBS_SHAPE = (210, 160, 3)
ATARI_RAM_OBS_SHAPE = (128,)
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
        self.worker_index = worker_index
        self.vector_index = vector_index
        self.remote = remote
        self.num_workers = num_workers
        self.recreated_worker = recreated_worker

    def copy_with_overrides(
        self, env_config: Mapping[str, Any] | None = None, **overrides: Any
    ) -> EnvContext:
        """Return a copy with some attributes or the whole config replaced; None keeps the current
        value.
        """
        attributes = dict(vars(self))
        for name, value in overrides.items():
            if value is not None:
                attributes[name] = value
        if env_config is None:
            env_config = copy.deepcopy(dict(self))
        return EnvContext(env_config, **attributes)

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
            continue
        has_new_type = "type" in value and value["type"] != old.get("type")
        if has_new_type and key in (override_all_if_type_changes or ()):
            original[key] = dict(value)
            continue
        may_have_new_keys = new_keys_allowed or key in (allow_new_subkey_list or ())
        deep_update(old, value, new_keys_allowed=may_have_new_keys)
    return original


def merge_dicts(d1: Mapping[str, Any], d2: Mapping[str, Any]) -> dict[str, Any]:
    """Return the recursive merge of two dictionaries; values in `d2` take precedence."""
    return deep_update(copy.deepcopy(dict(d1)), d2, new_keys_allowed=True)


def force_list(elements: Any = None, to_tuple: bool = False) -> Any:
    """Return a list or tuple: empty for None, the items of a list or tuple, or a single value as
    one item.
    """
    if elements is None:
        elements = []
    elif not isinstance(elements, list | tuple):
        elements = [elements]
    if to_tuple:
        return tuple(elements)
    return list(elements)


force_tuple = partial(force_list, to_tuple=True)


def pretty_print(result: Mapping[str, Any]) -> str:
    """Return a result as indented text."""
    return json.dumps(result, indent=2, default=str)


def from_config(
    cls: type | str | Mapping[str, Any] | None, config: Any = None, **kwargs: Any
) -> Any:
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
    base_class: Any = cls
    if config is None and isinstance(cls, dict | str):
        base_class = None
        config = cls
    elif isinstance(cls, str):  # the class's name, beside its arguments
        base_class = None
        config = {"type": cls, **dict(config or {})}
    if isinstance(base_class, type) and isinstance(config, base_class):
        return config
    if isinstance(config, Mapping):
        arguments = {**config, **kwargs}
    else:
        arguments = {"type": config, **kwargs}
    # The class, its name, another callable, or None for `base_class`.
    class_or_name = arguments.pop("type", None)
    if class_or_name is False:
        return False
    constructor = class_or_name
    if class_or_name is None:
        constructor = base_class
    elif isinstance(class_or_name, str):
        constructor = _find_class(class_or_name, base_class)
    else:
        constructor = _type_registry(base_class).get(class_or_name, class_or_name)
    if not callable(constructor):
        raise ConfigError(f"from_config: expected a class or its name, found {constructor!r}.")
    if inspect.isabstract(constructor):
        return None  # as in RLlib
    positional_arguments = force_list(arguments.pop("_args", None))
    return constructor(*positional_arguments, **arguments)


def _type_registry(base_class: type | None) -> Mapping[Any, Any]:
    """Return the classes that RLlib code registers on a base class, by their short names."""
    # RLlib's own classes, or a user's, may have this attribute.
    registry: Mapping[Any, Any] = getattr(base_class, "__type_registry__", {})
    return registry


def _find_class(name: str, base_class: type | None) -> Any:
    """Return the class or function with this name.

    Args:
        name: A key of the base class's registry, `"module.Class"`, or a name in the base class's
            module.
        base_class: The class that the result derives from, or None.

    Raises:
        ConfigError: There is none.
    """
    registry = _type_registry(base_class)
    short_name = "".join(filter(str.isalnum, name.lower()))
    for key in (name, short_name):
        if registry.get(key) is not None:
            return registry[key]
    module_name, _, attribute = name.rpartition(".")
    try:
        # None has no module, so without a base class this raises the AttributeError.
        module = importlib.import_module(module_name or base_class.__module__)
        # The config names this attribute of a module of RLlib or of a user.
        return getattr(module, attribute)
    except (ImportError, AttributeError):
        registered = sorted(map(str, registry))
        raise ConfigError(
            f"from_config: expected 'module.Class' or one of {registered}, found {name!r}."
        ) from None
