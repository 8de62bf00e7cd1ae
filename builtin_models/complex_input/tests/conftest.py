"""Fixtures that build and run complex-input networks, and the network computed with NumPy."""

from __future__ import annotations

import numpy as np
import pytest
from gymnasium import spaces
from model_runs import set_random_weights
from random_spaces import Case, limit_of

from rlcatalog.catalog import Catalog
from rlcatalog.observations import rows
from rlcatalog.spaces import Repeated, SpaceInfo
from rlcatalog_testing import isolated_catalog

PLUGINS = [
    "rlcatalog-complex-input",
    "rlcatalog-fcnet",
    "rlcatalog-preprocessors",
    "rlcatalog-filters",
    "rlcatalog-categorical",
]


@pytest.fixture(autouse=True, scope="module")
def _one_thread(one_thread):
    """Small tensors gain nothing from a second thread."""


@pytest.fixture(scope="session")
def catalog() -> Catalog:
    """A catalog without a vision net: it flattens images, which is easy to do with NumPy."""
    return isolated_catalog(*PLUGINS)


@pytest.fixture
def make_catalog():
    """Make a catalog like `catalog` that a test may change."""

    def make():
        return isolated_catalog(*PLUGINS)

    return make


@pytest.fixture
def build_model(catalog):
    """Build a model with random weights for a space; return it and its preprocessor.

    It has 4 outputs by default. Each part of an observation has a fully connected net.
    """

    def build(space, config, framework, num_outputs=4):
        preprocessor = catalog.preprocessor_for(space, catalog.parse_config(config))
        config = {"custom_model": "complex_input", **config}
        actions = spaces.Discrete(num_outputs or 2)
        model = catalog.model_v2(
            preprocessor.observation_space, actions, num_outputs, config, framework
        )
        return set_random_weights(model), preprocessor

    return build


class NumpyNetwork:
    """The network in float64, from observations as the environment emits them, item by item.

    Its nets are fully connected layers with tanh. Each part is encoded by its codec alone.
    """

    def __init__(self, space, options, weights, paths):
        self.space = space
        self.options = options
        self.weights = weights
        self.paths = list(paths)

    def apply_layer(self, name, x):
        weight = self.weights[f"{name}.weight"].astype(np.float64)
        return x @ weight.T + self.weights[f"{name}.bias"]

    def apply_stack(self, name, x):
        i = 0
        while f"{name}.layers.{i}.bias" in self.weights:
            x = np.tanh(self.apply_layer(f"{name}.layers.{i}", x))
            i += 1
        return x

    def compute_features(self, observations, nets="nets"):
        """Return the concatenated features of observations, a row each."""
        features = [self._features(self.space, obs, "obs", nets) for obs in observations]
        return np.stack(features)

    def _features(self, space, obs, path, nets):
        if isinstance(space, spaces.Dict):
            parts = [np.zeros(0)]
            for key, child in space.spaces.items():
                parts.append(self._features(child, obs[key], f"{path}[{key!r}]", nets))
            return np.concatenate(parts)
        if isinstance(space, spaces.Tuple):
            parts = [np.zeros(0)]
            for i, child in enumerate(space.spaces):
                parts.append(self._features(child, obs[i], f"{path}[{i}]", nets))
            return np.concatenate(parts)
        if isinstance(space, Repeated | spaces.Sequence):
            return self._features_of_list(space, obs, path, nets)
        if path not in self.paths:
            return np.zeros(0)
        encoder = Case(space, self.options, path).make("never")
        encoded = encoder.transform(obs).astype(np.float64).ravel()
        if isinstance(space, spaces.Box):
            encoded = _scale_box(space, encoded)
        if isinstance(space, spaces.Graph):
            encoded = self._scale_graph(space, encoded, path)
        return self.apply_stack(f"{nets}.{self.paths.index(path)}.hidden", encoded)

    def _features_of_list(self, space, obs, path, nets):
        """Return the average of the items' features, and the length as a share."""
        item_space, max_len = self._item(space, path)
        if not max_len:
            return np.zeros(0)
        if getattr(space, "stack", False):
            items = list(rows(SpaceInfo.read(item_space), obs))
        else:
            items = list(obs)
        mean = np.zeros(self._width(item_space, f"{path}[:]"))
        for item in items:
            mean += self._features(item_space, item, f"{path}[:]", nets) / len(items)
        return np.append(mean, len(items) / max_len)

    def _scale_graph(self, space, encoded, path):
        """Scale nodes and edges; 0 is their padding, so their bounds include it."""
        count = limit_of(self.options, "graph_max_nodes", path)
        size = _columns(space.node_space)
        parts = [(space.node_space, 0, count, size)]
        if space.edge_space is not None:
            begin = count * (size + 1)  # after the nodes and their mask
            edges = limit_of(self.options, "graph_max_edges", path)
            parts.append((space.edge_space, begin, edges, _columns(space.edge_space)))
        for item, begin, count, size in parts:
            for start in range(begin, begin + count * size, size or 1):
                if isinstance(item, spaces.Box):
                    place = slice(start, start + size)
                    encoded[place] = _scale_box(item, encoded[place], padding=0)
        return encoded

    def _item(self, space, path):
        if isinstance(space, Repeated):
            return space.child_space, space.max_len
        return space.feature_space, limit_of(self.options, "sequence_max_len", path)

    def _width(self, space, path):
        if isinstance(space, spaces.Dict):
            children = space.spaces.items()
            return sum(self._width(child, f"{path}[{key!r}]") for key, child in children)
        if isinstance(space, spaces.Tuple):
            return sum(self._width(child, f"{path}[{i}]") for i, child in enumerate(space.spaces))
        if isinstance(space, Repeated | spaces.Sequence):
            item_space, max_len = self._item(space, path)
            return 1 + self._width(item_space, f"{path}[:]") if max_len else 0
        if path not in self.paths:
            return 0
        prefix = f"nets.{self.paths.index(path)}.hidden"
        last_layer = max(key for key in self.weights if key.startswith(prefix))
        return len(self.weights[last_layer])


