"""Framework-independent plan for the parts of an observation and their networks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from gymnasium.spaces import Box

from rlcatalog import SpaceInfo, errors
from rlcatalog.config import read_config
from rlcatalog.frameworks import tensor_ops
from rlcatalog.observations import Array, Preprocessor
from rlcatalog.plugins import Part, Request
from rlcatalog.spaces import Embeddings, RepeatedValues, embedding_size, find_path
from rlcatalog_complex_input.config import ComplexInputConfig, NetSource
from rlcatalog_complex_input.parts import Items, ObservationPart, OneHots

if TYPE_CHECKING:
    from gymnasium import Space

#: Keys that the surrounding model reads itself and hides from the nets.
_HIDDEN_FROM_NETS: dict[str, Any] = {
    "custom_model": None,
    "custom_model_config": {},
    "embeddings": None,
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
        code: The class or function in the config itself; None for a net with a name.
    """

    part: ObservationPart
    trunk: Part
    request: Request
    space: Space[Any]
    code: Any = None

    @property
    def pin(self) -> NetSource:
        """What repeats this choice in a config: the address of the model, or its code."""
        return self.trunk.address if self.code is None else self.code


@dataclass(frozen=True, eq=False)
class Plan:
    """Plan for a complex-input network.

    Attributes:
        parts: The parts of the observation; lists contain the parts of their items.
        nets: The net for each part, in the order of the parts' indices.
    """

    parts: tuple[ObservationPart | Items, ...]
    nets: tuple[Net, ...]


class Leaf(NamedTuple):
    """Part of the observation, with what its net's plan needs.

    Attributes:
        part: The part.
        codec: Its preprocessor.
        bounds: The lowest and highest encoded values, `[2, size]`.
    """

    part: ObservationPart
    codec: Preprocessor
    bounds: Array


class Node(NamedTuple):
    """Place in an observation: a part, or what contains parts.

    Attributes:
        codec: Its preprocessor.
        values: The restored values of one encoded observation, `[1, ...]`; inside lists,
            `[1, places, ...]`.
        steps: Keys and positions that lead to the node, as in `ObservationPart`.
        depth: Number of nested lists around the node.
        start: Its first column in the encoded observation or item.
        bounds: The lowest and highest values of its columns, `[2, size]`.
    """

    codec: Preprocessor
    values: Any
    steps: tuple[Any, ...]
    depth: int
    start: int
    bounds: Array


def plan_nets(
    preprocessor: Preprocessor, request: Request, obs_space: Space[Any] | None = None
) -> Plan:
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
    ops = tensor_ops("numpy")
    # Only the structure and the shapes of this observation matter.
    restored = preprocessor.restore(np.zeros((1, preprocessor.size), np.float32), ops)
    bounds = np.stack(preprocessor.bounds())
    if preprocessor.structured and obs_space is not None:
        # The bounds of the model's space differ if a filter changes the values.
        bounds = np.stack([np.ravel(obs_space.low), np.ravel(obs_space.high)])  # type: ignore[attr-defined]
    embeddings = request.config.get("embeddings")
    finder = _Finder(embeddings)
    parts = finder.visit(Node(preprocessor, restored, steps=(), depth=0, start=0, bounds=bounds))
    if not finder.leaves:
        raise errors.UnsupportedSpaceError(
            f"{preprocessor.info.path}: {preprocessor.info.describe()} has no values."
        )
    paths = [leaf.part.path for leaf in finder.leaves]
    sources = _sources_by_path(read_config(request.config, ComplexInputConfig).input_nets, paths)
    request_for_net = request.replace(
        config={**request.config, **_HIDDEN_FROM_NETS}, num_outputs=None, trunk_width=None
    )
    nets = []
    for leaf in finder.leaves:
        space = leaf.codec.observation_space
        if not preprocessor.structured and obs_space is not None:
            space = obs_space  # the whole observation is the only part
        net_request = request_for_net
        size = embedding_size(embeddings, leaf.codec.info)
        if size is not None:
            # The leaf is the whole observation of its net, so the net's config needs no path.
            net_config = {**request_for_net.config, "embeddings": size}
            net_request = request_for_net.replace(config=net_config)
        nets.append(_plan_net(leaf, space, net_request, sources.get(leaf.part.path)))
    return Plan(tuple(parts), tuple(nets))


