"""The config key `obs_groups`: which entries of a Dict observation each side of a model sees."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from rlcatalog.errors import ConfigError, nearest, shown
from rlcatalog.observations.visible_observation import KeyPath
from rlcatalog.spaces import SpaceInfo, find_path, write_path

#: The name of each side in `obs_groups` → the side. Newer versions of rsl_rl write "actor".
_SIDES = {"policy": "policy", "actor": "policy", "critic": "critic"}


def hidden_entries(
    groups: Mapping[str, Sequence[str]], obs: SpaceInfo, mask_key_path: KeyPath
) -> dict[str, list[KeyPath]]:
    """Return side → the keys that lead to each entry that the side does not see, for each side with
    a group.

    If a side sees nothing of a Dict, the Dict itself is listed. The action mask is never
    listed: it belongs to the policy, whatever the lists say.

    Args:
        groups: The value of `obs_groups`.
        obs: The observation space, with the action mask if it has one.
        mask_key_path: The keys that lead to the action mask; empty without one.

    Raises:
        ConfigError: A group, or a path in it, is unknown; a group is empty; or the observation is
            not a Dict.
    """
    hidden: dict[str, list[KeyPath]] = {}
    group_names: dict[str, str] = {}  # side → its name in `groups`
    for name, paths in groups.items():
        side = _SIDES.get(name)
        if side is None:
            raise ConfigError(
                f"obs_groups: unknown group {shown(name)}.{nearest(name, _SIDES)} The groups are"
                " 'policy' (or 'actor') and 'critic'."
            )
        if side in group_names:
            raise ConfigError(
                f"obs_groups: {group_names[side]!r} and {name!r} are two names for the policy's"
                " group. Give one of them."
            )
        group_names[side] = name
        visible = [_key_path_of(path, name, obs) for path in _check_list(paths, name, obs)]
        hidden[side] = list(_hidden_below(obs, (), visible, mask_key_path))
    return hidden


def unseen_paths(hidden: Mapping[str, Sequence[KeyPath]]) -> list[str]:
    """Return the paths of the entries that neither the policy nor its critic sees.

    Args:
        hidden: The result of `hidden_entries`.
    """
    unseen = []
    hidden_from_policy = hidden.get("policy", [])
    hidden_from_critic = hidden.get("critic", [])
    for key_path in hidden_from_policy:
        if any(_begins_with(key_path, other) for other in hidden_from_critic):
            unseen.append(write_path(key_path))
    for key_path in hidden_from_critic:
        # Equal ones are listed already.
        if any(_begins_with(key_path, other) and key_path != other for other in hidden_from_policy):
            unseen.append(write_path(key_path))
    return unseen


def _check_list(paths: Sequence[str], group: str, obs: SpaceInfo) -> Sequence[str]:
    """Return the paths of a group; raise an error if it is empty, or if the observation has no
    paths.
    """
    if obs.kind != "dict":
        raise ConfigError(
            f"obs_groups: {obs.path} must be a Dict, whose entries the groups name; found"
            f" {obs.describe()}. Remove obs_groups, or return a Dict from the environment."
        )
    if not paths:
        raise ConfigError(
            f"obs_groups[{group!r}] is empty, so this side would see nothing. Name the entries that"
            f" it sees, or leave the group out, so that it sees all: {_all_paths(obs)}."
        )
    return paths


def _key_path_of(path: str, group: str, obs: SpaceInfo) -> KeyPath:
    """Return the keys that lead to the entry that a group names.

    Raises:
        ConfigError: The observation has no such entry, or the path leads through a Tuple.
    """
    key = f"obs_groups[{group!r}]"
    key_path_by_path = {write_path(keys): keys for keys in _all_key_paths(obs, ())}
    # The whole observation is not among them: "obs" may also be the name of an entry.
    other_paths = [node.path for node in obs.walk() if node is not obs]
    found_path = find_path(path, [*key_path_by_path, *other_paths], key)
    if found_path not in key_path_by_path:
        raise ConfigError(
            f"{key}: {found_path} is inside another entry than a Dict, which a side sees as a"
            f" whole. Name that entry: {_all_paths(obs)}."
        )
    return key_path_by_path[found_path]


def _all_key_paths(info: SpaceInfo, key_path: KeyPath) -> Iterator[KeyPath]:
    """Yield the keys that lead to each entry of a Dict, and to each entry inside it."""
    if info.kind != "dict":
        return
    for key, child in zip(info.keys, info.children, strict=True):
        yield (*key_path, key)
        yield from _all_key_paths(child, (*key_path, key))


def _all_paths(obs: SpaceInfo) -> str:
    return ", ".join(write_path(key_path) for key_path in _all_key_paths(obs, ()))


def _hidden_below(
    info: SpaceInfo, key_path: KeyPath, visible: Sequence[KeyPath], mask_key_path: KeyPath
) -> Iterator[KeyPath]:
    """Yield the keys that lead to each entry below a Dict that is not visible.

    Args:
        info: The Dict.
        key_path: The keys that lead to it.
        visible: The keys that lead to each visible entry.
        mask_key_path: The keys that lead to the action mask, which is never hidden here.
    """
    for key, child in zip(info.keys, info.children, strict=True):
        child_key_path = (*key_path, key)
        if any(_begins_with(child_key_path, entry) for entry in visible):
            continue  # it, or a Dict around it, is listed
        if child_key_path == mask_key_path:
            continue
        contains_listed = any(
            _begins_with(entry, child_key_path) for entry in (*visible, mask_key_path)
        )
        if contains_listed and child.kind == "dict":
            yield from _hidden_below(child, child_key_path, visible, mask_key_path)
        else:
            yield child_key_path


def _begins_with(key_path: KeyPath, first_keys: KeyPath) -> bool:
    return key_path[: len(first_keys)] == first_keys
