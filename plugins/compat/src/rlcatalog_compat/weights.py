"""Loading of weights trained by RLlib into a policy or model with the same structure.

Each name is mapped to the name in RLlib's net with the same structure: `hidden.layers.0.weight` is
`_hidden_layers.0._model.0.weight` in its PyTorch nets and `fc_1/kernel` in its TensorFlow nets. A
custom model's own weights have the same names in both.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, Protocol

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

#: Biases of a transformer's dense layers, which RLlib's layers do not have.
_MISSING_BIAS = re.compile(r"transformer\.units\.\d+\.mlp\.layers\.\d+\.bias")


def load_rllib_weights(policy: ModelV2 | _PolicyWithModel, weights: Mapping[str, Any]) -> None:
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
    if isinstance(policy, ModelV2):
        model = policy
        config: Mapping[str, Any] = model.model_config
    else:
        model = policy.model
        # A user's own policy class may have a model and no config.
        config = getattr(policy, "config", model.model_config)
    rllib_weights = _RLlibWeights(_weights_of_one_policy(weights))
    _check_config(model, config, rllib_weights)
    model_weights = model.get_weights()
    match = _match_weights(model, model_weights, rllib_weights)
    unused = _unused_names(model_weights, rllib_weights)
    if match.missing or unused or match.wrong_shapes:
        raise ModelContractError(
            f"{type(model).__name__}: these weights belong to a different model. Missing:"
            f" {_list_names(match.missing)}; unused: {_list_names(unused)}; wrong shape:"
            f" {_list_names(match.wrong_shapes)}. Build the policy with the model config that"
            " RLlib used."
        )
    model.set_weights(match.values)
    _warn_of_empty_slots(config, rllib_weights)


class _PolicyWithModel(Protocol):
    """What `load_rllib_weights` reads of a policy."""

    @property
    def model(self) -> Any:
        """The model, a `ModelV2`."""


@dataclass
class _Match:
    """RLlib's weights under a model's names.

    Attributes:
        values: Name of a model's weight → RLlib's value.
        missing: Names of the model's weights that RLlib's weights do not have.
        wrong_shapes: Names whose values have another shape, with both shapes.
    """

    values: dict[str, Array] = field(default_factory=dict)
    missing: list[str] = field(default_factory=list)
    wrong_shapes: list[str] = field(default_factory=list)


def _match_weights(
    model: ModelV2, model_weights: Mapping[str, Array], rllib_weights: _RLlibWeights
) -> _Match:
    """Find RLlib's value for each of a model's weights, and record in `rllib_weights` which values
    were used.
    """
    match = _Match()
    for name, array in model_weights.items():
        value = rllib_weights.find(name, model_weights)
        if value is None:
            match.missing.append(name)
            continue
        # A dense layer here may be a convolution with a kernel of one pixel in RLlib.
        if value.ndim == array.ndim + 2 and value.shape[-2:] == (1, 1):
            value = value[..., 0, 0]
        if value.shape != array.shape:
            match.wrong_shapes.append(f"{name} {array.shape}, given {value.shape}")
        match.values[name] = value
    if match.missing and not match.wrong_shapes and rllib_weights.is_tensorflow:
        custom_weights = _match_by_path(model, rllib_weights, match.missing)
        match.values.update(custom_weights)
        match.missing = [name for name in match.missing if name not in custom_weights]
    return match


def _unused_names(model_weights: Mapping[str, Array], rllib_weights: _RLlibWeights) -> list[str]:
    """Return the names of RLlib's weights that no weight of the model takes. Weights that
    RLlib's nets have but never use are left out.
    """
    idle_patterns = list(NAMES["idle"]["anywhere"])
    # An LSTM's weights are in `cell`, attention's in `transformer`.
    has_memory = any(re.search(r"(^|\.)(cell|transformer)\.", name) for name in model_weights)
    if has_memory:
        idle_patterns += NAMES["idle"]["in_memory"]
    idle_name = re.compile("|".join(idle_patterns))
    unused = []
    for name in rllib_weights.by_name:
        if name not in rllib_weights.used and not idle_name.fullmatch(_without_slim_index(name)):
            unused.append(name)
    return unused


class _RLlibWeights:
    """RLlib's weights, with a record of the ones that were used.

    Args:
        weights: Name → array, or tensor of either framework, in RLlib's format.
    """

    def __init__(self, weights: Mapping[str, Any]) -> None:
        self.by_name: dict[str, Array] = {}
        for name, value in weights.items():
            self.by_name[str(name)] = convert_to_numpy(value, reduce_type=False)
        #: Whether the names are TensorFlow's, such as `default_policy/fc_1/kernel:0`.
        self.is_tensorflow = any("/" in name or re.search(r":\d+$", name) for name in self.by_name)
        self.used: set[str] = set()
        #: Name without the indices of slim layers → the name itself.
        self._full_names = {_without_slim_index(name): name for name in self.by_name}

    def find(self, name: str, model_weights: Mapping[str, Array]) -> Array | None:
        """Return RLlib's value for a model's weight, in the model's layout, or None.

        Args:
            name: The weight's name in rlcatalog.
            model_weights: All weights of the model.
        """
        if name in self.by_name:  # a custom model's own weight
            self.used.add(name)
            return self.by_name[name]
        if self.is_tensorflow:
            return self._find_in_tensorflow(name)
        for prefix, end in _possible_prefixes(name):
            if _MISSING_BIAS.fullmatch(end):
                return np.zeros_like(model_weights[name])
            value = self._find_in_torch(prefix, end, model_weights)
            if value is not None:
                return value
        return None

    def _take(self, *names: str) -> list[Array] | None:
        """Return the values for all these names, or None if any is missing."""
        if any(name not in self._full_names for name in names):
            return None
        full_names = [self._full_names[name] for name in names]
        self.used.update(full_names)
        return [self.by_name[name] for name in full_names]

    def _take_one(self, name: str) -> Array | None:
        """Return the value for a name, or None."""
        values = self._take(name)
        if values is None:
            return None
        return values[0]

    def _find_in_tensorflow(self, name: str) -> Array | None:
        """Return the value of the TensorFlow variable for a model's weight, or None."""
        for layer, variable in _tf_variables(name):
            for tf_name, array in self.by_name.items():
                if _is_tf_variable(tf_name, layer, variable):
                    self.used.add(tf_name)
                    return _from_tf_layout(array, variable)
        return None

    def _find_in_torch(
        self, prefix: str, end: str, model_weights: Mapping[str, Array]
    ) -> Array | None:
        """Return the value for a model's weight in RLlib's PyTorch nets, or None.

        Args:
            prefix: Beginning of the name in RLlib.
            end: The rest of the name in rlcatalog.
            model_weights: All weights of the model.
        """
        for pattern, rllib_ends in NAMES["torch"]["names"].items():
            match = re.fullmatch(pattern, end)
            if match is None:
                continue
            for rllib_end in rllib_ends:
                value = self._take_one(prefix + match.expand(rllib_end))
                if value is not None:
                    return value
        value_output = re.fullmatch(r"outputs\.value\.(\w+)", end)
        if value_output is not None:
            # A separate value net with convolutions has its output after them, in one list.
            num_convs = _count_value_convs(model_weights)
            if num_convs == 0:
                return None
            return self._take_one(f"{prefix}_value_branch_separate.{num_convs}.{value_output[1]}")
        if end == "cell.bias":  # RLlib has two biases, which are added
            biases = self._take(f"{prefix}lstm.bias_ih_l0", f"{prefix}lstm.bias_hh_l0")
            if biases is None:
                return None
            return biases[0] + biases[1]
        unit = re.fullmatch(r"transformer\.units\.(\d+)\.(.+)", end)
        if unit is not None:
            layers = f"{prefix}gtrxl.attention_layers."
            return self._find_in_unit(layers, int(unit[1]), unit[2])
        return None

    def _find_in_unit(self, layers: str, index: int, end: str) -> Array | None:
        """Return a value of one transformer unit, which consists of two layers in RLlib, or None.

        Args:
            layers: Name of the list of layers in RLlib.
            index: Index of the unit.
            end: The rest of the name in rlcatalog, after the unit's index.
        """
        attention = f"{layers}{2 * index}."
        mlp = f"{layers}{2 * index + 1}."
        module, _, rest = end.partition(".")
        if module == "attention":
            return self._find_in_attention(attention, rest)
        if module == "norm":
            return self._take_one(f"{mlp}_layer.0.{rest}")
        if module == "mlp":
            _, layer_index, kind = rest.split(".")  # such as `layers.0.weight`
            return self._take_one(f"{mlp}_layer.{int(layer_index) + 1}.{kind}")
        if module == "attention_gate":
            return self._find_in_gate(f"{attention}_fan_in_layer.", rest)
        return self._find_in_gate(f"{mlp}_fan_in_layer.", rest)

    def _find_in_attention(self, prefix: str, name: str) -> Array | None:
        """Return a value of a unit's attention, or None."""
        if name not in _PROJECTIONS:
            return self._take_one(f"{prefix}_layer.{NAMES['torch']['attention'][name]}")
        projections = self._take_one(f"{prefix}_layer._qkv_layer.weight")
        if projections is None:
            return None
        return np.split(projections, 3)[_PROJECTIONS.index(name)]

    def _find_in_gate(self, prefix: str, name: str) -> Array | None:
        """Return a value of a unit's gate, or None."""
        if name == "bias":
            return self._take_one(f"{prefix}_bias_z")
        matrices = self._take(*(prefix + matrix for matrix in NAMES["torch"]["gate"][name]))
        if matrices is None:
            return None
        # RLlib's matrices are transposed.
        return np.concatenate([matrix.T for matrix in matrices])


