"""Names of Stable-Baselines3's algorithms, their policy classes, and policy aliases such as
`"CatalogPolicy"`.
"""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

from rlcatalog.errors import (
    ConfigError,
    MissingPluginError,
    NotServedError,
    UnknownNameError,
    nearest,
)
from rlcatalog.plugins import install_hint

if TYPE_CHECKING:  # Stable-Baselines3 is imported at first use, because importing it takes long.
    from stable_baselines3.common.base_class import BaseAlgorithm
    from stable_baselines3.common.type_aliases import GymEnv


class TrainingLoop(NamedTuple):
    """What an algorithm's training loop does for its policy.

    Attributes:
        algorithm: Name of the algorithm, for error messages.
        policy: Name of the policy's class, for error messages.
        keeps_states: Whether the loop keeps a memory's states between steps, as RecurrentPPO does.
        adapts_actions: Whether the loop passes Box actions through the policy's `unscale_action`.
            Otherwise, it clips them to their bounds.
        learns_q_values: Whether the loop learns values of actions, as DQN does. Otherwise, it
            learns a distribution and values of observations.
    """

    algorithm: str
    policy: str
    keeps_states: bool
    adapts_actions: bool
    learns_q_values: bool


class Algorithm(NamedTuple):
    """Where an algorithm and its policy are defined.

    Attributes:
        package: The package that defines the algorithm.
        policy: The policy class in this package. If None, the algorithm uses Stable-Baselines3's
            policy with a `CatalogExtractor`.
        policy_with_critics: The policy class for a model config with the key `critic`, if it is a
            different one.
    """

    package: str
    policy: str | None
    policy_with_critics: str | None = None


ALGORITHMS = {
    "PPO": Algorithm("stable_baselines3", policy="CatalogPolicy"),
    "A2C": Algorithm("stable_baselines3", policy="CatalogPolicy"),
    "DQN": Algorithm("stable_baselines3", policy="CatalogQPolicy"),
    "SAC": Algorithm("stable_baselines3", policy=None, policy_with_critics="CatalogSACPolicy"),
    "TD3": Algorithm("stable_baselines3", policy=None, policy_with_critics="CatalogTD3Policy"),
    "QRDQN": Algorithm("sb3_contrib", policy="CatalogQuantilePolicy"),
    "TQC": Algorithm("sb3_contrib", policy=None, policy_with_critics="CatalogTQCPolicy"),
    "MaskablePPO": Algorithm("sb3_contrib", policy="CatalogMaskablePolicy"),
    "RecurrentPPO": Algorithm("sb3_contrib", policy="CatalogRecurrentPolicy"),
}
#: Classes of this package → the module that defines them.
_MODULES_OF_OWN_CLASSES = {
    "CatalogExtractor": "features",
    "CatalogPolicy": "policies",
    "CatalogQPolicy": "q_learning",
    "CatalogQuantilePolicy": "quantile_learning",
    "CatalogSACPolicy": "action_critics",
    "CatalogTD3Policy": "action_critics",
    "CatalogTQCPolicy": "quantile_learning",
    "DQN": "q_learning",
    "QRDQN": "quantile_learning",
    "CatalogMaskablePolicy": "contrib",
    "CatalogRecurrentPolicy": "contrib",
    "RecurrentPPO": "contrib",
}
#: Algorithms with separate nets for actions and values. Those not in the table above cannot be
#: converted.
OWN_NETS = frozenset({"DQN", "SAC", "TD3", "QRDQN", "TQC", "CrossQ"})


def algorithm_class(name: str) -> type[BaseAlgorithm]:
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
    package = ALGORITHMS[name].package
    algorithm: type[BaseAlgorithm]
    try:
        if name in _MODULES_OF_OWN_CLASSES:  # this package has its own version
            algorithm = _import_own_class(name)
        else:
            algorithm = getattr(importlib.import_module(package), name)  # the package's class
    except ImportError as error:
        extra = "[contrib]" if package == "sb3_contrib" else ""
        hint = install_hint("rlcatalog-sb3" + extra)
        raise MissingPluginError(
            f"{name} is part of {package.replace('_', '-')}, which is not installed. {hint}"
        ) from error
    return algorithm


