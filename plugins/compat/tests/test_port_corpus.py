"""`rlcatalog port` over sources that it gets wrong easily; networks are compared with the code as
it was.
"""

import tomllib
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from rlcatalog_compat import layers
from rlcatalog_compat.codemod import porter
from rlcatalog_compat.codemod.porter import port

CORPUS = tomllib.loads(
    (Path(__file__).parent / "data/port_corpus.toml").read_text(encoding="utf-8")
)
HEAD = """\
from rlcatalog_compat.rllib.utils.framework import try_import_tf
tf1, tf, tfv = try_import_tf()
import numpy as np
"""
MODEL = """
def model():
    x = tf.keras.layers.Input(shape=(4,))
    return tf.keras.Model(x, build(x))
"""
BASE = "class Base:\n    def __init__(self, *args, **kwargs): pass\n"
ROWS = np.random.default_rng(0).normal(0, 2, (3, 4)).astype(np.float32)


def each_source(kind, **options):
    """Parametrize a test by the sources of one kind in the corpus."""
    sources = [case for case in CORPUS[kind] if matches(case, options)]
    return pytest.mark.parametrize("case", [pytest.param(one, id=one["name"]) for one in sources])


def matches(case, options):
    return all(case.get(name, False) == value for name, value in options.items())


def port_and_check(source):
    """Return the ported text and the notes of a source, checked: it compiles, and a second run
    changes nothing.
    """
    result = port(source.encode())
    compile(result.content, "ported", "exec", dont_inherit=True)
    assert porter._BROKEN not in [note.why for note in result.notes]
    again = port(result.content)
    assert again.content == result.content, "a second run changes it"
    return result.content.decode(), result.notes


def run(code):
    """Run ported code, and return its names."""
    names = {}
    exec(code, names)
    return SimpleNamespace(**names)


@each_source("text")
def test_ported_text_contains_the_expected_parts(case):
    content, notes = port_and_check(case["source"].lstrip("\n"))

    for part in case.get("has", []):
        assert part in content
    assert [note.what for note in notes] == case.get("notes", [])


