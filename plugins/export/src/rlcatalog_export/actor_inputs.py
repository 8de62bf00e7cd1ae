"""Inputs of an `Actor`: observations that are checked as in the policy and split into the file's
inputs.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from rlcatalog import Catalog, SpaceInfo
from rlcatalog.actions import ActionMasks
from rlcatalog.choice import PartAddresses
from rlcatalog.errors import ConfigError, ObservationError
from rlcatalog.internals import ObservationInput, observation_inputs
from rlcatalog.observations import Array, Preprocessor, stack
from rlcatalog_export.interface import Interface, Port
from rlcatalog_policy import config_from_plain, with_batch_hint


class Observations:
    """Converter from batches of observations to a file's inputs.

    Args:
        catalog: Catalog of codecs.
        interface: The file's interface.
        info: The observation space.
        masks: Reader for the action masks in observations.

    Attributes:
        preprocessor: The policy's codec, which checks observations.

    Raises:
        MissingPluginError: A codec's package cannot be used.
    """

    def __init__(
        self, catalog: Catalog, interface: Interface, info: SpaceInfo, masks: ActionMasks
    ) -> None:
        self._ports = [port for port in interface.inputs if port.role == "observation"]
        self._are_filtered = interface.observation == "filtered"
        #: The masks to remove from observations, if the model does not see them.
        self._hidden_masks: ActionMasks | None = None
        encoded_info = info
        if interface.mask_apart:
            self._hidden_masks = masks
            encoded_info = info.without(*masks.key_path)
        pins = PartAddresses(preprocessors=interface.preprocessors)
        pins.check(catalog.registry)
        # The warning was already given when the policy was built.
        with warnings.catch_warnings(action="ignore", category=DeprecationWarning):
            options = catalog.parse_config(config_from_plain(interface.encoding))
        self.preprocessor = catalog.preprocessor_for(encoded_info, options, pins=pins)
        self._info = self.preprocessor.info
        #: Whether the policy may see only some entries of the environment's observations, so that
        #: others are ignored.
        self._ignores_other_entries = bool(interface.config.get("obs_groups"))
        # The file may take encoded values where the codec has a tensor form now, or the reverse:
        # a port's own `encoded` decides.
        self._leaves = {leaf.steps: leaf for leaf in observation_inputs(self.preprocessor)}
        self._readers: list[_PortReader] = []
        for port in self._ports:
            leaf = self._leaf_of(port)
            self._readers.append(_PortReader(port, leaf.codec, _limits(port, leaf.codec)))
        self._float_ports = [port.name for port in self._ports if np.dtype(port.dtype).kind == "f"]
        #: Numbers of rows for which a batch was fully checked.
        self._checked_rows: set[int] = set()

    def feeds(self, obs: Any) -> tuple[dict[str, Array], int]:
        """Return the observation inputs by name, and the number of rows.

        Args:
            obs: A batch of observations, or a list of single observations.

        Raises:
            ObservationError: An observation is not in the space.
        """
        if self._are_filtered:
            return self._filtered_feeds(obs)
        obs = self.without_hidden_masks(obs)
        feeds = None
        if not isinstance(obs, list):
            feeds = self._feeds_at_a_glance(obs)
        if feeds is None:
            feeds = self._fully_checked_feeds(obs)
        return feeds

    def without_hidden_masks(self, obs: Any) -> Any:
        """Return the entries of the observations that the codec reads: all, or all except the
        action masks.
        """
        if self._hidden_masks is None:
            return obs
        return self._hidden_masks.without(obs)

    def forget(self) -> None:
        """Require a full check of the next observations."""
        self.preprocessor.set_check(self.preprocessor.check_mode)
        self._checked_rows.clear()

    def _feeds_at_a_glance(self, obs: Any) -> tuple[dict[str, Array], int] | None:
        """Return the inputs if they are arrays with the right dtypes and shapes; None if they need
        a full check.
        """
        feeds = {}
        rows = None
        try:
            for port, _, limits in self._readers:  # the second field is the codec
                value = obs
                for step in port.steps:
                    value = value[step]
                if type(value) is not np.ndarray or value.dtype != port.dtype or port.encoded:
                    return None
                if rows is None:
                    rows = len(value)
                    if rows not in self._checked_rows:
                        return None
                if value.shape != (rows, *port.shape):
                    return None
                if limits is not None:
                    is_inside = (value >= limits.lowest) & (value <= limits.highest)
                    if not is_inside.all():
                        return None
                feeds[port.name] = value
        except (KeyError, IndexError, TypeError):  # the batch has another structure
            return None
        return feeds, rows or 0

    def _fully_checked_feeds(self, obs: Any) -> tuple[dict[str, Array], int]:
        """Return the inputs for a batch that the codec has encoded and thereby checked."""
        if self._ignores_other_entries:
            obs = self._without_other_entries(obs)
        try:
            rows = len(self.preprocessor.encode_batch(obs))
        except ObservationError as error:
            raise with_batch_hint(error, self.preprocessor, obs) from error.__cause__
        batch = stack(self._info, obs) if isinstance(obs, list) else obs
        feeds = {}
        for reader in self._readers:
            port = reader.port
            value = batch
            for step in port.steps:
                value = value[step]
            array = reader.codec.encode_batch(value) if port.encoded else np.asarray(value)
            feeds[port.name] = np.ascontiguousarray(array, port.dtype).reshape(rows, *port.shape)
        if self.preprocessor.check_mode != "always":
            # Later batches of this size are only checked at a glance.
            self._checked_rows.add(rows)
        return feeds, rows

    def _without_other_entries(self, obs: Any) -> Any:
        """Return the entries of the observations that the policy sees."""
        if isinstance(obs, list):
            return [_select_entries(self._info, one) for one in obs]
        return _select_entries(self._info, obs)

    def _filtered_feeds(self, obs: Any) -> tuple[dict[str, Array], int]:
        """Return the input of a file that takes filtered observations."""
        [port] = self._ports
        array = np.asarray(obs, port.dtype)
        if not array.ndim or array.shape[1:] != port.shape:
            raise ObservationError(
                f"expected observations of shape [B, {', '.join(map(str, port.shape))}], as"
                " Policy.preprocess returns them (the policy's filter is not in the file), found"
                f" shape {array.shape}."
            )
        return {port.name: array}, len(array)

    def finite(self, feeds: Mapping[str, Array]) -> bool:
        """Return whether all observations are finite, or too large for a quick check."""
        return all(math.isfinite(np.vdot(feeds[name], feeds[name])) for name in self._float_ports)

    def encoded(self, feeds: Mapping[str, Array]) -> tuple[Array, Preprocessor]:
        """Return the inputs as encoded observations `[B, *shape]`, and the codec, for error
        messages.
        """
        if self._are_filtered:
            [port] = self._ports
            return feeds[port.name], self.preprocessor
        columns = []
        for reader in self._readers:
            value = feeds[reader.port.name]
            if not reader.port.encoded:
                value = reader.codec.encode_batch(value).reshape(len(value), -1)
            columns.append(value)
        rows = np.concatenate(columns, axis=1)
        return rows.reshape(-1, *self.preprocessor.shape), self.preprocessor

    def _leaf_of(self, port: Port) -> ObservationInput:
        """Return the part of the observation that an input takes.

        Raises:
            ConfigError: The observations have no such part.
        """
        if port.steps in self._leaves:
            return self._leaves[port.steps]
        codec: Any = self.preprocessor
        for step in port.steps:
            children = dict(codec.side_by_side())
            if step not in children:
                raise ConfigError(
                    f"the input {port.name!r} is read from {port.path}, but the observations have"
                    " no such entry."
                )
            codec = children[step]
        return ObservationInput(codec, port.steps, lowered=None)


def _select_entries(info: SpaceInfo, obs: Any) -> Any:
    """Return the entries of a Dict observation that a space has, also in the Dicts inside it."""
    if info.kind != "dict" or not isinstance(obs, Mapping):
        return obs
    selected = {}
    for key, child in zip(info.keys, info.children, strict=True):
        if key in obs:  # the codec names the missing entries
            selected[key] = _select_entries(child, obs[key])
    return selected


class _Limits(NamedTuple):
    """The smallest and largest value of each choice."""

    lowest: Array
    highest: Array


class _PortReader(NamedTuple):
    """An input, the codec of its part of the observation, and the limits of its choices, which are
    checked in each step; None for numbers.
    """

    port: Port
    codec: Preprocessor
    limits: _Limits | None


def _limits(port: Port, codec: Preprocessor) -> _Limits | None:
    """Return the lowest and highest values of an input; None unless it takes choices."""
    info = codec.info
    if port.encoded or info.kind not in ("discrete", "multi_discrete"):
        return None
    # A MultiDiscrete has `nvec`, a Discrete `n`.
    counts = np.asarray(info.n if info.nvec is None else info.nvec, np.int64)
    start = np.asarray(info.start, np.int64)
    return _Limits(lowest=start, highest=start + counts - 1)
