"""`load_part`: one part's weights from another policy, such as its trunk."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from rlcatalog.config import same
from rlcatalog.errors import ConfigError, ModelContractError, NotServedError, shown
from rlcatalog.frameworks import Array
from rlcatalog.internals import ModelParts, PartWeights
from rlcatalog.models import set_weights_of, weights_of
from rlcatalog.plugins import OUTPUT_KEYS, Part
from rlcatalog_policy.loading import load

if TYPE_CHECKING:
    from rlcatalog.choice import Resolution
    from rlcatalog_policy.policy import Policy

#: Config keys about the layers after a part, or about training, which do not change the part.
_KEYS_OF_OTHER_LAYERS = frozenset(
    {"vf_share_layers", "vf_memory", "free_log_std", "no_final_linear", "max_seq_len"}
)
#: Title of a component that is a net for a leaf of the observation.
NET = "net"
#: Endings of config keys that only set the weights' first values, which are replaced.
_ENDINGS_OF_FIRST_VALUES = ("_initializer", "_initializer_config")


def load_part(
    policy: Policy,
    part: str,
    from_: Policy | str | os.PathLike[str],
    *,
    from_part: str | None = None,
) -> None:
    """Set the weights of one part of a policy's model to those of another policy.

    Statistics of the observation filter for what the part reads are set, too.

    Args:
        policy: The policy to change.
        part: The part's name: `"trunk"`, `"memory"`, `"head"`, `"value"`; with
            `vf_share_layers=False`, also `"critic.trunk"`, `"critic.memory"`, `"critic.value"` and
            `"critic"` for all three. The net for one leaf of the observation is called like
            `trunk["obs['camera']"]`.
        from_: The other policy, or the folder of a saved one; it can belong to other spaces and to
            the other framework.
        from_part: Name of the other policy's part, if it differs.

    Raises:
        ConfigError: One of the policies has no such part, or the parts differ in their component,
            in a config key that it reads, or in what the filter changes. The message names the
            difference.
        ModelContractError: The parts have different weights; the message names the first one.
        NotServedError: The filter cannot move the statistics of these values alone.
        SavedPolicyError: The folder contains no saved policy, or a damaged one.

    Example:
        >>> config = {"fcnet_hiddens": [64, 64]}
        >>> source = rlcatalog.build(spaces.Box(-1, 1, (4,)), spaces.Discrete(2), config)
        >>> policy = rlcatalog.build(spaces.Box(-1, 1, (4,)), spaces.Box(-1, 1, (3,)), config)
        >>> rlcatalog.load_part(policy, "trunk", source)
    """
    if isinstance(from_, str | os.PathLike):
        source = load(from_, framework=policy.framework, catalog=policy.catalog)
    else:
        source = from_
    here = _Side(policy, part)
    there = _Side(source, from_part or part)
    _check_same_components(here, there)
    values = _values_by_name(here, there)
    filter_columns = _columns_to_move(here, there)
    with policy._model_lock:
        if filter_columns is not None:
            assert policy.filter is not None
            policy.filter.take_statistics(source.filter, *filter_columns)
        set_weights_of(policy.model, {**weights_of(policy.model), **values})


class _Side:
    """A part of one of the two policies.

    Args:
        policy: The policy.
        name: The part's name.
    """

    def __init__(self, policy: Policy, name: str) -> None:
        self.policy = policy
        self.parts = ModelParts(policy.model)
        self.weights: PartWeights = self.parts.select(name, "load_part")
        resolution = policy.resolution
        is_of_critic = name.partition(".")[0].partition("[")[0] == "critic"
        if is_of_critic and resolution.critic is not None:
            resolution = resolution.critic
        #: The choices for the side of the model that the part belongs to.
        self.resolution: Resolution = resolution
        #: The name as if the part were the policy's.
        self.kind = name.removeprefix("critic.")
        #: Path of the leaf that the part reads alone, or None.
        self.path: str | None = None
        if name in self.parts.nets:
            self.kind, _, path = self.kind.partition('["')
            self.path = path.removesuffix('"]')

    def components(self) -> Iterator[_Component]:
        """Yield the components that the part is made by."""
        resolution = self.resolution
        if self.path is not None:
            for nets in resolution.pinned_keys().values():
                if self.path in nets:
                    registry = self.policy.catalog.registry
                    yield _Component(NET, registry.get("model", nets[self.path]))
            return
        slots = {"critic": ("trunk", "memory"), "model": ("trunk",)}.get(self.kind, (self.kind,))
        for slot in slots:
            choice = resolution.choices.get(slot)
            if choice is not None:
                yield _Component(slot, choice.part)
        if "trunk" in slots:
            for net in resolution.inner_nets:
                yield _Component(NET, net)
        if self.kind in ("head", "model"):
            for node in resolution.dists.walk():
                yield _Component(f"distribution of {node.place}", node.part)

    def columns(self) -> Array | None:
        """Return the places in the encoded observation that the part reads; None if it reads
        features.
        """
        preprocessor = self.policy.preprocessor
        if self.path is not None:
            # The items of a list are in the columns of the list.
            path, _, _ = self.path.partition("[:]")
            places = [np.arange(0)]
            for leaf in preprocessor.leaves():
                is_below = leaf.path.startswith((f"{path}[", f"{path}."))
                if is_below or leaf.path == path:
                    places.append(np.arange(leaf.start, leaf.stop))
            return np.concatenate(places)
        if self.kind not in ("trunk", "critic", "model"):
            return None
        columns = np.arange(preprocessor.size)
        # What `obs_groups` leaves to this side, and what the head leaves of that to its trunk.
        for visible in (self.resolution.visible, self.resolution.unclaimed):
            if visible is not None:
                columns = np.concatenate([columns[start:stop] for start, stop in visible.columns])
        return columns

    def filters(self, columns: Array) -> bool:
        """Return whether the policy's filter changes one of these columns."""
        if self.policy.filter is None:
            return False
        is_filtered = np.zeros(self.policy.preprocessor.size, np.bool_)
        for leaf in self.policy.filter.leaves:
            is_filtered[leaf.start : leaf.stop] = True
        return bool(is_filtered[columns].any())


