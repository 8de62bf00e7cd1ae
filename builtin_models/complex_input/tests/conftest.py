"""What the tests of the network share: a catalog without a vision net, running, and the network
written by hand.
"""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import tensorflow as tf
import torch
from gymnasium import spaces
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
def _one_thread():
    """Small tensors gain nothing from a second thread."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def catalog() -> Catalog:
    """The parts needed, and no vision net: images are flattened, which is easy to do by hand."""
    return isolated_catalog(*PLUGINS)


@pytest.fixture
def fresh_catalog():
    """Make such a catalog that a test may change."""
    return lambda: isolated_catalog(*PLUGINS)


def _randomize(model, seed=0):
    random = np.random.default_rng(seed)
    model.set_weights(
        {name: random.normal(0, 0.5, array.shape) for name, array in model.get_weights().items()}
    )
    return model


@pytest.fixture
def build(catalog):
    """Build a model for a space; its weights, biases included, are random values of a seed."""

    def build(space, config, framework, num_outputs=4, seed=0):
        preprocessor = catalog.preprocessor_for(space, catalog.parse_config(config))
        config = {"custom_model": "complex_input", **config}
        actions = spaces.Discrete(num_outputs or 2)
        model = catalog.model_v2(
            preprocessor.observation_space, actions, num_outputs, config, framework
        )
        return _randomize(model, seed), preprocessor

    return build


def _convert(values, framework):
    if isinstance(values, np.ndarray):
        return torch.from_numpy(np.array(values)) if framework == "torch" else tf.constant(values)
    if isinstance(values, dict):
        return {key: _convert(value, framework) for key, value in values.items()}
    if isinstance(values, tuple):
        return tuple(_convert(value, framework) for value in values)
    if values is None or isinstance(values, int):
        return values
    return type(values)(**{key: _convert(value, framework) for key, value in vars(values).items()})


def _array(tensor):
    return tensor.detach().numpy() if isinstance(tensor, torch.Tensor) else tensor.numpy()


def _run(model, obs, **more):
    output, state = model({"obs": _convert(obs, model.framework), **more})
    assert state == []
    return _array(output), None if model.outputs is None else _array(model.value_function())


@pytest.fixture
def run():
    """Run a model on NumPy observations; return outputs and values as arrays, None for the values
    of a trunk.
    """
    return _run


@pytest.fixture
def convert():
    """Turn a structure of arrays into one of a framework's tensors."""
    return _convert


@pytest.fixture
def assert_close():
    """Compare what `run` returned."""

    def assert_close(found, expected, tolerance=1e-5):
        for one, other in zip(found, expected, strict=True):
            assert (one is None) == (other is None)
            if one is not None:
                assert one.shape == other.shape
                np.testing.assert_allclose(one, other, rtol=tolerance, atol=tolerance)

    return assert_close


