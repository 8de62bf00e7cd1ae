"""One framework's tensors, seeds and gradients, for tests of distributions in both frameworks."""

from __future__ import annotations

import importlib

import numpy as np


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
