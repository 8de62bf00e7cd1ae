"""Ray Tune search over model config keys, with `tune.grid_search` or a distribution."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ray.tune.search.sample import Domain, Function

from rlcatalog import Policy
from rlcatalog.errors import ConfigError
from rlcatalog_rllib.spaces import encoded_space

#: Number of values from a distribution that are tried beforehand.
_DRAWN = 4


def search_options(model: Mapping[str, Any]) -> dict[str, list[Any]]:
    """Return the keys of a model config that Ray Tune searches over, with possible values.

    Args:
        model: The model config; values may be `tune.grid_search([...])` or a distribution such as
            `tune.choice([...])`.

    Raises:
        ConfigError: A value depends on other values (`tune.sample_from`), or a grid search is
            empty.
    """
    found = {}
    for key, value in model.items():
        if isinstance(value, Function):
            raise ConfigError(
                f"model: {key} is a tune.sample_from, whose values are not known in advance. Pass"
                " Tune a function that calls rlcatalog_rllib.configure with the trial's values."
            )
        if isinstance(value, Domain):
            found[key] = [value.sample() for _ in range(_DRAWN)]
        elif isinstance(value, Mapping) and set(value) == {"grid_search"}:
            found[key] = list(value["grid_search"])
            if not found[key]:
                raise ConfigError(f"model: {key} is an empty tune.grid_search.")
    return found


def check_encoding(
    options: Mapping[str, list[Any]], policy: Policy, build: Callable[[dict[str, Any]], Policy]
) -> None:
    """Raise an error if a search changes how environment runners encode observations or adapt
    actions.

    Args:
        options: The result of `search_options`.
        policy: The policy built with the first value of each key.
        build: Callable that builds the policy with other values for some keys.

    Raises:
        ConfigError: The search changes this.
        CatalogError: A value is invalid.
    """
    for key, values in options.items():
        for value in values:
            other = build({key: value})
            if _encoding(other) != _encoding(policy):
                raise ConfigError(
                    f"model: a search over {key} (tried: {value!r}) changes what environment"
                    " runners pass to the module, which is fixed before the search. Pass Tune a"
                    " function that calls rlcatalog_rllib.configure with the trial's values."
                )


def _encoding(policy: Policy) -> Any:
    chosen = policy.resolution.choices["filter"].component
    return (
        encoded_space(policy),
        None if chosen is None else chosen.address,
        policy.config["action_bounds"],
    )
