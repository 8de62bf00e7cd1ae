"""Ray Tune search over keys of the model config, by `tune.grid_search` or a distribution."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ray.tune.search.sample import Domain, Function

from rlcatalog import Policy
from rlcatalog.errors import ConfigError
from rlcatalog_rllib.spaces import encoded_space

#: How many values of a distribution are tried beforehand.
_DRAWN = 4


def search_options(model: Mapping[str, Any]) -> dict[str, list[Any]]:
    """Return the keys of a model config that Ray Tune searches over, with values they may take.

    Args:
        model: The model config; values may be `tune.grid_search([...])` or a distribution such as `tune.choice([...])`.

    Raises:
        ConfigError: A value depends on others (`tune.sample_from`), or there is nothing to choose from.
    """
    found = {}
    for key, value in model.items():
        if isinstance(value, Function):
            raise ConfigError(
                f"model: {key} is a tune.sample_from, whose values are unknown beforehand. Give Tune a function that"
                " calls rlcatalog_rllib.configure with the values of its trial."
            )
        if isinstance(value, Domain):
            found[key] = [value.sample() for _ in range(_DRAWN)]
        elif isinstance(value, Mapping) and set(value) == {"grid_search"}:
            found[key] = list(value["grid_search"])
            if not found[key]:
                raise ConfigError(f"model: {key} is a tune.grid_search over nothing.")
    return found


def check_encoding(options: Mapping[str, list[Any]], policy: Policy, build: Callable[[dict[str, Any]], Policy]) -> None:
    """Raise if a search would change how environment runners encode observations or adapt actions.

    Args:
        options: What `search_options` returned.
        policy: The policy with the first value of each key.
        build: Builds it with other values of some keys.

    Raises:
        ConfigError: It would.
        CatalogError: A value is invalid.
    """
    for key, values in options.items():
        for value in values:
            other = build({key: value})
            if _encoding(other) != _encoding(policy):
                raise ConfigError(
                    f"model: a search over {key} (tried: {value!r}) changes what environment runners pass to the"
                    " module, which is fixed before the search. Give Tune a function that calls"
                    " rlcatalog_rllib.configure with the values of its trial."
                )


def _encoding(policy: Policy) -> Any:
    chosen = policy.resolution.choices["filter"].component
    return encoded_space(policy), None if chosen is None else chosen.address, policy.config["action_bounds"]
