"""Loading of weights trained by RLlib into a policy or model with the same structure.

Each name is mapped to the name in RLlib's net with the same structure: `hidden.layers.0.weight` is
`_hidden_layers.0._model.0.weight` in its PyTorch nets and `fc_1/kernel` in its TensorFlow nets. A
custom model's own weights have the same names in both.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from gymnasium.spaces import Box

from rlcatalog import MODEL_DEFAULTS, ModelV2, SpaceInfo
from rlcatalog.config import activation_name
from rlcatalog.errors import CatalogWarning, ConfigError, ModelContractError, NotServedError
from rlcatalog.frameworks import Array
from rlcatalog.observations import scaling_of
from rlcatalog.reporting import warn_caller
from rlcatalog_compat.arrays import convert_to_numpy
from rlcatalog_compat.spaces import flatten_space, get_original_space

#: RLlib's weight names, by rlcatalog's names.
NAMES: dict[str, Any] = tomllib.loads(
    Path(__file__).with_name("weights.toml").read_text(encoding="utf-8")
)
#: Maximum number of names of each kind in an error message.
_MOST_NAMES = 30

#: Parts of a transformer's attention whose weights are stored as one matrix in RLlib.
_PROJECTIONS = ("query", "key", "value")


def load_rllib_weights(policy: Any, weights: Mapping[str, Any]) -> None:
    """Copy the weights of an RLlib policy with the same config into a policy.

    The nets of RLlib's classic stack are supported: fully connected, vision and complex-input nets,
    the LSTM and attention around them, and custom models, whose own weights keep their names. If
    any weight does not fit, no weights are set. For attention, a warning says that its outputs
    differ from RLlib's until its memory is full.

    Args:
        policy: A `Policy` or a model in either framework, built with RLlib's model config.
        weights: `Policy.get_weights()`, name → array; a state dict of its PyTorch model; or
            `Algorithm.get_weights()` with one policy. Files are not supported.

    Raises:
        ModelContractError: Names have no counterpart, or shapes differ; the message lists both.
        ConfigError: The config does not match RLlib's networks.
        NotServedError: The weights belong to several policies or to an attention net in TensorFlow,
            or are a list.
    """
    model = policy if isinstance(policy, ModelV2) else policy.model
    given = _Given(_of_one_policy(weights))
    config = getattr(policy, "config", model.model_config)
    _check_config(model, config, given)
    have = model.get_weights()
    found, missing, wrong = {}, [], []
    for name, array in have.items():
        if (value := given.source(name, have)) is None:
            missing.append(name)
            continue
        # a convolution of one pixel.
        if value.ndim == array.ndim + 2 and value.shape[-2:] == (1, 1):
            value = value[..., 0, 0]
        if value.shape != array.shape:
            wrong.append(f"{name} {array.shape}, given {value.shape}")
        found[name] = value
    if (
        missing
        and not wrong
        and given.tensorflow
        and (rest := _assign_by_path(model, given.by_name, missing))
    ):
        missing, found = [name for name in missing if name not in rest], {**found, **rest}
        given.used.update(given.by_name)
    memory = any(re.search(r"(^|\.)(cell|transformer)\.", name) for name in have)
    idle = re.compile(
        "|".join(NAMES["idle"]["anywhere"] + (NAMES["idle"]["in_memory"] if memory else []))
    )
    unused = [
        name for name in given.by_name if name not in given.used and not idle.fullmatch(_slim(name))
    ]
    if missing or unused or wrong:
        raise ModelContractError(
            f"{type(model).__name__}: these weights belong to a different model. Missing:"
            f" {_some(missing)}; unused: {_some(unused)}; wrong shape: {_some(wrong)}. Build the"
            " policy with the model config that RLlib used."
        )
    model.set_weights(found)
    _warn_of_empty_slots(config, given)


class _Given:
    """The given weights, with a record of those already used.

    Args:
        weights: Name → array, or tensor of either framework, in RLlib's format.
    """

    def __init__(self, weights: Mapping[str, Any]) -> None:
        self.by_name: dict[str, Array] = {
            str(name): convert_to_numpy(x, False) for name, x in weights.items()
        }
        # Such as `default_policy/fc_1/kernel:0`.
        self.tensorflow = any("/" in name or re.search(r":\d+$", name) for name in self.by_name)
        self.used: set[str] = set()
        self._slim = {_slim(name): name for name in self.by_name}

    def take(self, *names: str) -> list[Array] | None:
        """Return the values for all these names, or None if any is missing."""
        if any(name not in self._slim for name in names):
            return None
        self.used.update(self._slim[name] for name in names)
        return [self.by_name[self._slim[name]] for name in names]

    def take_one(self, name: str) -> Array | None:
        """Return the value for a name, or None."""
        found = self.take(name)
        return found[0] if found else None

    def source(self, name: str, have: Mapping[str, Array]) -> Array | None:
        """Return the value for an rlcatalog name, or None."""
        if name in self.by_name:
            self.used.add(name)
            return self.by_name[name]
        if self.tensorflow:
            taken = _tf_source(name, self.by_name)
            self.used.update(() if taken is None else taken[:1])
            return None if taken is None else taken[1]
        values = (self._torch(prefix, end, have) for prefix, end in _ways(name))
        return next((value for value in values if value is not None), None)

    def _torch(self, prefix: str, end: str, have: Mapping[str, Array]) -> Array | None:
        for pattern, forms in NAMES["torch"]["names"].items():
            if (match := re.fullmatch(pattern, end)) is not None:
                for form in forms:
                    if (value := self.take_one(prefix + match.expand(form))) is not None:
                        return value
        # After the convolutions of a separate value net.
        if match := re.fullmatch(r"outputs\.value\.(\w+)", end):
            last = sum(
                bool(re.fullmatch(r"value_convs\.layers\.\d+\.weight", name)) for name in have
            )
            return (
                self.take_one(f"{prefix}_value_branch_separate.{last}.{match[1]}") if last else None
            )
        if end == "cell.bias":  # RLlib has two biases, which are added
            found = self.take(f"{prefix}lstm.bias_ih_l0", f"{prefix}lstm.bias_hh_l0")
            return found[0] + found[1] if found else None
        if match := re.fullmatch(r"transformer\.units\.(\d+)\.(.+)", end):
            return self._unit(f"{prefix}gtrxl.attention_layers.", int(match[1]), match[2], have)
        return None

    def _unit(self, prefix: str, index: int, end: str, have: Mapping[str, Array]) -> Array | None:
        """Return the weights of one transformer unit, which consists of two layers in RLlib."""
        attention, mlp = f"{prefix}{2 * index}.", f"{prefix}{2 * index + 1}."
        part, _, rest = end.partition(".")
        if part == "attention" and rest in _PROJECTIONS:
            found = self.take(f"{attention}_layer._qkv_layer.weight")
            return np.split(found[0], 3)[_PROJECTIONS.index(rest)] if found else None
        if part == "attention":
            return self.take_one(f"{attention}_layer.{NAMES['torch']['attention'][rest]}")
        if part == "norm":
            return self.take_one(f"{mlp}_layer.0.{rest}")
        if part == "mlp":
            _, place, kind = rest.split(".")  # mlp.layers.0.weight
            if kind == "bias":  # RLlib's has none
                name = next(
                    name for name in have if name.endswith(f"transformer.units.{index}.{end}")
                )
                return np.zeros_like(have[name])
            return self.take_one(f"{mlp}_layer.{int(place) + 1}.{kind}")
        gate = f"{attention if part == 'attention_gate' else mlp}_fan_in_layer."
        if rest == "bias":
            return self.take_one(f"{gate}_bias_z")
        found = self.take(*(gate + name for name in NAMES["torch"]["gate"][rest]))
        # RLlib's are transposed.
        return np.concatenate([matrix.T for matrix in found]) if found else None


def _ways(name: str) -> Iterator[tuple[str, str]]:
    """Yield the possible RLlib prefixes for a name, and the remaining name in
    rlcatalog's format.
    """
    parts = name.split(".")
    for cut in range(len(parts)):
        end = ".".join(parts[cut:])
        # In RLlib, a memory and the net inside it are one model.
        prefix = ".".join(part for part in parts[:cut] if part != "trunk")
        prefix = f"{prefix}." if prefix else ""
        if match := re.fullmatch(r"(.*\.)?nets\.(\d+)\.", prefix):
            yield from (
                (f"{match[1] or ''}{kind}.{match[2]}.", end)
                for kind in ("cnns", "one_hot", "flatten")
            )
        else:
            yield prefix, end


def _slim(name: str) -> str:
    """Return an RLlib name without the indices of its slim layers, which padding shifts."""
    return re.sub(r"(?<![^.])_model\.\d+\.", "", name)


def _some(names: list[str]) -> str:
    more = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
    return f"{names[:_MOST_NAMES]}{more}" if names else "none"


def _of_one_policy(weights: Any) -> Mapping[str, Any]:
    if not isinstance(weights, Mapping):
        raise NotServedError(
            f"load_rllib_weights: expected a dictionary, found {type(weights).__name__}. Files are"
            " not supported. For an eager TensorFlow policy, whose weights are a list:"
            " {v.name: v.numpy() for v in policy.model.variables()}."
        )
    if weights and all(isinstance(value, Mapping) for value in weights.values()):
        if len(weights) > 1:
            raise NotServedError(
                "load_rllib_weights: these are the weights of several policies,"
                f" {sorted(weights)}; pass the weights of one."
            )
        return dict(*weights.values())
    return weights


def _check_config(model: ModelV2, config: Mapping[str, Any], given: _Given) -> None:
    """Raise an error if this config's net differs from RLlib's net with the same weights."""
    names = list(model.get_weights())
    parts = {part for name in names for part in name.split(".")[:-1]}
    own_hidden = any(
        re.search(r"(^|\.)hidden\.layers\.", name) and ".nets." not in f".{name}" for name in names
    )
    if any("mha_" in name for name in given.by_name):
        raise NotServedError(
            "load_rllib_weights: RLlib's attention net in TensorFlow does not name its variables,"
            " and normalises with a different epsilon. Use the PyTorch net's weights."
        )
    post = config.get("post_fcnet_hiddens") or []
    if "convs" in parts and "nets" not in parts and post:
        raise ConfigError(
            "load_rllib_weights with post_fcnet_hiddens after convolutions: RLlib's nets omit the"
            " last activation there and read the value from the convolutions, so the same weights"
            " would behave differently."
        )
    if own_hidden and "nets" not in parts and post and config.get("fcnet_hiddens"):
        first, last = (
            activation_name(config.get(f"{key}_activation", None))
            for key in ("fcnet", "post_fcnet")
        )
        if first != last:
            raise ConfigError(
                "load_rllib_weights with post_fcnet_hiddens: RLlib's net uses"
                f" fcnet_activation={first!r} in those layers too. Build the policy with"
                f" post_fcnet_activation={first!r}."
            )
    if own_hidden or parts & {"convs", "nets"}:
        _refuse_scaling(model, config, has_convolutions="convs" in parts)


def _refuse_scaling(model: ModelV2, config: Mapping[str, Any], has_convolutions: bool) -> None:
    """Raise an error if the model scales integers of its observations, which RLlib's nets do not.

    Args:
        model: The model.
        config: Its config.
        has_convolutions: Whether images go through convolutions.
    """
    for leaf in flatten_space(get_original_space(model.obs_space)):
        if not isinstance(leaf, Box):
            continue
        key = "scale_integers"
        is_scaled = scaling_of(leaf, config) is not None
        if has_convolutions and len(leaf.shape) == 3:
            key = "image_scale"
            if config.get(key) is not None:
                continue  # the caller's own factor
            if not config.get("scale_integers", True):
                is_scaled = leaf.dtype == np.uint8
        if is_scaled:
            raise ConfigError(
                "load_rllib_weights: RLlib's nets do not scale integers, but this net scales the"
                f" {SpaceInfo.read(leaf).describe()}. Build the policy with {key}=False."
            )


def _warn_of_empty_slots(config: Mapping[str, Any], given: _Given) -> None:
    """Warn that attention acts like RLlib's only once no unit depends on empty memory slots.

    Each unit sees recent outputs of the unit below, so every unit adds a delay of the memory's
    length.
    """
    units = sum(name.endswith("_layer._uvar") for name in given.by_name)
    if steps := units * {**MODEL_DEFAULTS, **config}["attention_memory_inference"]:
        warn_caller(
            "load_rllib_weights: RLlib's attention also attends to the empty slots of its memory,"
            f" but rlcatalog masks them. The outputs differ in the first {steps} steps of every"
            " episode (units of the transformer times attention_memory_inference) and are equal"
            " from then on. If these steps matter, evaluate the policy before you use it, or train"
            " it further.",
            CatalogWarning,
        )


# --- names of TensorFlow variables ----------------------------------------------------------------


def _tf_source(name: str, given: Mapping[str, Array]) -> tuple[str, Array] | None:
    """Return the value for an rlcatalog name, in rlcatalog's layout, and its original name; or
    None.
    """
    found = (_take(given, layer, variable) for layer, variable in _tf_places(name))
    return next((taken for taken in found if taken is not None), None)


def _tf_places(name: str) -> Iterator[tuple[str, str]]:
    """Yield the layers and variables that may hold the value for an rlcatalog name."""
    if name.endswith("free_log_std.log_std"):
        yield "", "log_std"
    for end, variable in NAMES["tf"]["cell"].items():
        if f".{name}".endswith(f".{end}"):
            yield "lstm", variable
    layer, _, kind = name.rpartition(".")
    for pattern, forms in NAMES["tf"]["layers"].items():
        if kind in NAMES["tf"]["variables"] and (match := re.fullmatch(pattern, layer)):
            number = int(match[1]) + 1 if match.groups() else 0
            yield from ((form.format(number), NAMES["tf"]["variables"][kind]) for form in forms)


def _assign_by_path(model: Any, given: Mapping[str, Array], missing: list[str]) -> dict[str, Array]:
    """Return the weights for a custom model's Keras layers, matched by variable path, under the
    missing names.

    Args:
        model: The TensorFlow model.
        given: The weights.
        missing: Canonical names for which no weights were found.
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
        *layers, last = name.split(":")[0].split("/")
        if last == variable and (not layer or layer in layers):
            if variable.endswith("kernel"):  # [in, out] or [height, width, in, out]
                array = array.T if array.ndim == 2 else array.transpose(3, 2, 0, 1)
            return name, array
    return None


def _end(name: str) -> str:
    return "/".join(name.split(":")[0].split("/")[-2:])


def _keras_variables(attributes: Any, seen: set[int]) -> list[Any]:
    """Return the variables of the Keras layers and models in these attributes, or in models among
    them.
    """
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
