"""Codec for graphs of varying size."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, Protocol

import numpy as np
from gymnasium import Space

from rlcatalog.frameworks import Tensor, TensorOps
from rlcatalog.observations import Array, Leaf, Preprocessor, Writer, check_parts
from rlcatalog.spaces import SpaceInfo
from rlcatalog_preprocessors.arrays import as_array
from rlcatalog_preprocessors.config import needed_limit
from rlcatalog_preprocessors.lists import check_item


@dataclass(frozen=True, eq=False)
class GraphValues:
    """Batch of graphs, padded to the same number of nodes and the same number of edges.

    Attributes:
        nodes: `[B, max_nodes, ...]`.
        node_mask: Mask with a 1 for each node, `[B, max_nodes]`.
        edges: `[B, max_edges, ...]`, or None for a space without edges.
        edge_links: Source and target nodes of each edge, int64 `[B, max_edges, 2]`, or None.
        edge_mask: Mask with a 1 for each edge, `[B, max_edges]`, or None.
    """

    nodes: Any
    node_mask: Any
    edges: Any = None
    edge_links: Any = None
    edge_mask: Any = None


class _Graph(Protocol):
    """What the codec reads of an observation, as `gymnasium.spaces.GraphInstance` has it."""

    nodes: Array
    edges: Array | None
    edge_links: Array | None


class _Entry(NamedTuple):
    """One array of a graph's encoding: its name, the kind of leaf, and its shape."""

    name: str
    kind: str
    shape: tuple[int, ...]