def _columns(space):
    """Return how many columns encode a node or an edge of a graph."""
    if isinstance(space, spaces.Discrete):
        return int(space.n)  # one-hot
    return int(np.prod(space.shape))


def _scale_box(space, values, padding=None):
    """Map each integer to [0, 1] or [-1, 1] by its bounds."""
    if space.dtype.kind not in "iu":
        return values
    largest_span = 255 if len(space.shape) < 2 else 65_535
    scaled = []
    for value, low, high in zip(values, space.low.ravel(), space.high.ravel(), strict=True):
        bounds = [float(low), float(high)]
        if padding is not None:
            bounds.append(padding)
        low = min(bounds)
        high = max(bounds)
        if high - low > largest_span or (low >= -1 and high <= 1):
            scaled.append(value)
        elif high == low:
            scaled.append(0.0)
        else:
            share = (value - low) / (high - low)
            scaled.append(share if low >= 0 else 2 * share - 1)
    return np.array(scaled)


@pytest.fixture
def build_numpy_network(catalog):
    """Build the network with NumPy, for a `Case` and weights by name."""

    def build(case, weights):
        config = {"custom_model": "complex_input", **case.options}
        resolution = catalog.explain(case.space, spaces.Discrete(2), config).resolution
        declaration = resolution.part("trunk").declaration
        paths = declaration.pinned_keys(resolution.request)["input_nets"]
        return NumpyNetwork(case.space, case.options, weights, paths)

    return build


@pytest.fixture
def rich_case():
    """A space with parts of many kinds, ten in all, from which observations can be drawn."""
    unit = spaces.Dict(
        {
            "map": spaces.Box(-1, 1, (2, 2, 1), np.float32),
            "tags": Repeated(spaces.Discrete(3, start=-1), 2),
            "name": spaces.Text(2, charset="ab"),
        }
    )
    space = spaces.Dict(
        {
            "camera": spaces.Box(0, 255, (2, 3, 3), np.uint8),
            "gear": spaces.Discrete(4, start=2),
            "grid": spaces.MultiDiscrete([[2, 3], [1, 2]]),
            "odd": spaces.OneOf([spaces.Box(-1, 1, (2,), np.float32), spaces.Discrete(3)]),
            "pair": spaces.Tuple((spaces.Box(-1, 1, (), np.float32), spaces.MultiBinary((2, 2)))),
            "units": Repeated(unit, 3),
            "word": spaces.Text(3, charset="abc"),
        }
    )
    return Case(space)
