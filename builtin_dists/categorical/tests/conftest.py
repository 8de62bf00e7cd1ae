"""One face for both frameworks."""

from __future__ import annotations

import importlib

import numpy as np
import pytest


class Kit:
    """What tests need of a framework: tensors, arrays, seeds, gradients, and the
    package's classes.
    """

    def __init__(self, framework):
        self.framework = framework
        self.lib = importlib.import_module({"torch": "torch", "tf": "tensorflow"}[framework])

    def load(self, name):
        return getattr(importlib.import_module(f"rlcatalog_categorical.{self.framework}"), name)

    def tensor(self, value, dtype=None):
        if self.framework == "torch":
            made = self.lib.as_tensor(np.asarray(value))
            return made if dtype is None else made.to(getattr(self.lib, dtype))
        made = self.lib.convert_to_tensor(np.asarray(value))
        return made if dtype is None else self.lib.cast(made, dtype)

    def array(self, value):
        """A tensor as an array; half precisions as float32."""
        if self.framework == "torch":
            value = value.detach()
            return (value.float() if value.dtype.itemsize == 2 else value).numpy()
        return (self.lib.cast(value, "float32") if value.dtype.size == 2 else value).numpy()

    def seed(self, value):
        self.lib.manual_seed(value) if self.framework == "torch" else self.lib.random.set_seed(
            value
        )

    def gradient(self, function, at):
        """The gradient of the sum of `function(tensor)` at an array."""
        if self.framework == "torch":
            x = self.lib.from_numpy(np.array(at)).requires_grad_()
            function(x).sum().backward()
            return x.grad.numpy()
        x = self.lib.Variable(at)
        with self.lib.GradientTape() as tape:
            total = self.lib.reduce_sum(function(x))
        return self.lib.convert_to_tensor(tape.gradient(total, x)).numpy()

    def numeric_gradient(self, function, at, step=1e-6):
        """The same by central differences."""
        found = np.zeros_like(at)
        for place in np.ndindex(at.shape):
            values = []
            for sign in (1, -1):
                moved = at.copy()
                moved[place] += sign * step
                values.append(self.array(function(self.tensor(moved))).sum())
            found[place] = (values[0] - values[1]) / (2 * step)
        return found


@pytest.fixture(params=["torch", "tf"])
def kit(request):
    return Kit(request.param)


@pytest.fixture
def kits():
    return Kit("torch"), Kit("tf")
