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
            `tune.choice([...])`, also inside a dict such as `custom_model_config`.

    Raises:
        ConfigError: A value depends on other values (`tune.sample_from`), or a grid search is
            empty.
    """
    options = {key: _possible_values(key, value) for key, value in model.items()}
    return {key: values for key, values in options.items() if values}


def _possible_values(name: str, value: Any) -> list[Any]:
    """Return the possible values of a config entry; nothing if it contains no search.

    For a dict with searches inside, the values are dicts. Each differs from the first one in at
    most one entry.
    """
    if isinstance(value, Function):
        raise ConfigError(
            f"model: {name} is a tune.sample_from, whose values are not known in advance. Pass Tune"
            " a function that calls rlcatalog_rllib.configure with the trial's values."
        )
    if isinstance(value, Domain):
        return [value.sample() for _ in range(_DRAWN)]
    if not isinstance(value, Mapping):
        return []
    if set(value) == {"grid_search"}:
        if not value["grid_search"]:
            raise ConfigError(f"model: {name} is an empty tune.grid_search.")
        return list(value["grid_search"])
    inner = {key: _possible_values(f"{name}[{key!r}]", entry) for key, entry in value.items()}
    searched = {key: values for key, values in inner.items() if values}
    if not searched:
        return []
    first = {**value, **{key: values[0] for key, values in searched.items()}}
    others = [{**first, key: other} for key, values in searched.items() for other in values[1:]]
    return [first, *others]


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
    chosen = policy.resolution.choices["filter"].part
    return (
        encoded_space(policy),
        None if chosen is None else chosen.address,
        policy.config["action_bounds"],
    )