class GraphPreprocessor(Preprocessor):
    """Graph: nodes and their mask; for a space with edges, also edges, their links and their mask;
    zero-padded.
    """

    structured = True

    def _init_shape(self, obs_space: Space[Any], options: dict[str, Any]) -> tuple[int, ...]:
        """Create the codecs of nodes and edges; return the shape of the flat vector."""
        space: Any = obs_space
        path = self.info.path
        self._node = self.child(SpaceInfo.read(space.node_space, f"{path}.nodes[:]"))
        self.max_nodes = needed_limit(options, "graph_max_nodes", self.info, "nodes")
        self.children = (self._node,)
        #: The arrays in the order of the flat vector.
        self._entries = [
            _Entry("nodes", "graph", (self.max_nodes, self._node.size)),
            _Entry("node_mask", "mask", (self.max_nodes,)),
        ]
        self._edge: Preprocessor | None = None
        self.max_edges = 0
        if space.edge_space is not None:
            self._edge = self.child(SpaceInfo.read(space.edge_space, f"{path}.edges[:]"))
            self.max_edges = needed_limit(options, "graph_max_edges", self.info, "edges")
            self.children = (self._node, self._edge)
            self._entries += [
                _Entry("edges", "graph", (self.max_edges, self._edge.size)),
                _Entry("edge_links", "index", (self.max_edges, 2)),
                _Entry("edge_mask", "mask", (self.max_edges,)),
            ]
        return (sum(math.prod(entry.shape) for entry in self._entries),)

    def _leaf_of(self, start: int = 0) -> dict[str, Leaf]:
        """Return the leaf of each array, by the array's name."""
        names = [entry.name for entry in self._entries]
        return dict(zip(names, self.leaves(start), strict=True))

    def writer(self, start: int) -> Writer:
        leaf_of = self._leaf_of(start)
        write_nodes = self._node.batch_writer(0)
        write_edges = self._edge.batch_writer(0) if self._edge is not None else None

        def rows(out: Array, name: str, count: int) -> Array:
            """Return the first rows of an array of the encoding."""
            leaf = leaf_of[name]
            if count > leaf.shape[0]:
                raise ValueError(f"{count} {name}, which exceeds the limit {leaf.shape[0]}")
            return out[leaf.start : leaf.stop].reshape(leaf.shape)[:count]

        def write(obs: _Graph, out: Array) -> None:
            nodes = len(obs.nodes)
            write_nodes(obs.nodes, rows(out, "nodes", nodes))
            rows(out, "node_mask", nodes)[:] = 1.0
            if write_edges is None or obs.edges is None:
                return
            edges = len(obs.edges)
            write_edges(obs.edges, rows(out, "edges", edges))
            links = np.asarray(obs.edge_links)
            # NumPy makes an empty list an array of floats.
            are_integers = links.dtype.kind in "iu" or edges == 0
            if links.shape != (edges, 2) or not are_integers:
                raise ValueError(
                    f"edge_links {links.dtype} {links.shape} instead of integers {(edges, 2)}"
                )
            rows(out, "edge_links", edges)[:] = links
            rows(out, "edge_mask", edges)[:] = 1.0

        return write

    def restore(self, flat: Tensor, ops: TensorOps) -> GraphValues:
        """Return the padded nodes and edges with their masks; links are int64."""
        values = {}
        for name, leaf in self._leaf_of().items():
            values[name] = ops.reshape(flat[..., leaf.start : leaf.stop], leaf.shape)
        values["nodes"] = self._node.restore(values["nodes"], ops)
        if self._edge is not None:
            values["edges"] = self._edge.restore(values["edges"], ops)
            values["edge_links"] = ops.integers(values["edge_links"])
        return GraphValues(**values)

    def leaves(self, start: int = 0) -> list[Leaf]:
        leaves = []
        for entry in self._entries:
            stop = start + math.prod(entry.shape)
            path = f"{self.info.path}.{entry.name}"
            leaves.append(Leaf(path, entry.kind, start, stop, entry.shape))
            start = stop
        return leaves

    def bounds(self) -> tuple[Array, Array]:
        """Return the lowest and the highest encoded values."""
        low = np.zeros(self.size, np.float32)
        high = np.ones(self.size, np.float32)
        leaf_of = self._leaf_of()
        for name, codec in self._item_codecs().items():
            leaf = leaf_of[name]
            lowest, highest = codec.bounds()
            max_items = leaf.shape[0]
            # Zero is the padding.
            low[leaf.start : leaf.stop] = np.tile(np.minimum(lowest, 0), max_items)
            high[leaf.start : leaf.stop] = np.tile(np.maximum(highest, 0), max_items)
        if self._edge is not None:
            # Links are indices of nodes.
            links = leaf_of["edge_links"]
            high[links.start : links.stop] = self.max_nodes - 1
        return low, high

    def integer_ranges(self) -> Array:
        ranges = np.zeros(self.size)
        leaf_of = self._leaf_of()
        for name, codec in self._item_codecs().items():
            leaf = leaf_of[name]
            ranges[leaf.start : leaf.stop] = np.tile(codec.integer_ranges(), leaf.shape[0])
        return ranges

    def _item_codecs(self) -> dict[str, Preprocessor]:
        """Return the codecs of single nodes and edges, by the name of their array."""
        codecs = {"nodes": self._node}
        if self._edge is not None:
            codecs["edges"] = self._edge
        return codecs

    def check(self, obs: _Graph) -> None:
        """Raise an error that says what is wrong, if an observation is not in the space."""
        # The environment's observation may be anything.
        if not all(hasattr(obs, name) for name in ("nodes", "edges", "edge_links")):
            self.refuse("a gymnasium.spaces.GraphInstance(nodes, edges, edge_links)", obs)
        nodes = self._checked_array(obs.nodes, "nodes", self.max_nodes)
        node_checks = self._item_checks(nodes, self._node, "nodes")
        if obs.edges is None and obs.edge_links is None:
            check_parts(node_checks)
            return
        if self._edge is None:
            self.refuse("no edges: the space has no edge_space", obs.edges)
        edges = self._checked_array(obs.edges, "edges", self.max_edges)
        self._check_links(obs.edge_links, len(edges), len(nodes))
        check_parts([*node_checks, *self._item_checks(edges, self._edge, "edges")])

    def _checked_array(self, items: Array | None, name: str, limit: int) -> Array:
        """Return the nodes or edges; `name` says which, for messages.

        Raises:
            ObservationError: They are too many, or no array.
        """
        if not isinstance(items, np.ndarray) or items.ndim == 0:
            self.refuse(f"{name} as an array", items)
        if len(items) > limit:
            self.refuse(
                f"at most {limit} {name} (the model config key 'graph_max_{name}')",
                f"{len(items)} {name}",
            )
        return items

    def _check_links(self, edge_links: Array | None, edges: int, nodes: int) -> None:
        """Raise an error unless each edge links two nodes."""
        expected = f"edge_links as integers of shape {(edges, 2)}"
        links = as_array(self, edge_links, expected)
        if links.dtype.kind not in "iu" or links.shape != (edges, 2):
            self.refuse(expected, edge_links)
        if not edges:
            return
        if links.min() < 0 or links.max() >= nodes:
            self.refuse(f"edge_links from 0 to {nodes - 1}, for {nodes} nodes", links)

    def _item_checks(
        self, items: Array, child: Preprocessor, name: str
    ) -> list[Callable[[], None]]:
        """Return a check for each node or edge."""
        checks: list[Callable[[], None]] = []
        for i, item in enumerate(items):
            checks.append(partial(check_item, child, item, f"{self.info.path}.{name}[{i}]"))
        return checks