def _count_value_convs(model_weights: Mapping[str, Array]) -> int:
    """Return the number of convolutions in a separate value net."""
    pattern = re.compile(r"value_convs\.layers\.\d+\.weight")
    return sum(pattern.fullmatch(name) is not None for name in model_weights)


def _possible_prefixes(name: str) -> Iterator[tuple[str, str]]:
    """Yield the possible RLlib prefixes for a name, and the remaining name in
    rlcatalog's format.
    """
    words = name.split(".")
    for index in range(len(words)):
        # In RLlib, a memory and the net inside it are one model.
        prefix_words = [word for word in words[:index] if word != "trunk"]
        prefix = "".join(f"{word}." for word in prefix_words)
        end = ".".join(words[index:])
        net = re.fullmatch(r"(.*\.)?nets\.(\d+)\.", prefix)
        if net is None:
            yield prefix, end
            continue
        front = net[1] or ""
        for kind in ("cnns", "one_hot", "flatten"):
            yield f"{front}{kind}.{net[2]}.", end


def _without_slim_index(name: str) -> str:
    """Return an RLlib name without the indices of its slim layers, which padding shifts."""
    return re.sub(r"(?<![^.])_model\.\d+\.", "", name)


def _list_names(names: list[str]) -> str:
    """Return the first names, and how many more there are."""
    if not names:
        return "none"
    text = str(names[:_MOST_NAMES])
    if len(names) > _MOST_NAMES:
        text += f" and {len(names) - _MOST_NAMES} more"
    return text


