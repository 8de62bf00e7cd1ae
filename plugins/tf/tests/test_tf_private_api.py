"""Private names of TensorFlow and Keras: each still does what rlcatalog relies on in the installed
version.

If one of these tests fails after an upgrade, TensorFlow or Keras has changed the name: adapt
`rlcatalog_tf/private_api.py`, which says what the name is for.
"""

import numpy as np
import pytest

from rlcatalog.errors import NotServedError
from rlcatalog_tf import keras, private_api, tf

#: Names the versions in the message of every failure.
VERSIONS = f"TensorFlow {tf.__version__}, Keras {keras.__version__}"


class Pair(keras.layers.Layer):
    """Layer with two inner layers, one of them in a list."""

    def __init__(self):
        super().__init__()
        self.first = keras.layers.Dense(2)
        self.others = [keras.layers.Dense(3)]

    def build(self, shape):
        self.first.build(shape)
        self.others[0].build((None, 2))

    def call(self, x):
        return self.others[0](self.first(x))


def test_layers_in_a_layer_are_itself_and_all_inner_ones():
    pair = Pair()
    layers = private_api.layers_in(pair)
    assert layers[0] is pair, VERSIONS
    assert {id(layer) for layer in layers[1:]} == {id(pair.first), id(pair.others[0])}, VERSIONS


def test_tracker_of_a_built_layer_is_locked():
    pair = Pair()
    assert not private_api.tracker_of(pair).locked, VERSIONS
    pair(np.zeros((1, 4), np.float32))
    assert private_api.tracker_of(pair).locked, VERSIONS


def test_tracker_accepts_new_layers_after_unlock():
    pair = Pair()
    pair(np.zeros((1, 4), np.float32))  # builds it, which locks the tracker
    private_api.tracker_of(pair).unlock()

    pair.third = keras.layers.Dense(5)

    layers = {id(layer) for layer in private_api.layers_in(pair)}
    assert id(pair.third) in layers, VERSIONS


def test_tracker_rejects_new_layers_after_lock():
    pair = Pair()
    pair(np.zeros((1, 4), np.float32))
    tracker = private_api.tracker_of(pair)
    tracker.unlock()

    tracker.lock()

    with pytest.raises(ValueError, match="cannot add"):
        pair.third = keras.layers.Dense(5)


@pytest.mark.parametrize("library", ["keras", "tf_keras"])
def test_functional_models_are_recognized(library):
    module = pytest.importorskip(library)
    inputs = module.layers.Input((3,))

    class Subclass(module.Model):
        pass

    functional = module.Model(inputs, module.layers.Dense(2)(inputs))
    sequential = module.Sequential([module.layers.Dense(2)])

    assert private_api.is_functional(functional), f"{VERSIONS}, {library} {module.__version__}"
    assert not private_api.is_functional(sequential), VERSIONS
    assert not private_api.is_functional(Subclass()), VERSIONS


def test_internal_attributes_hold_the_records_of_tensorflow():
    class Counter(tf.Module):
        def __init__(self):
            super().__init__()
            self.count = tf.Variable(0.0)

    attributes = vars(Counter())

    # TensorFlow's records lead to the variable again; they are lists and dicts.
    records = [name for name, value in attributes.items() if isinstance(value, list | dict)]
    assert records, VERSIONS
    assert all(private_api.is_internal(name) for name in records), VERSIONS
    assert not private_api.is_internal("count"), VERSIONS


def test_outer_graph_is_the_graph_around_an_inner_function():
    graphs = []

    @tf.function
    def inner(x):
        graphs.append(tf.compat.v1.get_default_graph())
        return x + 1

    @tf.function
    def outer(x):
        graphs.append(tf.compat.v1.get_default_graph())
        return inner(x)

    outer(tf.constant(1.0))

    # `outer` records its graph first, then `inner` does.
    assert private_api.outer_graph(graphs[1]) is graphs[0], VERSIONS


def test_inner_graphs_show_the_operations_of_called_functions():
    @tf.function
    def inner(x):
        return x + tf.random.normal([])

    program = tf.function(lambda x: inner(x) * 2).get_concrete_function(
        tf.TensorSpec([], tf.float32)
    )

    inner_operations = []
    for graph in private_api.inner_graphs(program.graph):
        inner_operations += graph.get_operations()

    # The outer graph only calls the function; the random number is drawn in the inner one.
    random_outside = [op for op in program.graph.get_operations() if "Random" in op.type]
    random_inside = [op for op in inner_operations if "Random" in op.type]
    assert not random_outside, VERSIONS
    assert random_inside, f"{VERSIONS}: the operations of an inner function are hidden"
    assert "test_tf_private_api" in str(random_inside[0].traceback), VERSIONS


def test_with_constants_leaves_no_variables():
    weight = tf.Variable([2.0, 3.0])
    program = tf.function(lambda x: x * weight).get_concrete_function(
        tf.TensorSpec([2], tf.float32)
    )

    constant = private_api.with_constants(program)
    weight.assign([0.0, 0.0])

    (result,) = constant(tf.constant([1.0, 1.0]))
    assert result.numpy().tolist() == [2, 3], VERSIONS  # the weight before it was assigned
    kinds = {operation.type for operation in constant.graph.get_operations()}
    assert not kinds & {"VarHandleOp", "ReadVariableOp"}, VERSIONS


@pytest.mark.parametrize(
    ("function", "library"),
    [
        (private_api.layers_in, keras),
        (private_api.tracker_of, keras),
        (private_api.inner_graphs, tf),
    ],
)
def test_missing_name_is_reported_with_the_version(function, library):
    with pytest.raises(NotServedError, match=rf"{library.__version__} has no \w+\._\w+"):
        function(object())
