"""Framework-independent plan for the parts of an observation and their networks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from gymnasium.spaces import Box

from rlcatalog import SpaceInfo, default_catalog, errors
from rlcatalog.config import read_config
from rlcatalog.errors import nearest
from rlcatalog.frameworks import tensor_ops
from rlcatalog.observations import Array, Preprocessor
from rlcatalog.plugins import Part, Request
from rlcatalog.spaces import RepeatedValues
from rlcatalog_complex_input.config import ComplexInputConfig
from rlcatalog_complex_input.parts import Items, ObservationPart, OneHots

#: Keys that the surrounding model reads itself and hides from the nets.
_OUTER: dict[str, Any] = {
    "custom_model": None,
    "custom_model_config": {},
    "free_log_std": False,
    "input_nets": {},
    "no_final_linear": False,
    "post_fcnet_hiddens": [],
    "vf_share_layers": True,
}


@dataclass(frozen=True, eq=False)
class Net:
    """Plan for one part's net.

    Attributes:
        part: The part.
        trunk: The catalog's choice of a model.
        request: The request for the net.
        space: The observation space to build the net with: the part's space, or a float32 Box if a
            filter has changed the values.
    """

    part: ObservationPart
    trunk: Part
    request: Request
    space: Any


@dataclass(frozen=True, eq=False)
class Plan:
    """Plan for a complex-input network.

    Attributes:
        parts: The parts of the observation; lists contain the parts of their items.
        nets: The net for each part, in the order of the parts' indices.
    """

    parts: tuple[ObservationPart | Items, ...]
    nets: tuple[Net, ...]


def plan(preprocessor: Preprocessor, request: Request, obs_space: Any = None) -> Plan:
    """Find the parts of an observation and choose a network for each of them.

    Args:
        preprocessor: The observation's preprocessor.
        request: The request for the whole model, with a complete config and a catalog.
        obs_space: The model's space of encoded observations. Default: the preprocessor's.

    Raises:
        ConfigError: `input_nets` has an unknown path, or names a model that is not a trunk.
        UnknownNameError: `input_nets` names a model that does not exist.
        UnsupportedSpaceError: The observation has no values.
        NoMatchError: No installed model fits a part.
        AmbiguousChoiceError: Two models fit a part equally well.
    """
    finder = _Finder()
    ops = tensor_ops("numpy")
    restored = preprocessor.restore(np.zeros((1, preprocessor.size), np.float32), ops)
    bounds = preprocessor.bounds()
    if preprocessor.structured and obs_space is not None:
        bounds = np.ravel(obs_space.low), np.ravel(obs_space.high)
    parts = finder.visit(preprocessor, restored, (), 0, 0, np.stack(bounds))
    if not finder.leaves:
        raise errors.UnsupportedSpaceError(
            f"{preprocessor.info.path}: {preprocessor.info.describe()} has no values."
        )
    spaces = [codec.observation_space for _, codec, _ in finder.leaves]
    if not preprocessor.structured and obs_space is not None:
        spaces = [obs_space]
    names = read_config(request.config, ComplexInputConfig).input_nets
    paths = [part.path for part, _, _ in finder.leaves]
    if unknown := [path for path in names if path not in paths]:
        raise errors.ConfigError(
            f"input_nets: {unknown[0]!r} is not a part of the"
            f" observation.{nearest(unknown[0], paths)} Parts: {', '.join(paths)}."
        )
    inner = request.replace(config={**request.config, **_OUTER}, num_outputs=None, trunk_width=None)
    nets = []
    for (part, codec, limits), space in zip(finder.leaves, spaces, strict=True):
        # Integers, which this model encodes as one-hots.
        if part.hot is not None and not isinstance(space, Box):
            space = Box(0.0, 1.0, part.shape, np.float32)
        elif not np.array_equal(limits, codec.bounds()):
            space = codec.processed_space(*limits)
        # A Dict or Tuple whose preprocessor returns one array is treated as that array.
        info = codec.info if not codec.info.is_composite else SpaceInfo.read(space, codec.info.path)
        asked = inner.replace(obs=info, encoded_shape=part.shape, preprocessor=codec)
        nets.append(Net(part, _find(asked, names.get(part.path), list(names)), asked, space))
    return Plan(tuple(parts), tuple(nets))


class _Finder:
    """Visitor for the parts of an observation.

    Attributes:
        leaves: Each part, with its preprocessor and the lowest and highest encoded values,
            `[2, size]`.
    """

    def __init__(self) -> None:
        self.leaves: list[tuple[ObservationPart, Preprocessor, Array]] = []
        self._lists = 0

    def visit(
        self,
        codec: Preprocessor,
        values: Any,
        steps: tuple[Any, ...],
        depth: int,
        start: int,
        bounds: Array,
    ) -> list[ObservationPart | Items]:
        """Return the parts below a node of the observation.

        Args:
            codec: Its preprocessor.
            values: The restored values of one encoded observation, `[1, ...]`; inside lists,
                `[1, places, ...]`.
            steps: Keys and positions that lead to the node.
            depth: Number of nested lists around the part.
            start: The node's first column in the encoded observation or item.
            bounds: The lowest and highest values of the node's columns, `[2, size]`.
        """
        if not codec.size:
            return []
        if isinstance(values, RepeatedValues) and len(codec.children) == 1:
            return self._items(codec, values, steps, depth, start, bounds)
        if isinstance(values, Mapping | tuple) and len(codec.children) == len(values):
            tree: Any = values
            starts = {leaf.path: leaf.start for leaf in codec.leaves()}
            parts = []
            for key, child in zip(
                codec.info.keys or range(len(values)), codec.children, strict=True
            ):
                if child.size:
                    at = starts[child.leaves()[0].path]
                    own = bounds[:, at : at + child.size]
                    parts += self.visit(child, tree[key], (*steps, key), depth, start + at, own)
            return parts
        return [self._part(codec, values, steps, depth, start, bounds)]

    def _items(
        self,
        codec: Preprocessor,
        values: Any,
        steps: tuple[Any, ...],
        depth: int,
        start: int,
        bounds: Array,
    ) -> list[ObservationPart | Items]:
        if not values.max_len:
            return []
        (child,) = codec.children
        block = next(leaf for leaf in codec.leaves() if leaf.path == child.info.path)
        places = slice(block.start, block.stop)
        unfiltered = np.stack(codec.bounds())
        if not np.array_equal(np.delete(bounds, places, 1), np.delete(unfiltered, places, 1)):
            raise errors.ConfigError(
                f"{codec.info.path}: a filter changes the lists' lengths, which hides where"
                " padding starts. Exclude them from the filter"
                f" (filter_exclude=['{codec.info.path}.lengths'])."
            )
        low, high = bounds[:, places].reshape(2, values.max_len, child.size)
        own = np.stack([low.min(0), high.max(0)])
        if np.array_equal(bounds, unfiltered):
            own = np.stack(child.bounds())  # without the padding, which no net sees
        index, self._lists = self._lists, self._lists + 1
        parts = tuple(self.visit(child, values.values, (), depth + 1, 0, own))
        from_columns = any(part.columns is not None for part in parts)
        columns = slice(start + block.start, start + block.stop) if from_columns else None
        return [Items(index, codec.info.path, steps, values.max_len, parts, columns, child.size)]

    def _part(
        self,
        codec: Preprocessor,
        values: Any,
        steps: tuple[Any, ...],
        depth: int,
        start: int,
        bounds: Array,
    ) -> ObservationPart:
        info, index = codec.info, len(self.leaves)
        if codec.structured:
            columns = slice(start, start + codec.size)
            part = ObservationPart(
                index, info.path, steps, depth, (codec.size,), columns=columns, codec=codec
            )
        else:
            shape, hot = values.shape[1 + depth :], _one_hots(info)
            if hot is not None and values.dtype.kind not in "iu" and shape != hot.values.shape:
                hot = None
            shape = shape if hot is None else hot.values.shape
            part = ObservationPart(index, info.path, steps, depth, shape, hot, info.shape or ())
        self.leaves.append((part, codec, bounds))
        return part


def _one_hots(info: SpaceInfo) -> OneHots | None:
    """Return the one-hot encoder for a Discrete's or MultiDiscrete's integers; None for other
    spaces.
    """
    if info.kind not in ("discrete", "multi_discrete"):
        return None
    counts = np.ravel([info.n] if info.nvec is None else info.nvec).astype(np.int64)
    starts = np.broadcast_to(np.ravel(info.start), counts.shape)
    values = [start + np.arange(count) for start, count in zip(starts, counts, strict=True)]
    return OneHots(
        np.repeat(np.arange(len(counts)), counts), np.concatenate(values).astype(np.int64)
    )


def _find(request: Request, name: str | None, named: list[str]) -> Part:
    """Return the net that the catalog chooses for a part; errors name the part as `input_nets`
    does.
    """
    path = request.obs.path
    try:
        part = (request.catalog or default_catalog()).trunk(request, name)
    except (errors.UnknownNameError, errors.MissingPluginError) as error:
        error.args = (f"input_nets: for {path!r}: {error}",)
        raise
    except errors.AmbiguousChoiceError as error:
        error.args = (
            f"{path}: {error} To choose a net for this part only, set input_nets={{{path!r}:"
            f" name}}.",
        )
        raise
    slot = part.declaration.slot  # type: ignore[attr-defined]
    if slot != "trunk":
        raise errors.ConfigError(
            f"input_nets: for {path!r}: {part.name!r} is a {slot}, not"
            " a trunk. Name a model that takes observations as input."
        )
    return part