def refuse_import_of_algorithm(name: str) -> None:
    """Raise an error if a name imported from this package is an algorithm's name.

    Raises:
        ImportError: The name is an algorithm's name. An AttributeError's message would not be shown
            by `from … import …`.
    """
    if name not in ALGORITHMS:
        return
    package = ALGORITHMS[name].package
    policy = ALGORITHMS[name].policy
    if policy is None:  # SAC, TD3 or TQC, which has a catalog trunk in its own policy
        own_class = "CatalogExtractor"
        keywords = f'{{"features_extractor_class": {own_class}}}'
        call = f'{name}("MlpPolicy", env, policy_kwargs={keywords})'
    else:
        own_class = policy
        call = f"{name}({own_class}, env)"
    raise ImportError(
        f"rlcatalog_sb3 has no {name}; it provides nets for {package}'s {name}. Write:\n"
        f"from {package} import {name}\nfrom rlcatalog_sb3 import {own_class}\nmodel = {call}"
    )


def make(
    name: str, env: GymEnv, model: Mapping[str, Any], frozen: str | None = None, **settings: Any
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
    algorithm: Any = algorithm_class(name)
    policy_name = ALGORITHMS[name].policy
    policy_with_critics = ALGORITHMS[name].policy_with_critics
    if policy_name is None and frozen == "always":
        raise NotServedError(
            f"frozen='always': {name} does not act with a catalog policy. Remove it."
        )
    policy_kwargs = dict(settings.pop("policy_kwargs", {}))
    policy: Any
    if policy_with_critics is not None and model.get("critic") is not None:
        policy = _import_own_class(policy_with_critics)
        policy_kwargs["model_config"] = model
    elif policy_name is None:  # SAC, TD3 or TQC, which has a catalog trunk in its own policy
        policy = "MlpPolicy"
        policy_kwargs["features_extractor_class"] = _import_own_class("CatalogExtractor")
        policy_kwargs["features_extractor_kwargs"] = {"model_config": model}
    else:
        policy = _import_own_class(policy_name)
        policy_kwargs["model_config"] = model
        if frozen is not None:
            policy_kwargs["frozen"] = frozen
    _check_settings(name, algorithm, settings)
    return algorithm(policy, env, policy_kwargs=policy_kwargs, **settings)


def _check_settings(name: str, algorithm: type[BaseAlgorithm], settings: Mapping[str, Any]) -> None:
    """Raise an error unless an algorithm's constructor has a parameter for each setting.

    Raises:
        ConfigError: The constructor does not have a parameter for a setting.
    """
    set_by_make = ("policy", "env", "policy_kwargs")
    parameters = inspect.signature(algorithm).parameters
    accepted = [key for key in parameters if key not in set_by_make]
    for key in settings:
        if key not in accepted:
            raise ConfigError(
                f"{name} does not accept {key!r}.{nearest(key, accepted)} Accepted:"
                f" {', '.join(accepted)}."
            )


def _import_own_class(name: str) -> Any:
    """Return this package's class with the given name."""
    module = importlib.import_module(f"rlcatalog_sb3.{_MODULES_OF_OWN_CLASSES[name]}")
    return getattr(module, name)  # a class of this package


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
        if package not in sys.modules:
            continue
        for name in (*ALGORITHMS, *OWN_NETS, "TRPO"):
            # Each algorithm is in one of the two packages, and older versions have fewer.
            algorithm = getattr(sys.modules[package], name, None)
            if algorithm is not None:
                for policy in _policy_names(name):
                    algorithm.policy_aliases[policy] = _import_own_class(policy)


def _policy_names(algorithm: str) -> list[str]:
    """Return the names of policies that an algorithm gets: its own, and `CatalogPolicy` if that one
    rejects the algorithm with an error that helps.
    """
    names = []
    if algorithm in ALGORITHMS:
        for policy in (ALGORITHMS[algorithm].policy, ALGORITHMS[algorithm].policy_with_critics):
            if policy is not None:
                names.append(policy)
    if not names or algorithm in OWN_NETS:
        names.append("CatalogPolicy")
    return names