class ByHand:
    """The network by hand, from observations as the environment gives them: in float64, item by
    item.

    Its nets are fully connected layers with tanh. Leaves are encoded one by one by their codecs.
    """

    def __init__(self, space, options, weights, paths):
        self.space, self.options, self.weights, self.paths = space, options, weights, list(paths)

    def linear(self, name, x):
        return (
            x @ self.weights[f"{name}.weight"].T.astype(np.float64) + self.weights[f"{name}.bias"]
        )

    def stack(self, name, x, activation):
        layers = sum(
            key.startswith(f"{name}.layers.") and key.endswith("bias") for key in self.weights
        )
        for i in range(layers):
            x = activation(self.linear(f"{name}.layers.{i}", x))
        return x

    def features(self, obs, nets="nets"):
        return self._features(self.space, obs, "obs", nets)

    def _features(self, space, obs, path, nets):
        if isinstance(space, spaces.Dict):
            return self._joined(
                [(child, obs[key], f"{path}[{key!r}]") for key, child in space.spaces.items()], nets
            )
        if isinstance(space, spaces.Tuple):
            return self._joined(
                [(one, obs[i], f"{path}[{i}]") for i, one in enumerate(space.spaces)], nets
            )
        if isinstance(space, Repeated | spaces.Sequence):
            item, most = self._item(space, path)
            if not most:
                return np.zeros(0)
            items = (
                list(rows(SpaceInfo.read(item), obs))
                if getattr(space, "stack", False)
                else list(obs)
            )
            mean = np.zeros(self._width(item, f"{path}[:]"))
            for one in items:
                mean += self._features(item, one, f"{path}[:]", nets) / len(items)
            return np.append(mean, len(items) / most)
        if path not in self.paths:
            return np.zeros(0)
        encoded = (
            Case(space, self.options, path).make("never").transform(obs).astype(np.float64).ravel()
        )
        if isinstance(space, spaces.Box):
            encoded = _scale_box(space, encoded)
        if isinstance(space, spaces.Graph):
            encoded = self._scale_graph(space, encoded, path)
        return self.stack(f"{nets}.{self.paths.index(path)}.hidden", encoded, np.tanh)

    def _scale_graph(self, space, encoded, path):
        """Scale nodes and edges; 0 is their padding, so their bounds include it."""
        count = limit_of(self.options, "graph_max_nodes", path)
        size = int(np.prod(space.node_space.shape))
        parts = [(space.node_space, 0, count, size)]
        if space.edge_space is not None:
            begin = count * (size + 1)  # after the nodes and their mask
            edges = limit_of(self.options, "graph_max_edges", path)
            parts.append((space.edge_space, begin, edges, int(np.prod(space.edge_space.shape))))
        for item, begin, count, size in parts:
            for start in range(begin, begin + count * size, size or 1):
                if isinstance(item, spaces.Box):
                    place = slice(start, start + size)
                    encoded[place] = _scale_box(item, encoded[place], padding=0)
        return encoded

    def _joined(self, children, nets):
        return np.concatenate([np.zeros(0), *(self._features(*child, nets) for child in children)])

    def _item(self, space, path):
        if isinstance(space, Repeated):
            return space.child_space, space.max_len
        return space.feature_space, limit_of(self.options, "sequence_max_len", path)

    def _width(self, space, path):
        if isinstance(space, spaces.Dict):
            return sum(
                self._width(child, f"{path}[{key!r}]") for key, child in space.spaces.items()
            )
        if isinstance(space, spaces.Tuple):
            return sum(self._width(child, f"{path}[{i}]") for i, child in enumerate(space.spaces))
        if isinstance(space, Repeated | spaces.Sequence):
            item, most = self._item(space, path)
            return 1 + self._width(item, f"{path}[:]") if most else 0
        if path not in self.paths:
            return 0
        index = self.paths.index(path)
        return len(
            self.weights[max(key for key in self.weights if key.startswith(f"nets.{index}.hidden"))]
        )


def _scale_box(space, values, padding=None):
    """Map each integer to [0, 1] or [-1, 1] by its bounds."""
    if space.dtype.kind not in "iu":
        return values
    most = 255 if len(space.shape) < 2 else 65_535
    scaled = []
    for value, low, high in zip(values, space.low.ravel(), space.high.ravel(), strict=True):
        bounds = [float(low), float(high)] + ([] if padding is None else [padding])
        low, high = min(bounds), max(bounds)
        if high - low > most or (low >= -1 and high <= 1):
            scaled.append(value)
        elif high == low:
            scaled.append(0.0)
        else:
            share = (value - low) / (high - low)
            scaled.append(share if low >= 0 else 2 * share - 1)
    return np.array(scaled)


@pytest.fixture
def by_hand():
    """The network by hand."""
    return ByHand


@pytest.fixture
def randomize():
    """Give a model random weights."""
    return _randomize


@pytest.fixture
def rich():
    """A space with parts of many kinds, and the options its observations need."""
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
    return SimpleNamespace(space=space, options={}, case=Case(space, {}))


@pytest.fixture
def paths_of(catalog):
    """Return the paths of the parts of a space, in the order of their nets."""

    def paths_of(space, options):
        config = {"custom_model": "complex_input", **options}
        resolution = catalog.explain(space, spaces.Discrete(2), config).resolution
        return list(
            resolution.component("trunk").declaration.pinned_keys(resolution.request)["input_nets"]
        )

    return paths_of