def _sources_by_path(
    input_nets: Mapping[str, NetSource], paths: Sequence[str]
) -> dict[str, NetSource]:
    """Return the nets in the config by the paths of their parts, in Python syntax.

    Args:
        input_nets: The config's `input_nets`.
        paths: The paths of all parts.

    Raises:
        ConfigError: A path is not the path of a part, or two of them name the same part.
    """
    sources: dict[str, NetSource] = {}
    for written, source in input_nets.items():
        path = find_path(written, paths, "input_nets")
        if path in sources:
            raise errors.ConfigError(
                f"input_nets: two paths name the part {path}: {written!r} is one of them. Remove"
                " one."
            )
        sources[path] = source
    return sources


def _plan_net(leaf: Leaf, space: Space[Any], request: Request, source: NetSource | None) -> Net:
    """Choose the net for a part.

    Args:
        leaf: The part.
        space: The space of the part's encoded values.
        request: The request for the whole model, with the config for a net.
        source: The model that `input_nets` names for the part, or None.
    """
    part = leaf.part
    codec = leaf.codec
    if part.hot is not None and not isinstance(space, Box):
        # Integers, which this model encodes as one-hots before the net sees them.
        space = Box(0.0, 1.0, part.shape, np.float32)
    elif not np.array_equal(leaf.bounds, codec.bounds()):
        # The bounds differ because a filter changes the values.
        lowest, highest = leaf.bounds
        space = codec.processed_space(lowest, highest)
    info = codec.info
    if info.is_composite:
        # A Dict or Tuple whose preprocessor returns one array is treated as that array.
        info = SpaceInfo.read(space, info.path)
    request = request.replace(obs=info, encoded_shape=part.shape, preprocessor=codec)
    code = None if isinstance(source, str) else source
    return Net(part, _choose_trunk(request, source), request, space, code)