def _weights_of_one_policy(weights: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the weights of the only policy.

    Raises:
        NotServedError: The weights belong to several policies, or are not a dictionary.
    """
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


def _check_config(model: ModelV2, config: Mapping[str, Any], rllib_weights: _RLlibWeights) -> None:
    """Raise an error if this config's net differs from RLlib's net with the same weights."""
    if any("mha_" in name for name in rllib_weights.by_name):
        raise NotServedError(
            "load_rllib_weights: RLlib's attention net in TensorFlow does not name its variables,"
            " and normalises with a different epsilon. Use the PyTorch net's weights."
        )
    names = list(model.get_weights())
    modules: set[str] = set()
    for name in names:
        modules.update(name.split(".")[:-1])
    # The nets inside a complex-input net are `nets.0` and so on; their layers do not count here.
    has_hidden_layers = any(
        re.search(r"(^|\.)hidden\.layers\.", name) and ".nets." not in f".{name}" for name in names
    )
    is_complex_input = "nets" in modules
    has_post_layers = bool(config.get("post_fcnet_hiddens"))
    if "convs" in modules and not is_complex_input and has_post_layers:
        raise ConfigError(
            "load_rllib_weights with post_fcnet_hiddens after convolutions: RLlib's nets omit the"
            " last activation there and read the value from the convolutions, so the same weights"
            " would behave differently."
        )
    has_both_layers = bool(config.get("fcnet_hiddens")) and has_post_layers
    if has_hidden_layers and not is_complex_input and has_both_layers:
        activation = activation_name(config.get("fcnet_activation"))
        post_activation = activation_name(config.get("post_fcnet_activation"))
        if activation != post_activation:
            raise ConfigError(
                "load_rllib_weights with post_fcnet_hiddens: RLlib's net uses"
                f" fcnet_activation={activation!r} in those layers too. Build the policy with"
                f" post_fcnet_activation={activation!r}."
            )
    if has_hidden_layers or is_complex_input or "convs" in modules:
        _refuse_scaling(model, config, has_convolutions="convs" in modules)


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


def _warn_of_empty_slots(config: Mapping[str, Any], rllib_weights: _RLlibWeights) -> None:
    """Warn that attention acts like RLlib's only once no unit depends on empty memory slots.

    Each unit sees recent outputs of the unit below, so every unit adds a delay of the memory's
    length.
    """
    units = sum(name.endswith("_layer._uvar") for name in rllib_weights.by_name)
    memory_length = {**MODEL_DEFAULTS, **config}["attention_memory_inference"]
    steps = units * memory_length
    if steps:
        warn_caller(
            "load_rllib_weights: RLlib's attention also attends to the empty slots of its memory,"
            f" but rlcatalog masks them. The outputs differ in the first {steps} steps of every"
            " episode (units of the transformer times attention_memory_inference) and are equal"
            " from then on. If these steps matter, evaluate the policy before you use it, or train"
            " it further.",
            CatalogWarning,
        )


# --- names of TensorFlow variables ----------------------------------------------------------------


class _TFVariable(NamedTuple):
    """Variable of RLlib's TensorFlow nets.

    Attributes:
        layer: Name of the layer; empty if the variable's name is enough.
        name: Name of the variable in the layer.
    """

    layer: str
    name: str


def _tf_variables(name: str) -> Iterator[_TFVariable]:
    """Yield the variables that may hold the value for an rlcatalog name."""
    if name.endswith("free_log_std.log_std"):
        yield _TFVariable("", "log_std")
    for end, variable in NAMES["tf"]["cell"].items():
        if f".{name}".endswith(f".{end}"):
            yield _TFVariable("lstm", variable)
    module, _, kind = name.rpartition(".")
    variable = NAMES["tf"]["variables"].get(kind)
    if variable is None:
        return
    for pattern, layers in NAMES["tf"]["layers"].items():
        match = re.fullmatch(pattern, module)
        if match is None:
            continue
        number = 0  # for patterns without a number, whose layers do not use it
        if match.groups():
            number = int(match[1]) + 1
        for layer in layers:
            yield _TFVariable(layer.format(number), variable)


def _is_tf_variable(path: str, layer: str, variable: str) -> bool:
    """Return whether a path is this variable's, in this layer if it is not empty."""
    *layers, last = path.split(":")[0].split("/")
    if last != variable:
        return False
    return not layer or layer in layers


def _from_tf_layout(array: Array, variable: str) -> Array:
    """Return a TensorFlow variable's value in PyTorch's layout, which rlcatalog also uses."""
    if not variable.endswith("kernel"):
        return array
    if array.ndim == 2:  # [in, out]
        return array.T
    return array.transpose(3, 2, 0, 1)  # [height, width, in, out]


def _match_by_path(
    model: Any, rllib_weights: _RLlibWeights, missing: list[str]
) -> dict[str, Array]:
    """Return the weights for a custom model's Keras layers, matched by variable path, under the
    missing names; record which of RLlib's weights were used.

    Args:
        model: The TensorFlow model.
        rllib_weights: RLlib's weights.
        missing: Names of the model's weights that no other rule found.
    """
    rllib_names = {_path_end(name): name for name in rllib_weights.by_name}
    names_by_variable = {}
    for name, variable in model.variables(as_dict=True).items():
        names_by_variable[id(variable)] = name
    axes_by_name = model.variable_axes()
    values = {}
    for variable in _keras_variables(vars(model), seen=set()):
        name = names_by_variable.get(id(variable.value))
        rllib_name = rllib_names.get(_path_end(variable.path))
        if name not in missing or rllib_name is None:
            continue
        array = rllib_weights.by_name[rllib_name]
        if array.shape != tuple(variable.shape):
            continue
        rllib_weights.used.add(rllib_name)
        axes = axes_by_name[name]
        if axes is not None:
            array = array.transpose(axes)
        values[name] = array
    return values


def _path_end(name: str) -> str:
    """Return the layer and the variable at the end of a path such as `net/fc_1/kernel:0`."""
    return "/".join(name.split(":")[0].split("/")[-2:])


def _keras_variables(attributes: Mapping[str, Any], seen: set[int]) -> list[Any]:
    """Return the variables of the Keras layers and models in these attributes, or in models among
    them.

    Args:
        attributes: Attributes of a model.
        seen: Identities of the objects that were read before; this function adds to them.
    """
    variables: list[Any] = []
    for value in attributes.values():
        if id(value) in seen:
            continue
        seen.add(id(value))
        # Keras' layers and models have both attributes.
        is_keras_layer = hasattr(value, "weights") and hasattr(value, "built")
        # Models of rlcatalog, of RLlib or of a user.
        is_model = hasattr(value, "get_initial_state") and hasattr(value, "__dict__")
        if is_keras_layer:
            variables += value.weights
        elif is_model:
            variables += _keras_variables(vars(value), seen)
    return variables
