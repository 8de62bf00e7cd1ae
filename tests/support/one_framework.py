"""A test of each kind that meets TensorFlow; `tests/frameworks/test_frameworks.py` runs them where
there is none.
"""

from __future__ import annotations

import inspect

import keras
import pytest
import tensorflow as tf
import torch
from gymnasium import spaces

import rlcatalog
import rlcatalog_tf
from rlcatalog.errors import MissingFrameworkError
from rlcatalog_tf import Categorical, TFModelV2
from rlcatalog_torch import Categorical as TorchCategorical

SPACES = spaces.Box(-1, 1, (2,)), spaces.Discrete(2)
ONE, LAYER = tf.constant(1.0), keras.layers.Dense(1)
MEANT_FOR_TENSORFLOW = "this test is to be skipped"


class Net(TFModelV2):
    pass


@pytest.fixture
def tensor():
    return tf.constant(1.0)


@tf.function
def traced(x):
    return x


@pytest.mark.parametrize("cls", [TorchCategorical, Categorical])
def test_classes(cls):
    assert cls(torch.zeros(1, 2)).sample().shape == (1,)


@pytest.mark.parametrize("framework", ["torch", "tf"])
def test_builds(framework):
    assert rlcatalog.build(*SPACES, {}, framework).framework == framework


def test_a_fixture(tensor):
    pytest.fail(MEANT_FOR_TENSORFLOW)


def test_a_derived_class():
    Net(*SPACES, 2, {}, "net")
    pytest.fail(MEANT_FOR_TENSORFLOW)


def test_the_catalog_is_given_a_derived_class():
    rlcatalog.build(*SPACES, {"custom_model": Net})
    pytest.fail(MEANT_FOR_TENSORFLOW)


def test_a_traced_function():
    traced(1)
    pytest.fail(MEANT_FOR_TENSORFLOW)


def test_names():
    pytest.fail(f"{MEANT_FOR_TENSORFLOW}: {list(tf.nn.names)}")


def test_an_import_inside():
    import tensorflow

    tensorflow.zeros(1)
    pytest.fail(MEANT_FOR_TENSORFLOW)


def test_a_module_of_the_kernel():
    rlcatalog_tf.TFModelV2()
    pytest.fail(MEANT_FOR_TENSORFLOW)


def test_a_signature():
    inspect.signature(TFModelV2)
    pytest.fail(MEANT_FOR_TENSORFLOW)


def test_what_is_no_tensor():
    assert not isinstance(torch.zeros(1), tf.Tensor)


def test_an_exception_among_others():
    with pytest.raises((ValueError, tf.errors.InvalidArgumentError)):
        raise ValueError


def test_of_the_refusal():
    with pytest.raises(MissingFrameworkError):
        rlcatalog.build(*SPACES, {}, "tf")


def test_another_module_is_missed():
    import no_such_module

    no_such_module.anything()
