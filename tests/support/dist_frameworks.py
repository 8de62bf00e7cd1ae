"""One framework's tensors, seeds and gradients, for tests of distributions in both frameworks."""

from __future__ import annotations

import importlib

import numpy as np
import pytest

#: Numbers near the ends of float32, and a few usual ones.
EXTREMES = (0.0, 1e8, -1e8, 1.1e34, -1.1e34, 1.1e-34, -1.1e-34, 1e-6, 20.0)
#: All pairs of them, for the two inputs of one value, `[81, 2]`.
EXTREME_PAIRS = np.array([(first, second) for first in EXTREMES for second in EXTREMES], np.float32)
each_extreme_bounds = pytest.mark.parametrize(
    ("low", "high"), [(-1.0, 1.0), (-1e30, 1e30), (1e8, 1e8 + 64), (-1e-20, 1e-20)]
)
each_way_to_sample = pytest.mark.parametrize(
    "method", ["sample", "rsample", "deterministic_sample"]
)
each_place_of_an_action = pytest.mark.parametrize(
    "place", ["low", "high", "middle", "far below", "far above"]
)


def assert_samples_are_within(framework, dist, method, low, high):
    """Assert that samples of a distribution are within its bounds, and have a density there."""
    sample = framework.numpy(getattr(dist, method)())

    assert (sample >= np.float32(low)).all()
    assert (sample <= np.float32(high)).all()
    assert framework.all_finite(dist.logp(framework.tensor(sample)))


def assert_logp_is_finite(framework, dist, place, low, high):
    """Assert that each row's log density is finite at a place, beyond the bounds too."""
    places = {
        "low": low,
        "high": high,
        "middle": low / 2 + high / 2,
        "far below": -3e38,  # float32 ends at -3.4e38
        "far above": 3e38,
    }
    actions = np.full((len(EXTREME_PAIRS), 1), places[place], np.float32)

    assert framework.all_finite(dist.logp(actions))


def logp_at_one(dist):
    return dist.logp(np.ones((len(EXTREME_PAIRS), 1), np.float32))


def logp_of_rsample(dist):
    return dist.logp(dist.rsample())


def assert_samples_are_new_in_tf_function(cls, **options):
    """Assert that a traced function draws new samples, within a call and at each call."""
    import tensorflow as tf

    @tf.function
    def sample_twice(inputs):
        dist = cls(inputs, **options)
        return dist.sample(), dist.sample()

    first, second = sample_twice(tf.zeros([6, 4]))
    third, _ = sample_twice(tf.zeros([6, 4]))

    assert (first.numpy() != second.numpy()).all()
    assert (first.numpy() != third.numpy()).all()


class DistFramework:
    """One framework's tensors, seeds and gradients, and a package's distributions in it."""

    def __init__(self, package, name):
        self.package = package
        #: "torch" or "tf".
        self.name = name
        self.lib = importlib.import_module({"torch": "torch", "tf": "tensorflow"}[name])

    def load(self, class_name):
        """Return a distribution class by its name."""
        return getattr(importlib.import_module(f"{self.package}.{self.name}"), class_name)

    def tensor(self, value, dtype=None):
        if self.name == "torch":
            tensor = self.lib.as_tensor(np.asarray(value))
            return tensor if dtype is None else tensor.to(getattr(self.lib, dtype))
        tensor = self.lib.convert_to_tensor(np.asarray(value))
        return tensor if dtype is None else self.lib.cast(tensor, dtype)

    def numpy(self, tensor):
        """Return a tensor as an array; half precisions as float32."""
        if self.name == "torch":
            tensor = tensor.detach()
            return (tensor.float() if tensor.dtype.itemsize == 2 else tensor).numpy()
        return (self.lib.cast(tensor, "float32") if tensor.dtype.size == 2 else tensor).numpy()

    def all_finite(self, tensor):
        """Return whether all numbers of a tensor are finite."""
        return bool(np.isfinite(self.numpy(tensor)).all())

    def seed(self, value):
        if self.name == "torch":
            self.lib.manual_seed(value)
        else:
            self.lib.random.set_seed(value)

    def gradient(self, function, at):
        """Return the gradient of the sum of `function(tensor)` at an array."""
        if self.name == "torch":
            x = self.lib.from_numpy(np.array(at)).requires_grad_()
            function(x).sum().backward()
            return x.grad.numpy()
        x = self.lib.Variable(at)
        with self.lib.GradientTape() as tape:
            total = self.lib.reduce_sum(function(x))
        return self.lib.convert_to_tensor(tape.gradient(total, x)).numpy()

    def has_gradient(self, function, at):
        """Return whether a gradient leads from `function(tensor)` back to the tensor."""
        if self.name == "torch":
            return function(self.lib.from_numpy(np.array(at)).requires_grad_()).requires_grad
        x = self.lib.Variable(at)
        with self.lib.GradientTape() as tape:
            result = function(x)
        return tape.gradient(result, x) is not None

    def numeric_gradient(self, function, at, step=1e-6):
        """Return the same by central differences."""
        gradient = np.zeros_like(at)
        for place in np.ndindex(at.shape):
            sums = []
            for sign in (1, -1):
                moved = at.copy()
                moved[place] += sign * step
                sums.append(self.numpy(function(self.tensor(moved))).sum())
            gradient[place] = (sums[0] - sums[1]) / (2 * step)
        return gradient
