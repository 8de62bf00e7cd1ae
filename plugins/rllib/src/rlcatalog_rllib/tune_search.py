"""Ray Tune search over model config keys, with `tune.grid_search` or a distribution."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from ray.tune.search.sample import Domain, Function

from rlcatalog import Policy
from rlcatalog.errors import ConfigError
from rlcatalog_rllib.spaces import Space, encoded_space

#: Number of values from a distribution that are tried beforehand.
_SAMPLE_COUNT = 4


def search_options(model: Mapping[str, Any]) -> dict[str, list[Any]]:
    """Return the keys of a model config that Ray Tune searches over, with possible values.

    Args:
        model: The model config; values may be `tune.grid_search([...])` or a distribution such as
            `tune.choice([...])`, also inside a dict such as `custom_model_config`.

    Raises:
        ConfigError: A value depends on other values (`tune.sample_from`), or a grid search is
            empty.
    """
    options = {}
    for key, value in model.items():
        values = _possible_values(key, value)
        if values:
            options[key] = values
    return options


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
        return [value.sample() for _ in range(_SAMPLE_COUNT)]
    if not isinstance(value, Mapping):
        return []
    if set(value) == {"grid_search"}:  # the result of tune.grid_search(...)
        if not value["grid_search"]:
            raise ConfigError(f"model: {name} is an empty tune.grid_search.")
        return list(value["grid_search"])
    values_by_key = {}
    for key, entry in value.items():
        entry_values = _possible_values(f"{name}[{key!r}]", entry)
        if entry_values:
            values_by_key[key] = entry_values
    if not values_by_key:
        return []
    first = dict(value)
    for key, entry_values in values_by_key.items():
        first[key] = entry_values[0]
    dicts = [first]
    for key, entry_values in values_by_key.items():
        dicts += [{**first, key: other_value} for other_value in entry_values[1:]]
    return dicts


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
            other_policy = build({key: value})
            if _encoding(other_policy) != _encoding(policy):
                raise ConfigError(
                    f"model: a search over {key} (tried: {value!r}) changes what environment"
                    " runners pass to the module, which is fixed before the search. Pass Tune a"
                    " function that calls rlcatalog_rllib.configure with the trial's values."
                )


class _Encoding(NamedTuple):
    """What decides how environment runners encode observations and adapt actions."""

    space: Space
    filter_address: str | None
    action_bounds: Any


def _encoding(policy: Policy) -> _Encoding:
    filter_part = policy.resolution.choices["filter"].part
    return _Encoding(
        space=encoded_space(policy),
        filter_address=None if filter_part is None else filter_part.address,
        action_bounds=policy.config["action_bounds"],
    )