@each_source("network", left=False)
def test_ported_network_computes_the_same(case):
    tf = pytest.importorskip("tensorflow")
    expected, _ = in_graph(tf, case["source"], lambda old, x: old["build"](x))

    content, notes = port_and_check(HEAD + case["source"] + MODEL)
    model = run(content).model()

    assert notes == []
    np.testing.assert_allclose(model(ROWS), expected, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(model(ROWS), expected, rtol=1e-5, atol=1e-6)  # at each pass


@each_source("network", left=True)
def test_network_that_may_change_is_listed(case):
    _, notes = port_and_check(HEAD + case["source"] + MODEL)

    assert notes


@each_source("kept", left=False)  # not the layers that porting leaves unchanged
def test_kept_layers_are_those_of_tensorflow_1(case):
    tf = pytest.importorskip("tensorflow")
    source = BASE + case["source"]  # BASE defines the class that "Net" extends
    # What the source computed in TensorFlow 1, and its weights by name.
    expected, old_weights = in_graph(tf, source, lambda old, x: old["Net"]().forward(x))

    content, notes = port_and_check(HEAD + source)
    net = run(content).Net()
    net.forward(tf.constant(ROWS))  # the first pass makes the layers

    weights = kept_weights(net)
    if case.get("unnamed"):  # its layers have no names, so compare their weights in order
        old_weights = dict(zip(weights, old_weights.values(), strict=True))
    assert weights.keys() == old_weights.keys()
    for name, weight in weights.items():
        weight.assign(old_weights[name])
    np.testing.assert_allclose(net.forward(tf.constant(ROWS)), expected, rtol=1e-4, atol=1e-5)
    assert notes == []


@each_source("kept", left=True)
def test_layers_that_cannot_be_kept_are_listed(case):
    _, notes = port_and_check(HEAD + BASE + case["source"])

    assert notes


def test_random_numbers_are_drawn_at_each_pass():
    tf = pytest.importorskip("tensorflow")
    source = "def build(x):\n    return x + tf.random.normal([4])\n"

    content, _ = port_and_check(HEAD + source + MODEL)
    model = run(content).model()

    assert not np.array_equal(model(tf.constant(ROWS)), model(tf.constant(ROWS)))


def test_wide_input_stays_wide():
    tf = pytest.importorskip("tensorflow")
    source = "def build(x):\n    return tf.multiply(x, x)\n"
    model_of_float64 = MODEL.replace("(4,)", "(4,), dtype=tf.float64")

    content, _ = port_and_check(HEAD + source + model_of_float64)
    output = run(content).model()(tf.constant(ROWS, tf.float64))

    assert output.dtype == tf.float64


def in_graph(tf, source, build):
    """Return what a source as it was computes of the rows in a graph of TensorFlow 1, and its
    variables by name.
    """
    with tf.Graph().as_default():
        tf.compat.v1.set_random_seed(1)
        v1 = first_tensorflow(tf)
        names = {"tf": v1, "tf1": v1, "np": np}
        exec(source, names)
        x = tf.compat.v1.placeholder(tf.float32, [None, 4])
        out = build(names, x)
        with tf.compat.v1.Session() as session:
            session.run(tf.compat.v1.global_variables_initializer())
            expected = session.run(out, {x: ROWS})
            variables = tf.compat.v1.global_variables()
            return expected, {one.name.removesuffix(":0"): session.run(one) for one in variables}


def first_tensorflow(tf):
    """Return `tf.compat.v1` with the layers it lacks beside Keras 3, made of its variables."""
    v1 = tf.compat.v1
    counts = {}

    def scope(name, kind):
        if name is None:
            counts[kind] = counts.get(kind, 0) + 1
            name = kind if counts[kind] == 1 else f"{kind}_unnamed_{counts[kind]}"
        return v1.variable_scope(name)

    def dense(inputs, units, activation=None, use_bias=True, name=None):
        with scope(name, "dense"):
            kernel = v1.get_variable(
                "kernel", (inputs.shape[-1], units), initializer=v1.random_normal_initializer()
            )
            out = tf.matmul(inputs, kernel)
            if use_bias:
                out += v1.get_variable("bias", (units,), initializer=v1.random_normal_initializer())
            return out if activation is None else activation(out)

    def batch_normalization(
        inputs,
        axis=-1,
        momentum=0.99,
        epsilon=1e-3,
        center=True,
        scale=True,
        training=False,
        name=None,
    ):
        assert axis == -1
        size = inputs.shape[-1]
        with v1.variable_scope(name):
            gamma = (
                v1.get_variable("gamma", (size,), initializer=v1.random_normal_initializer())
                if scale
                else 1.0
            )
            beta = (
                v1.get_variable("beta", (size,), initializer=v1.random_normal_initializer())
                if center
                else 0.0
            )
            mean = v1.get_variable(
                "moving_mean", (size,), initializer=v1.random_normal_initializer()
            )
            variance = v1.get_variable(
                "moving_variance", (size,), initializer=v1.ones_initializer()
            )
            if training:
                mean, variance = tf.nn.moments(inputs, [0])
            return (inputs - mean) / tf.sqrt(variance + epsilon) * gamma + beta

    names = {name: getattr(v1, name) for name in dir(v1) if not name.startswith("_")}
    layers = SimpleNamespace(dense=dense, batch_normalization=batch_normalization)
    return SimpleNamespace(**{**names, "layers": layers})


def kept_weights(net):
    """Return the weights that a model keeps, by TensorFlow 1's names."""
    weights_by_name = {}
    for name, layer in net.kept_layers.items():
        weights = getattr(layer, "weights", None)
        if weights is None:
            weights_by_name[name] = layer
        for weight in weights or ():
            weights_by_name[f"{name}/{weight.name}"] = weight
    return weights_by_name


def test_untrained_batch_normalisation_uses_its_rows():
    tf = pytest.importorskip("tensorflow")
    net = SimpleNamespace(kept_layers=layers.start())

    output = layers.batch_normalization(
        net, "bn", tf.constant(ROWS), training=True, trainable=False
    )

    # Normalised by the statistics of its rows, without weights to train.
    np.testing.assert_allclose(np.mean(output, axis=0), np.zeros(4), atol=1e-5)
    assert net.kept_layers["bn"].trainable_variables == []
