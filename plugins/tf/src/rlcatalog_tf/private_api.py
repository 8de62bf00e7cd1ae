"""All names of TensorFlow and Keras that are not part of their public interface and that rlcatalog
uses.

No other module of rlcatalog uses such a name, because each of them may change in any release.

They were tried with TensorFlow 2.21.0, Keras 3.15.1 and legacy Keras 2.21.0. If another version
lacks a name, the function that needs it raises `NotServedError` (see `rlcatalog.private_names`),
unless its docstring says otherwise. `plugins/tf/tests/test_tf_private_api.py` checks that the names
still do what is relied on.

Nothing is looked up when this module is imported, because importing Keras takes seconds.
"""

from __future__ import annotations

from typing import Any, Protocol

from rlcatalog.private_names import PrivateNames

TENSORFLOW = PrivateNames("tensorflow", tried="2.21.0")
KERAS = PrivateNames("keras", tried="3.15.1")

# --- layers ---------------------------------------------------------------------------------------


class KerasLayer(Protocol):
    """A Keras layer, for type checkers: Keras has no types, and layers differ in their weights."""

    built: bool
    variables: list[Any]
    weights: list[Any]

    def __getattr__(self, name: str) -> Any: ...


def layers_in(layer: KerasLayer) -> list[Any]:
    """Return a Keras layer and all layers inside it.

    `Model.layers` is public, but only models have it, and it leaves out the inner layers of a
    layer. Without `_flatten_layers`, layers cannot be copied.
    """
    # A later Keras may lack it.
    if not hasattr(layer, "_flatten_layers"):
        raise KERAS.error("Layer._flatten_layers", "copy a layer")
    return list(layer._flatten_layers())


def tracker_of(layer: KerasLayer) -> Any:
    """Return the object that registers a Keras layer's variables and inner layers.

    A built layer's tracker is locked and rejects new variables, so that a deep copy, which sets
    attributes one by one, must unlock it. Without it, built layers cannot be copied.
    """
    # A later Keras may lack it.
    if not hasattr(layer, "_tracker"):
        raise KERAS.error("Layer._tracker", "copy a layer")
    return layer._tracker


def is_functional(layer: KerasLayer) -> bool:
    """Return whether a layer is a Keras model made of inputs and outputs, `keras.Model(inputs,
    outputs)`.

    Keras and legacy Keras do not export the class, so that it is recognised by its name. Under
    another name, such a model counts as a layer with inner layers: it cannot be copied, and its
    weights have other names.
    """
    return type(layer).__name__ == "Functional"


def is_internal(name: str) -> bool:
    """Return whether TensorFlow gave an object this attribute, for its own records.

    If TensorFlow changes the prefix, these attributes are also searched for variables. The search
    then takes longer, and some variables get other names.
    """
    return name.startswith("_self_")


# --- graphs ---------------------------------------------------------------------------------------


def outer_graph(graph: Any) -> Any:
    """Return the graph in which a `tf.function` is being traced, or None outside of another one.

    Without the attribute, reading a model's value in an inner function raises an error, as if the
    model had run elsewhere.
    """
    # TensorFlow's outermost graph is of another class, which lacks it.
    return getattr(graph, "outer_graph", None)


def inner_graphs(graph: Any) -> list[Any]:
    """Return the graphs of all functions that a graph calls.

    `as_graph_def()` is public, but does not tell which line of Python created an operation. Without
    `_functions`, TensorFlow policies cannot be exported.
    """
    # This attribute is private, so a later TensorFlow may lack it.
    if not hasattr(graph, "_functions"):
        raise TENSORFLOW.error("FuncGraph._functions", "find random operations in a policy")
    graphs = []
    for function in graph._functions.values():
        # TensorFlow's entry for a function may lack the graph.
        if hasattr(function, "graph"):
            graphs.append(function.graph)
    return graphs


def with_constants(function: Any) -> Any:
    """Return a traced function with constants in place of its variables.

    tf2onnx needs it in this form, and itself uses this private function of TensorFlow. Without it,
    TensorFlow policies cannot be exported to ONNX.
    """
    convert = TENSORFLOW.name(
        "tensorflow.python.framework.convert_to_constants:convert_variables_to_constants_v2",
        "export TensorFlow policies to ONNX",
    )
    return convert(function, lower_control_flow=False)
