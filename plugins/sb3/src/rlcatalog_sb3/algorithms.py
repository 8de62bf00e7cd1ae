"""Stable-Baselines3's algorithms by name, each made with the catalog's parts."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Mapping
from typing import Any

from rlcatalog.errors import ConfigError, MissingPluginError, NotServedError, UnknownNameError, nearest

#: Name → (module of the algorithm, policy of this package); None: one of theirs over a CatalogExtractor.
ALGORITHMS: dict[str, tuple[str, str | None]] = {
    "PPO": ("stable_baselines3", "policies:CatalogPolicy"),
    "A2C": ("stable_baselines3", "policies:CatalogPolicy"),
    "DQN": ("stable_baselines3", None),
    "SAC": ("stable_baselines3", None),
    "TD3": ("stable_baselines3", None),
    "MaskablePPO": ("sb3_contrib", "maskable:CatalogMaskablePolicy"),
    "RecurrentPPO": ("rlcatalog_sb3.recurrent", "recurrent:CatalogRecurrentPolicy"),
}


def algorithm_class(name: str) -> Any:
    """Return the class of an algorithm.

    Args:
        name: Its name.

    Raises:
        UnknownNameError: There is no such algorithm.
        MissingPluginError: Its package is not installed.
    """
    if name not in ALGORITHMS:
        raise UnknownNameError(
            f"Unknown algorithm {name!r}.{nearest(name, ALGORITHMS)} Known: {', '.join(ALGORITHMS)}."
        )
    home, _ = ALGORITHMS[name]
    try:
        return getattr(importlib.import_module(home), name)
    except ImportError as error:
        package, extra = ("stable-baselines3", "") if home == "stable_baselines3" else ("sb3-contrib", "[contrib]")
        raise MissingPluginError(
            f"{name} comes with {package}, which is not installed: pip install 'rlcatalog-sb3{extra}'."
        ) from error


def make(name: str, env: Any, model: Mapping[str, Any], frozen: str | None = None, **settings: Any) -> Any:
    """Return an algorithm with the catalog's parts.

    Args:
        name: Its name.
        env: An environment made with `for_sb3`, or a vector environment of such.
        model: The model config.
        frozen: Whether a frozen policy collects, see `CatalogPolicy`; None: as it decides.
        settings: Keyword arguments of the algorithm; `policy_kwargs` are completed.

    Raises:
        UnknownNameError: There is no such algorithm.
        MissingPluginError: Its package is not installed.
        ConfigError: It does not take a setting.
        NotServedError: It collects otherwise than with a policy that could be frozen.
    """
    algorithm, place = algorithm_class(name), ALGORITHMS[name][1]
    policy: Any = "MlpPolicy"
    policy_kwargs = {**settings.pop("policy_kwargs", {})}
    if place is None:
        if frozen == "always":
            raise NotServedError(f"frozen='always': {name} acts by nets of its own, which nothing here freezes.")
        from rlcatalog_sb3.features import CatalogExtractor

        extractor = {"model_config": model}
        policy_kwargs |= {"features_extractor_class": CatalogExtractor, "features_extractor_kwargs": extractor}
    else:
        module, _, cls = place.partition(":")
        policy = getattr(importlib.import_module(f"rlcatalog_sb3.{module}"), cls)
        policy_kwargs["model_config"] = model
        if frozen is not None:
            policy_kwargs["frozen"] = frozen
    accepted = [key for key in inspect.signature(algorithm).parameters if key not in ("policy", "env", "policy_kwargs")]
    for key in settings:
        if key not in accepted:
            raise ConfigError(f"{name} takes no {key!r}.{nearest(key, accepted)} Accepted: {', '.join(accepted)}.")
    return algorithm(policy, env, policy_kwargs=policy_kwargs, **settings)