class _Finder:
    """Visitor for the parts of an observation.

    Args:
        embeddings: The config key `embeddings`, which names the leaves whose nets read ids.

    Attributes:
        leaves: The parts, in the order of their indices.
    """

    def __init__(self, embeddings: Embeddings) -> None:
        self._embeddings = embeddings
        self.leaves: list[Leaf] = []
        self._list_count = 0

    def visit(self, node: Node) -> list[ObservationPart | Items]:
        """Return the parts below a node of the observation."""
        codec = node.codec
        values = node.values
        if not codec.size:
            return []
        # A list or structure has parts only if its preprocessor has a child for each of them.
        if isinstance(values, RepeatedValues) and len(codec.children) == 1:
            return self._visit_list(node)
        if isinstance(values, Mapping | tuple) and len(codec.children) == len(values):
            return self._visit_entries(node)
        return [self._add_part(node)]

    def _visit_entries(self, node: Node) -> list[ObservationPart | Items]:
        """Return the parts of a Dict or Tuple."""
        codec = node.codec
        keys = codec.info.keys or range(len(codec.children))
        # The first column of each leaf, relative to this node.
        starts = {leaf.path: leaf.start for leaf in codec.leaves()}
        parts: list[ObservationPart | Items] = []
        for key, child in zip(keys, codec.children, strict=True):
            if not child.size:
                continue
            first_leaf = child.leaves()[0]
            start = starts[first_leaf.path]
            entry = Node(
                child,
                node.values[key],
                steps=(*node.steps, key),
                depth=node.depth,
                start=node.start + start,
                bounds=node.bounds[:, start : start + child.size],
            )
            parts += self.visit(entry)
        return parts

    def _visit_list(self, node: Node) -> list[ObservationPart | Items]:
        """Return a list with the parts of its items; nothing for a list without places."""
        codec = node.codec
        values = node.values
        if not values.max_len:
            return []
        (child,) = codec.children
        # The encoded list: the lengths, and a block of columns for the items.
        block = next(leaf for leaf in codec.leaves() if leaf.path == child.info.path)
        columns = slice(block.start, block.stop)
        # A filter that changes values changes their bounds, too.
        unfiltered = np.stack(codec.bounds())
        bounds_of_lengths = np.delete(node.bounds, columns, axis=1)
        if not np.array_equal(bounds_of_lengths, np.delete(unfiltered, columns, axis=1)):
            raise errors.ConfigError(
                f"{codec.info.path}: a filter changes the lists' lengths, which hides where"
                " padding starts. Exclude them from the filter"
                f" (filter_exclude=['{codec.info.path}.lengths'])."
            )
        if np.array_equal(node.bounds, unfiltered):
            # The bounds of the block would include the padding, which no net sees.
            bounds = np.stack(child.bounds())
        else:
            # One net serves all places, so its bounds cover the bounds of each place.
            low, high = node.bounds[:, columns].reshape(2, values.max_len, child.size)
            bounds = np.stack([low.min(axis=0), high.max(axis=0)])
        index = self._list_count
        self._list_count += 1
        items = Node(child, values.values, steps=(), depth=node.depth + 1, start=0, bounds=bounds)
        parts = tuple(self.visit(items))
        # The items are read from the encoded observation only if a net reads columns.
        columns_of_items = None
        if any(part.columns is not None for part in parts):
            columns_of_items = slice(node.start + block.start, node.start + block.stop)
        return [
            Items(
                index=index,
                path=codec.info.path,
                steps=node.steps,
                max_len=values.max_len,
                parts=parts,
                columns=columns_of_items,
                item_size=child.size,
            )
        ]

    def _add_part(self, node: Node) -> ObservationPart:
        """Return the part that a node without further parts is, and add it to the leaves."""
        codec = node.codec
        info = codec.info
        index = len(self.leaves)
        if codec.structured:
            # Text, Graph or OneOf, which the net sees as a vector.
            part = ObservationPart(
                index,
                info.path,
                node.steps,
                node.depth,
                shape=(codec.size,),
                columns=slice(node.start, node.start + codec.size),
                codec=codec,
            )
        else:
            # Without the axes of the batch and of the lists around it.
            shape = node.values.shape[1 + node.depth :]
            hot = _one_hots(info)
            if hot is not None and _is_encoded_otherwise(node.values, shape, hot):
                hot = None  # a user's preprocessor encodes the integers
            if embedding_size(self._embeddings, info) is not None:
                hot = None  # the net embeds the integers
            if hot is not None:
                shape = hot.values.shape
            part = ObservationPart(
                index,
                info.path,
                node.steps,
                node.depth,
                shape=shape,
                hot=hot,
                integers=info.shape or (),
            )
        self.leaves.append(Leaf(part, codec, node.bounds))
        return part


def _is_encoded_otherwise(values: Array, shape: tuple[int, ...], hot: OneHots) -> bool:
    """Return whether a Discrete's or MultiDiscrete's values are neither integers nor one-hots,
    because a registered preprocessor encodes them.

    Args:
        values: Restored values.
        shape: The shape of a single one.
        hot: The one-hot encoder for the space.
    """
    are_integers = values.dtype.kind in "iu"
    return not are_integers and shape != hot.values.shape


def _one_hots(info: SpaceInfo) -> OneHots | None:
    """Return the one-hot encoder for a Discrete's or MultiDiscrete's integers; None for other
    spaces.
    """
    if info.kind not in ("discrete", "multi_discrete"):
        return None
    counts = np.ravel([info.n] if info.nvec is None else info.nvec).astype(np.int64)
    starts = np.broadcast_to(np.ravel(info.start), counts.shape)
    values = [start + np.arange(count) for start, count in zip(starts, counts, strict=True)]
    entries = np.repeat(np.arange(len(counts)), counts)
    return OneHots(entries, np.concatenate(values).astype(np.int64))


def _choose_trunk(request: Request, source: NetSource | None) -> Part:
    """Return the net that the catalog chooses for a part; errors name the part as `input_nets`
    does.

    Args:
        request: The request for the part's net.
        source: The model that `input_nets` names for the part, or None.
    """
    path = request.obs.path
    assert request.catalog is not None, "plan_nets() is called with a catalog"
    try:
        part = request.catalog.trunk(request, source)
    except (errors.UnknownNameError, errors.MissingPluginError) as error:
        error.args = (f"input_nets: for {path!r}: {error}",)
        raise
    except errors.ModelContractError as error:
        # The catalog names the key that usually takes code.
        why = str(error).removeprefix("custom_model: ")
        error.args = (f"input_nets: for {path!r}: {why}",)
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
