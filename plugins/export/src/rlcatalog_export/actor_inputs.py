"""Inputs of an `Actor`: observations that are checked as in the policy and split into the file's
inputs.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np

from rlcatalog import Catalog, SpaceInfo
from rlcatalog.actions import ActionMasks
from rlcatalog.choice import Pins
from rlcatalog.errors import ConfigError, ObservationError
from rlcatalog.internals import stack
from rlcatalog.observations import Array, Preprocessor
from rlcatalog_export.codecs import ObservationInput, observation_inputs
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
        self._filtered = interface.observation == "filtered"
        #: Function that removes masks from observations, if the model does not see them.
        self._apart = masks if interface.mask_apart else None
        seen = info if self._apart is None else info.without(*masks.steps)
        pins = Pins(preprocessors=interface.preprocessors)
        pins.check(catalog.registry)
        # The warning was already given when the policy was built.
        with warnings.catch_warnings(action="ignore", category=DeprecationWarning):
            options = catalog.parse_config(config_from_plain(interface.encoding))
        self.preprocessor = catalog.preprocessor_for(seen, options, pins=pins)
        self._info = self.preprocessor.info
        # A codec may have gained or lost its tensor form in another version.
        self._parts = {part.steps: part for part in observation_inputs(self.preprocessor)}
        self._cut = [
            (port, self._part(port), _limits(port, self._part(port))) for port in self._ports
        ]
        self._floats = [port.name for port in self._ports if np.dtype(port.dtype).kind == "f"]
        #: Numbers of rows for which a batch was fully checked.
        self._known: set[int] = set()

    def feeds(self, obs: Any) -> tuple[dict[str, Array], int]:
        """Return the observation inputs by name, and the number of rows.

        Args:
            obs: A batch of observations, or a list of single observations.

        Raises:
            ObservationError: An observation is not in the space.
        """
        if self._filtered:
            return self._given(obs)
        obs = self.seen(obs)
        return (None if isinstance(obs, list) else self._at_a_glance(obs)) or self._closely(obs)

    def seen(self, obs: Any) -> Any:
        """Return the entries of the observations that the codec reads: all, or all except the
        action masks.
        """
        return obs if self._apart is None else self._apart.without(obs)

    def forget(self) -> None:
        """Require a full check of the next observations."""
        self.preprocessor.set_check(self.preprocessor.check_mode)
        self._known.clear()

    def _at_a_glance(self, obs: Any) -> tuple[dict[str, Array], int] | None:
        """Return the inputs if they are arrays with the right dtypes and shapes; None if they need
        a full check.
        """
        feeds, rows = {}, None
        try:
            for port, _, limits in self._cut:
                value = obs
                for step in port.steps:
                    value = value[step]
                if type(value) is not np.ndarray or value.dtype != port.dtype or port.encoded:
                    return None
                if rows is None:
                    rows = len(value)
                    if rows not in self._known:
                        return None
                if value.shape != (rows, *port.shape):
                    return None
                if limits is not None and not ((value >= limits[0]) & (value <= limits[1])).all():
                    return None
                feeds[port.name] = value
        except (KeyError, IndexError, TypeError):
            return None
        return feeds, rows or 0

    def _closely(self, obs: Any) -> tuple[dict[str, Array], int]:
        """Return the inputs for a batch that the codec has encoded and thereby checked."""
        try:
            rows = len(self.preprocessor.encode_batch(obs))
        except ObservationError as error:
            raise with_batch_hint(error, self.preprocessor, obs) from error.__cause__
        batch = stack(self._info, obs) if isinstance(obs, list) else obs
        feeds = {}
        for port, part, _ in self._cut:
            value = batch
            for step in port.steps:
                value = value[step]
            array = part.codec.encode_batch(value) if port.encoded else np.asarray(value)
            feeds[port.name] = np.ascontiguousarray(array, port.dtype).reshape(rows, *port.shape)
        if self.preprocessor.check_mode != "always":
            self._known.add(rows)
        return feeds, rows

    def _given(self, obs: Any) -> tuple[dict[str, Array], int]:
        (port,) = self._ports
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
        return all(math.isfinite(np.vdot(feeds[name], feeds[name])) for name in self._floats)

    def encoded(self, feeds: Mapping[str, Array]) -> tuple[Array, Preprocessor]:
        """Return the inputs as encoded observations, and the codec, for error messages."""
        if self._filtered:
            return feeds[self._ports[0].name], self.preprocessor
        columns = []
        for port, part, _ in self._cut:
            value = feeds[port.name]
            columns.append(
                value if port.encoded else part.codec.encode_batch(value).reshape(len(value), -1)
            )
        return np.concatenate(columns, axis=1).reshape(
            -1, *self.preprocessor.shape
        ), self.preprocessor

    def _part(self, port: Port) -> ObservationInput:
        if port.steps in self._parts:
            return self._parts[port.steps]
        codec: Any = self.preprocessor
        for step in port.steps:
            parts = codec.side_by_side()
            if (codec := next((child for name, child in parts if name == step), None)) is None:
                raise ConfigError(
                    f"the input {port.name!r} is read from {port.path}, but the observations have"
                    " no such entry."
                )
        return ObservationInput(codec, port.steps, None)


def _limits(port: Port, part: ObservationInput) -> tuple[Array, Array] | None:
    """Return the smallest and largest value of each choice, for a check in each step; None for
    numbers.
    """
    info = part.codec.info
    if port.encoded or info.kind not in ("discrete", "multi_discrete"):
        return None
    counts = np.asarray(info.n if info.nvec is None else info.nvec, np.int64)
    start = np.asarray(info.start, np.int64)
    return start, start + counts - 1
