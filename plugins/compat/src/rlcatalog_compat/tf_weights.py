"""Names of the variables of RLlib's TensorFlow nets."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]

#: The names of RLlib's weights, by those of ours.
NAMES: dict[str, Any] = tomllib.loads(Path(__file__).with_name("weights.toml").read_text(encoding="utf-8"))


def is_tensorflow(names: Mapping[str, Any]) -> bool:
    """Whether these are names of TensorFlow variables, such as `default_policy/fc_1/kernel:0`."""
    return any("/" in name or re.search(r":\d+$", name) for name in names)


def tf_source(name: str, given: Mapping[str, Array]) -> tuple[str, Array] | None:
    """Return what belongs under a name of ours, in our layout, and the name it was given under; or None."""
    if name.endswith("free_log_std.log_std"):
        return _take(given, "", "log_std")
    for end, variable in NAMES["tf"]["cell"].items():
        if re.fullmatch(rf"(?:.*\.)?{re.escape(end)}", name):
            return _take(given, "lstm", variable)
    layer, _, kind = name.rpartition(".")
    variables = NAMES["tf"]["variables"]
    for pattern, forms in NAMES["tf"]["layers"].items():
        if kind in variables and (match := re.fullmatch(pattern, layer)):
            for form in forms:
                number = int(match[1]) + 1 if match.groups() else 0
                if (found := _take(given, form.format(number), variables[kind])) is not None:
                    return found
    return None


def assign_by_path(model: Any, given: Mapping[str, Array], missing: list[str]) -> dict[str, Array]:
    """Return what Keras layers of a custom model are given under their own names, by the names that were missing.

    Args:
        model: The model, of TensorFlow.
        given: The weights.
        missing: Canonical names without a source.
    """
    ends = {_end(name): array for name, array in given.items()}
    by_variable = {id(variable): name for name, variable in model.variables(as_dict=True).items()}
    axes, found = model.variable_axes(), {}
    for variable in _keras_variables(vars(model), set()):
        name = by_variable.get(id(variable.value))
        array = ends.get(_end(variable.path))
        if name in missing and array is not None and array.shape == tuple(variable.shape):
            found[name] = array if axes[name] is None else array.transpose(axes[name])
    return found


def _take(given: Mapping[str, Array], layer: str, variable: str) -> tuple[str, Array] | None:
    for name, array in given.items():
        parts = name.split(":")[0].split("/")
        if parts[-1] == variable and (not layer or layer in parts[:-1]):
            return name, _canonical(array) if variable.endswith("kernel") else array
    return None


def _canonical(kernel: Array) -> Array:
    """Return a kernel `[in, out]` or `[height, width, in, out]` as `[out, in, ...]`."""
    return kernel.T if kernel.ndim == 2 else kernel.transpose(3, 2, 0, 1)


def _end(name: str) -> str:
    return "/".join(name.split(":")[0].split("/")[-2:])


def _keras_variables(attributes: Any, seen: set[int]) -> list[Any]:
    """Return the variables of the Keras layers and models that stand in these attributes, or in models among them."""
    found: list[Any] = []
    for value in attributes.values():
        if id(value) in seen:
            continue
        seen.add(id(value))
        if hasattr(value, "weights") and hasattr(value, "built"):
            found += value.weights
        elif hasattr(value, "get_initial_state") and hasattr(value, "__dict__"):
            found += _keras_variables(vars(value), seen)
    return found
