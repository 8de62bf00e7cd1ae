"""Codec for graphs of varying size."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from rlcatalog.frameworks import TensorOps
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


class GraphPreprocessor(Preprocessor):
    """Graph: nodes and their mask; for a space with edges, also edges, their links and their mask;
    zero-padded.
    """

    structured = True

    def _init_shape(self, obs_space: Any, options: dict[str, Any]) -> tuple[int, ...]:
        path = self.info.path
        self._node = self.child(SpaceInfo.read(obs_space.node_space, f"{path}.nodes[:]"))
        self.max_nodes = needed_limit(options, "graph_max_nodes", self.info, "nodes")
        self._edge, self.max_edges = None, 0
        if obs_space.edge_space is not None:
            self._edge = self.child(SpaceInfo.read(obs_space.edge_space, f"{path}.edges[:]"))
            self.max_edges = needed_limit(options, "graph_max_edges", self.info, "edges")
        self.children = (self._node,) if self._edge is None else (self._node, self._edge)
        # The parts in their order: name, kind of leaf, shape.
        self._layout: list[tuple[str, str, tuple[int, ...]]] = [
            ("nodes", "graph", (self.max_nodes, self._node.size)),
            ("node_mask", "mask", (self.max_nodes,)),
        ]
        if self._edge is not None:
            self._layout += [
                ("edges", "graph", (self.max_edges, self._edge.size)),
                ("edge_links", "index", (self.max_edges, 2)),
                ("edge_mask", "mask", (self.max_edges,)),
            ]
        return (sum(int(np.prod(shape)) for _, _, shape in self._layout),)

    def writer(self, start: int) -> Writer:
        parts = {leaf.path.rpartition(".")[2]: leaf for leaf in self.leaves(start)}
        write_nodes = self._node.batch_writer(0)
        write_edges = self._edge.batch_writer(0) if self._edge is not None else None

        def place(out: Array, name: str, count: int) -> Array:
            leaf = parts[name]
            if count > leaf.shape[0]:
                raise ValueError(f"{count} {name}, which exceeds the limit {leaf.shape[0]}")
            return out[leaf.start : leaf.stop].reshape(leaf.shape)[:count]

        def write(obs: Any, out: Array) -> None:
            count = len(obs.nodes)
            write_nodes(obs.nodes, place(out, "nodes", count))
            place(out, "node_mask", count)[:] = 1.0
            if write_edges is not None and obs.edges is not None:
                count = len(obs.edges)
                write_edges(obs.edges, place(out, "edges", count))
                links = np.asarray(obs.edge_links)
                if links.shape != (count, 2) or (links.dtype.kind not in "iu" and count):
                    raise ValueError(
                        f"edge_links {links.dtype} {links.shape} instead of integers {(count, 2)}"
                    )
                place(out, "edge_links", count)[:] = links
                place(out, "edge_mask", count)[:] = 1.0

        return write

    def restore(self, flat: Any, ops: TensorOps) -> GraphValues:
        """Return the padded nodes and edges with their masks; links are int64."""
        found = {}
        for leaf in self.leaves():
            values = ops.reshape(flat[..., leaf.start : leaf.stop], leaf.shape)
            found[leaf.path.rpartition(".")[2]] = values
        found["nodes"] = self._node.restore(found["nodes"], ops)
        if self._edge is not None:
            found["edges"] = self._edge.restore(found["edges"], ops)
            found["edge_links"] = ops.integers(found["edge_links"])
        return GraphValues(**found)

    def leaves(self, start: int = 0) -> list[Leaf]:
        found = []
        for name, kind, shape in self._layout:
            stop = start + int(np.prod(shape))
            found.append(Leaf(f"{self.info.path}.{name}", kind, start, stop, shape))
            start = stop
        return found

    def bounds(self) -> tuple[Array, Array]:
        low, high = np.zeros(self.size, np.float32), np.ones(self.size, np.float32)
        for leaf in self.leaves():
            place, name = slice(leaf.start, leaf.stop), leaf.path.rpartition(".")[2]
            if name == "edge_links":
                high[place] = self.max_nodes - 1
            elif name in ("nodes", "edges"):
                child = self._node if name == "nodes" else self._edge
                assert child is not None
                lowest, highest = child.bounds()
                low[place] = np.tile(np.minimum(lowest, 0), leaf.shape[0])  # zero is the padding
                high[place] = np.tile(np.maximum(highest, 0), leaf.shape[0])
        return low, high

    def integer_ranges(self) -> Array:
        ranges = np.zeros(self.size)
        items = {"nodes": self._node, "edges": self._edge}
        for leaf in self.leaves():
            child = items.get(leaf.path.rpartition(".")[2])
            if child is not None:
                ranges[leaf.start : leaf.stop] = np.tile(child.integer_ranges(), leaf.shape[0])
        return ranges

    def check(self, obs: Any) -> None:
        if not all(hasattr(obs, name) for name in ("nodes", "edges", "edge_links")):
            self.refuse("a gymnasium.spaces.GraphInstance(nodes, edges, edge_links)", obs)
        nodes = self._check_count(obs.nodes, "nodes", self.max_nodes)
        items = self._item_checks(obs.nodes, self._node, "nodes")
        if obs.edges is None and obs.edge_links is None:
            check_parts(items)
            return
        if self._edge is None:
            self.refuse("no edges: the space has no edge_space", obs.edges)
        edges = self._check_count(obs.edges, "edges", self.max_edges)
        links = as_array(self, obs.edge_links, f"edge_links as integers of shape {(edges, 2)}")
        if links.dtype.kind not in "iu" or links.shape != (edges, 2):
            self.refuse(f"edge_links as integers of shape {(edges, 2)}", obs.edge_links)
        if edges and not (links.min() >= 0 and links.max() < nodes):
            self.refuse(f"edge_links from 0 to {nodes - 1}, for {nodes} nodes", links)
        check_parts([*items, *self._item_checks(obs.edges, self._edge, "edges")])

    def _check_count(self, items: Any, name: str, most: int) -> int:
        """Return the number of nodes or edges; raise an error if they are too many or no array."""
        if not isinstance(items, np.ndarray) or items.ndim == 0:
            self.refuse(f"{name} as an array", items)
        if len(items) > most:
            self.refuse(
                f"at most {most} {name} (the model config key 'graph_max_{name}')",
                f"{len(items)} {name}",
            )
        return len(items)

    def _item_checks(self, items: Any, child: Preprocessor, name: str) -> list[Callable[[], None]]:
        """Return a check for each node or edge."""
        return [
            partial(check_item, child, item, f"{self.info.path}.{name}[{i}]")
            for i, item in enumerate(items)
        ]
