"""Names of Stable-Baselines3's algorithms, their policy classes, and policy aliases such as
`"CatalogPolicy"`.
"""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from rlcatalog.errors import (
    ConfigError,
    MissingPluginError,
    NotServedError,
    UnknownNameError,
    nearest,
)
from rlcatalog.plugins import install_hint

#: Name → (package, policy in this package). None means Stable-Baselines3's policy with a
#: CatalogExtractor.
ALGORITHMS: dict[str, tuple[str, str | None]] = {
    "PPO": ("stable_baselines3", "CatalogPolicy"),
    "A2C": ("stable_baselines3", "CatalogPolicy"),
    "DQN": ("stable_baselines3", None),
    "SAC": ("stable_baselines3", None),
    "TD3": ("stable_baselines3", None),
    "MaskablePPO": ("sb3_contrib", "CatalogMaskablePolicy"),
    "RecurrentPPO": ("sb3_contrib", "CatalogRecurrentPolicy"),
}
#: Name → module in this package that defines it.
_MODULES = {
    **dict.fromkeys(("CatalogMaskablePolicy", "CatalogRecurrentPolicy", "RecurrentPPO"), "contrib"),
    "CatalogExtractor": "features",
    "CatalogPolicy": "policies",
}
#: Algorithms with separate nets for actions and values. Those not in the table above cannot be
#: converted.
OWN_NETS = frozenset({"DQN", "SAC", "TD3", "QRDQN", "TQC", "CrossQ"})


def algorithm_class(name: str) -> Any:
    """Return an algorithm's class.

    Args:
        name: The algorithm's name.

    Raises:
        UnknownNameError: There is no such algorithm.
        MissingPluginError: Its package is not installed.
    """
    if name not in ALGORITHMS:
        raise UnknownNameError(
            f"Unknown algorithm {name!r}.{nearest(name, ALGORITHMS)} Known:"
            f" {', '.join(ALGORITHMS)}."
        )
    package, _ = ALGORITHMS[name]
    try:
        return _own(name) or getattr(importlib.import_module(package), name)
    except ImportError as error:
        extra = "[contrib]" if package == "sb3_contrib" else ""
        raise MissingPluginError(
            f"{name} is part of {package.replace('_', '-')}, which is not installed."
            f" {install_hint(f'rlcatalog-sb3{extra}')}"
        ) from error


def refuse_algorithm(name: str) -> None:
    """Raise an error if a name imported from this package is an algorithm's name.

    Raises:
        ImportError: The name is an algorithm's name. An AttributeError's message would not be shown
            by `from … import …`.
    """
    if name in ALGORITHMS:
        package, policy = ALGORITHMS[name]
        call = f"{name}({policy}, env)"
        if policy is None:
            policy = "CatalogExtractor"
            call = (
                f'{name}("MlpPolicy", env, policy_kwargs={{"features_extractor_class": {policy}}})'
            )
        raise ImportError(
            f"rlcatalog_sb3 has no {name}; it provides nets for {package}'s {name}. Write:\n"
            f"from {package} import {name}\nfrom rlcatalog_sb3 import {policy}\nmodel = {call}"
        )


def make(
    name: str, env: Any, model: Mapping[str, Any], frozen: str | None = None, **settings: Any
) -> Any:
    """Return an algorithm with catalog parts.

    Args:
        name: The algorithm's name.
        env: An environment created with `for_sb3`, or a vector environment of such environments.
        model: The model config.
        frozen: Whether a frozen policy collects rollouts; see `CatalogPolicy`. If None, the
            policy's default applies.
        settings: Keyword arguments for the algorithm; missing `policy_kwargs` are added.

    Raises:
        UnknownNameError: There is no such algorithm.
        MissingPluginError: Its package is not installed.
        ConfigError: The algorithm does not accept a setting.
        NotServedError: `frozen` is `"always"`, but the algorithm's policy cannot be frozen.
    """
    algorithm, own = algorithm_class(name), ALGORITHMS[name][1]
    policy: Any = "MlpPolicy" if own is None else _own(own)
    policy_kwargs = {**settings.pop("policy_kwargs", {})}
    if own is None:
        if frozen == "always":
            raise NotServedError(
                f"frozen='always': {name} does not act with a catalog policy. Remove it."
            )
        policy_kwargs["features_extractor_class"] = _own("CatalogExtractor")
        policy_kwargs["features_extractor_kwargs"] = {"model_config": model}
    else:
        policy_kwargs |= (
            {"model_config": model} if frozen is None else {"model_config": model, "frozen": frozen}
        )
    accepted = [
        key
        for key in inspect.signature(algorithm).parameters
        if key not in ("policy", "env", "policy_kwargs")
    ]
    for key in settings:
        if key not in accepted:
            raise ConfigError(
                f"{name} does not accept {key!r}.{nearest(key, accepted)} Accepted:"
                f" {', '.join(accepted)}."
            )
    return algorithm(policy, env, policy_kwargs=policy_kwargs, **settings)


def _own(name: str) -> Any:
    """Return this package's object with the given name, or None."""
    return (
        getattr(importlib.import_module(f"rlcatalog_sb3.{_MODULES[name]}"), name)
        if name in _MODULES
        else None
    )


def enter_names(*, importing: bool) -> None:
    """Add this package's policies to the algorithms' `policy_aliases`, for
    `PPO("CatalogPolicy", env)`.

    Algorithms that a policy rejects also get its name, because its error is more helpful than one
    about an unknown name.

    Args:
        importing: Whether to import the algorithms. If False, algorithms that are not imported yet
            do not get the names.
    """
    for package in ("stable_baselines3", "sb3_contrib"):
        if importing and package not in sys.modules:
            # sb3-contrib is optional; an import error is raised when it is used.
            with suppress(Exception):
                importlib.import_module(package)
        for name in (*ALGORITHMS, *OWN_NETS, "TRPO"):
            # Older versions have fewer.
            if (cls := getattr(sys.modules.get(package), name, None)) is not None:
                policy = ALGORITHMS.get(name, (package, None))[1] or "CatalogPolicy"
                cls.policy_aliases[policy] = _own(policy)
