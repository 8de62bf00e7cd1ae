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


def cases(kind, **options):
    return pytest.mark.parametrize(
        "case",
        [pytest.param(case, id=case["name"]) for case in CORPUS[kind] if matches(case, options)],
    )


def matches(case, options):
    return all(case.get(name, False) == value for name, value in options.items())


def ported(source):
    """Return the ported text and the notes of a source, checked: it compiles, and a second run
    changes nothing.
    """
    found = port(source.encode())
    compile(found.content, "ported", "exec", dont_inherit=True)
    assert porter._BROKEN not in [note.why for note in found.notes]
    again = port(found.content)
    assert again.content == found.content, "a second run changes it"
    return found.content.decode(), found.notes


def test_corpus_is_large_enough():
    assert sum(map(len, CORPUS.values())) >= 50
    assert len({case["name"] for kind in CORPUS.values() for case in kind}) == sum(
        map(len, CORPUS.values())
    )


@cases("text")
def test_text(case):
    found, notes = ported(case["source"].lstrip("\n"))
    for part in case.get("has", []):
        assert part in found
    assert [note.what for note in notes] == case.get("notes", [])


@cases("network", left=False)
def test_ported_network_computes_the_same(case):
    tf = pytest.importorskip("tensorflow")
    found, notes = ported(HEAD + case["source"] + MODEL)
    assert notes == []
    names = {}
    exec(found, names)
    expected = in_graph(tf, case["source"], lambda old, x: old["build"](x))[0]
    model = names["model"]()
    for _ in range(2):
        np.testing.assert_allclose(model(ROWS), expected, rtol=1e-5, atol=1e-6)


@cases("network", left=True)
def test_network_that_may_change_is_listed(case):
    assert ported(HEAD + case["source"] + MODEL)[1]


@cases("kept", left=False)
def test_kept_layers_are_those_of_tensorflow_1(case):
    tf = pytest.importorskip("tensorflow")
    found, notes = ported(HEAD + BASE + case["source"])
    assert notes == []
    expected, values = in_graph(tf, BASE + case["source"], lambda old, x: old["Net"]().forward(x))
    names = {}
    exec(found, names)
    net = names["Net"]()
    net.forward(tf.constant(ROWS))
    weights = kept_weights(net)
    if not case.get("unnamed"):
        assert set(weights) == set(values)
    assert len(weights) == len(values)
    for (name, weight), value in zip(weights.items(), values.values(), strict=True):
        weight.assign(value if case.get("unnamed") else values[name])
    np.testing.assert_allclose(net.forward(tf.constant(ROWS)), expected, rtol=1e-4, atol=1e-5)


@cases("kept", left=True)
def test_layers_that_cannot_be_kept_are_listed(case):
    assert ported(HEAD + BASE + case["source"])[1]


def test_random_numbers_are_drawn_at_each_pass():
    tf = pytest.importorskip("tensorflow")
    found, _ = ported(HEAD + "def build(x):\n    return x + tf.random.normal([4])\n" + MODEL)
    names = {}
    exec(found, names)
    model = names["model"]()
    assert not np.array_equal(model(tf.constant(ROWS)), model(tf.constant(ROWS)))


def test_wide_input_stays_wide():
    tf = pytest.importorskip("tensorflow")
    model = MODEL.replace("(4,)", "(4,), dtype=tf.float64")
    found, _ = ported(HEAD + "def build(x):\n    return tf.multiply(x, x)\n" + model)
    names = {}
    exec(found, names)
    assert names["model"]()(tf.constant(ROWS, tf.float64)).dtype == tf.float64


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
    found = {}
    for name, layer in net.kept_layers.items():
        weights = getattr(layer, "weights", None)
        if weights is None:
            found[name] = layer
        for weight in weights or ():
            found[f"{name}/{weight.name}"] = weight
    return found


def test_statistics_of_untrained_batch_normalisation_go_on():
    tf = pytest.importorskip("tensorflow")
    net = SimpleNamespace(kept_layers=layers.start())
    out = layers.batch_normalization(net, "bn", tf.constant(ROWS), training=True, trainable=False)
    np.testing.assert_allclose(np.mean(out, 0), np.zeros(4), atol=1e-5)
    assert net.kept_layers["bn"].trainable_variables == []