class _Component(NamedTuple):
    """A component that builds a part of a model, or None for an empty slot.

    Attributes:
        title: What the component is.
        part: What a package or the program declares.
    """

    title: str
    part: Part | None

    @property
    def address(self) -> str:
        """The component's address; "none" for an empty slot."""
        return "none" if self.part is None else self.part.address


def _check_same_components(here: _Side, there: _Side) -> None:
    """Raise a ConfigError if the parts differ in their components or in keys that these read."""
    components = list(here.components())
    others = list(there.components())
    for component, other in zip(components, others, strict=False):
        if component.address != other.address:
            raise ConfigError(
                f"load_part: {here.weights.name!r} is of {component.address} here, but of"
                f" {other.address} there ({component.title}). Build both policies with the same"
                " one."
            )
    if len(components) != len(others):
        raise ConfigError(
            f"load_part: {here.weights.name!r} has {len(components)} components here, but"
            f" {len(others)} there."
        )
    for component in components:
        _check_same_keys(here, there, component)


def _check_same_keys(here: _Side, there: _Side, component: _Component) -> None:
    """Raise a ConfigError if the policies' configs differ in a key that a component reads."""
    if component.part is None:
        return
    keys = here.resolution.config_keys(component.part)
    if component.part.in_process:
        keys = [*keys, "custom_model_config", "memory_config"]
    for key in keys:
        is_of_others = key in _KEYS_OF_OTHER_LAYERS
        if component.title == NET:
            # The layers after all nets belong to the model around them. Whether the net's own ids
            # are embedded, the shapes of its weights show.
            is_of_others = is_of_others or key in (*OUTPUT_KEYS, "embeddings")
        is_of_first_values = key == "init" or key.endswith(_ENDINGS_OF_FIRST_VALUES)
        if is_of_others or is_of_first_values:
            continue
        value = here.resolution.config[key]
        other = there.resolution.config[key]
        if key == "input_nets" or same(value, other):
            continue  # the nets themselves are compared
        raise ConfigError(
            f"load_part: {here.weights.name!r} was built with {key}={shown(value)} here, but with"
            f" {key}={shown(other)} there. Build this policy with {key}={shown(other)}."
        )


def _values_by_name(here: _Side, there: _Side) -> dict[str, Any]:
    """Return the other part's weights, by their names in this policy's model.

    Raises:
        ModelContractError: The parts have different weights.
    """
    model = here.policy.model
    weights = weights_of(model)
    other_weights = weights_of(there.policy.model)
    names = here.weights.names
    other_names = there.weights.names
    for name in [*other_names, *names]:
        if name not in names or name not in other_names:
            side = "there" if name in other_names else "here"
            raise ModelContractError(
                f"load_part: {here.weights.name!r} has the weight {name!r} only {side}."
            )
        other = other_weights[other_names[name]]
        mine = weights[names[name]]
        if mine.shape != other.shape or mine.dtype != other.dtype:
            raise ModelContractError(
                f"load_part: {here.weights.name!r}: the weight {name!r} has"
                f" {mine.dtype} {mine.shape} here, but {other.dtype} {other.shape} there."
            )
    # A weight that is used in two places has two names.
    keys = model._rlcatalog_bookkeeping.weight_keys(model)
    values_by_key = {}
    for name, name_in_model in names.items():
        values_by_key[keys[name_in_model]] = other_weights[other_names[name]]
    return {name: values_by_key[key] for name, key in keys.items() if key in values_by_key}


def _columns_to_move(here: _Side, there: _Side) -> tuple[Array, Array] | None:
    """Return the columns of the other policy's observations and of this policy's whose filter
    statistics belong to the part; None if it reads no filtered ones.

    Raises:
        ConfigError: Only one of the policies filters them, or the filters are of different kinds.
        NotServedError: The observations have different sizes.
    """
    columns = here.columns()
    other_columns = there.columns()
    if columns is None or other_columns is None:
        return None
    filters_here = here.filters(columns)
    filters_there = there.filters(other_columns)
    if not filters_here and not filters_there:
        return None
    name = here.policy.config["observation_filter"]
    other_name = there.policy.config["observation_filter"]
    if filters_here != filters_there or name != other_name:
        raise ConfigError(
            f"load_part: {here.weights.name!r} reads observations of observation_filter={name!r}"
            f" here ({_describe(filters_here)}), but of {other_name!r} there"
            f" ({_describe(filters_there)}). Build both policies with the same filter."
        )
    if len(columns) != len(other_columns):
        raise NotServedError(
            f"load_part: {here.weights.name!r} reads {len(columns)} values here, but"
            f" {len(other_columns)} there, so the filter's statistics cannot be moved."
        )
    return other_columns, columns


def _describe(filters: bool) -> str:
    return "which changes them" if filters else "which leaves them alone"
