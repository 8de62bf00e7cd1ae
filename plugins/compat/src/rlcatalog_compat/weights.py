"""Weights that RLlib has trained: read into a policy or model of the same structure.

A name here is looked up among the names RLlib's net of the same structure has: `hidden.layers.0.weight` is
`_hidden_layers.0._model.0.weight` in its PyTorch nets and `fc_1/kernel` in its TensorFlow nets. What a custom model
calls its own has one name on both sides.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from rlcatalog import MODEL_DEFAULTS, ModelV2
from rlcatalog.config import activation_name
from rlcatalog.errors import CatalogWarning, ConfigError, ModelContractError, NotServedError
from rlcatalog.reporting import warn_caller
from rlcatalog_compat.spaces import flatten_space, get_original_space
from rlcatalog_compat.tf_weights import NAMES, assign_by_path, is_tensorflow, tf_source

Array = np.ndarray[Any, Any]

#: How many names an error lists of each kind.
_MOST_NAMES = 30

#: The parts of a transformer's attention whose weights are one there.
_PROJECTIONS = ("query", "key", "value")


def load_rllib_weights(policy: Any, weights: Mapping[str, Any]) -> None:
    """Set a policy's weights to those that RLlib's policy of the same config has.

    Read are the nets of RLlib's classic stack: fully connected, vision and complex-input nets, the LSTM and attention
    around them, and custom models, whose own weights have the names they had there. The weights are set when all of
    them fit, or none. Attention warns that it differs from RLlib's while its memory fills.

    Args:
        policy: A `Policy`, or a model, of either framework, made with RLlib's model config.
        weights: `Policy.get_weights()`, name → array; a state dict of its PyTorch model; or, of one policy,
            `Algorithm.get_weights()`. Files are not read.

    Raises:
        ModelContractError: Names are left over on one side, or shapes differ; the message lists both.
        ConfigError: The config says something else than RLlib's nets do.
        NotServedError: They are the weights of several policies, a list, or of an attention net in TensorFlow.
    """
    model = policy if isinstance(policy, ModelV2) else policy.model
    given = _Given(_arrays(_of_one_policy(weights)))
    config = getattr(policy, "config", model.model_config)
    _check_config(model, config, given)
    have = model.get_weights()
    found, missing, wrong = {}, [], []
    for name, array in have.items():
        if (value := given.source(name, have)) is None:
            missing.append(name)
            continue
        if value.ndim == array.ndim + 2 and value.shape[-2:] == (1, 1):  # a convolution of one pixel
            value = value[..., 0, 0]
        if value.shape != array.shape:
            wrong.append(f"{name} {array.shape}, given {value.shape}")
        found[name] = value
    if missing and not wrong and given.tensorflow and (rest := assign_by_path(model, given.by_name, missing)):
        missing, found = [name for name in missing if name not in rest], {**found, **rest}
        given.used.update(given.by_name)
    memory = any(re.search(r"(^|\.)(cell|transformer)\.", name) for name in have)
    unused = [name for name in given.unused() if not _idle(_slim(name), memory)]
    if missing or unused or wrong:
        raise ModelContractError(
            f"{type(model).__name__}: these weights belong to another model. Without a source here: {_some(missing)};"
            f" given and not used: {_some(unused)}; of another shape: {_some(wrong)}. Build the policy with the model"
            " config that RLlib had."
        )
    model.set_weights(found)
    _warn_of_empty_slots(config, given)


class _Given:
    """The weights that were given, and which of them have been used.

    Args:
        by_name: Name → array, as RLlib has them.
    """

    def __init__(self, by_name: Mapping[str, Array]) -> None:
        self.by_name = dict(by_name)
        self.tensorflow = is_tensorflow(self.by_name)
        self.used: set[str] = set()
        self._slim = {_slim(name): name for name in self.by_name}

    def take(self, *names: str) -> list[Array] | None:
        """Return what stands under all of these names, or None."""
        if any(name not in self._slim for name in names):
            return None
        self.used.update(self._slim[name] for name in names)
        return [self.by_name[self._slim[name]] for name in names]

    def unused(self) -> list[str]:
        """Return the names that nobody took."""
        return [name for name in self.by_name if name not in self.used]

    def source(self, name: str, have: Mapping[str, Array]) -> Array | None:
        """Return what belongs under a name of ours, or None."""
        if name in self.by_name:
            self.used.add(name)
            return self.by_name[name]
        if self.tensorflow:
            taken = tf_source(name, self.by_name)
            self.used.update(() if taken is None else taken[:1])
            return None if taken is None else taken[1]
        for prefix, end in _ways(name):
            value = self._torch(prefix, end, have)
            if value is not None:
                return value
        return None

    def _torch(self, prefix: str, end: str, have: Mapping[str, Array]) -> Array | None:
        for pattern, forms in NAMES["torch"]["names"].items():
            if (match := re.fullmatch(pattern, end)) is not None:
                for form in forms:
                    if found := self.take(prefix + match.expand(form)):
                        return found[0]
        if match := re.fullmatch(r"outputs\.value\.(\w+)", end):  # behind the convolutions of a value of its own
            last = sum(bool(re.fullmatch(r"value_convs\.layers\.\d+\.weight", name)) for name in have)
            found = self.take(f"{prefix}_value_branch_separate.{last}.{match[1]}")
            return found[0] if found and last else None
        if end == "cell.bias":  # theirs are two that are added
            found = self.take(f"{prefix}lstm.bias_ih_l0", f"{prefix}lstm.bias_hh_l0")
            return found[0] + found[1] if found else None
        if match := re.fullmatch(r"transformer\.units\.(\d+)\.(.+)", end):
            return self._unit(f"{prefix}gtrxl.attention_layers.", int(match[1]), match[2], have)
        return None

    def _unit(self, prefix: str, index: int, end: str, have: Mapping[str, Array]) -> Array | None:
        """Return what belongs into a unit of the transformer, which is two layers there."""
        attention, mlp = f"{prefix}{2 * index}.", f"{prefix}{2 * index + 1}."
        part, _, rest = end.partition(".")
        if part == "attention" and rest in _PROJECTIONS:
            found = self.take(f"{attention}_layer._qkv_layer.weight")
            return np.split(found[0], 3)[_PROJECTIONS.index(rest)] if found else None
        if part == "attention":
            found = self.take(f"{attention}_layer.{NAMES['torch']['attention'][rest]}")
        elif part in ("attention_gate", "mlp_gate"):
            layer = attention if part == "attention_gate" else mlp
            if rest == "bias":
                found = self.take(f"{layer}_fan_in_layer._bias_z")
            else:  # theirs stand in front of what they multiply
                found = self.take(*(f"{layer}_fan_in_layer.{name}" for name in NAMES["torch"]["gate"][rest]))
                return np.concatenate([matrix.T for matrix in found]) if found else None
        elif part == "norm":
            found = self.take(f"{mlp}_layer.0.{rest}")
        else:
            _, place, kind = rest.split(".")  # mlp.layers.0.weight
            if kind == "bias":  # they have none
                name = next(name for name in have if name.endswith(f"transformer.units.{index}.{end}"))
                return np.zeros_like(have[name])
            found = self.take(f"{mlp}_layer.{int(place) + 1}.{kind}")
        return found[0] if found else None


def _ways(name: str) -> Iterator[tuple[str, str]]:
    """Yield what may stand in front of the end of a name, in RLlib's form, and that end in ours."""
    parts = name.split(".")
    for cut in range(len(parts)):
        end = ".".join(parts[cut:])
        # A memory there is the net it is wrapped around, too.
        prefix = ".".join(part for part in parts[:cut] if part != "trunk")
        prefix = f"{prefix}." if prefix else ""
        if match := re.fullmatch(r"(.*\.)?nets\.(\d+)\.", prefix):
            yield from ((f"{match[1] or ''}{kind}.{match[2]}.", end) for kind in ("cnns", "one_hot", "flatten"))
        else:
            yield prefix, end


def _slim(name: str) -> str:
    """Return a name of RLlib's without the numbers of layers inside its slim layers, which padding shifts."""
    return re.sub(r"(?<![^.])_model\.\d+\.", "", name)


def _idle(name: str, memory: bool) -> bool:
    patterns = NAMES["idle"]["anywhere"] + (NAMES["idle"]["in_memory"] if memory else [])
    return any(re.fullmatch(pattern, name) for pattern in patterns)


def _some(names: list[str]) -> str:
    more = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
    return f"{names[:_MOST_NAMES]}{more}" if names else "none"


def _of_one_policy(weights: Any) -> Mapping[str, Any]:
    if not isinstance(weights, Mapping):
        raise NotServedError(
            f"load_rllib_weights: expected a dictionary, found {type(weights).__name__}. Files are not read. For an"
            " eager TensorFlow policy, whose weights are a list: {v.name: v.numpy() for v in policy.model.variables()}."
        )
    if weights and all(isinstance(value, Mapping) for value in weights.values()):
        if len(weights) > 1:
            raise NotServedError(
                f"load_rllib_weights: these are the weights of the policies {sorted(weights)}; give those of one."
            )
        return dict(*weights.values())
    return weights


def _arrays(weights: Mapping[str, Any]) -> dict[str, Array]:
    """Return name → array; tensors of either framework are read."""
    found = {}
    for name, value in weights.items():
        for method in ("detach", "cpu", "numpy"):
            value = getattr(value, method, lambda value=value: value)()
        found[str(name)] = np.asarray(value)
    return found


def _check_config(model: ModelV2, config: Mapping[str, Any], given: _Given) -> None:
    """Raise where the net of this config computes something else than RLlib's does with the same weights."""
    names = list(model.get_weights())
    has: Callable[[str], bool] = lambda part: any(re.search(rf"(^|\.){part}\.", name) for name in names)  # noqa: E731
    own_hidden = any(re.search(r"(^|\.)hidden\.layers\.", name) and ".nets." not in f".{name}" for name in names)
    if any("mha_" in name for name in given.by_name):
        raise NotServedError(
            "load_rllib_weights: RLlib's attention net in TensorFlow gives its variables no names, and normalises with"
            " another epsilon. Read the weights of the PyTorch net."
        )
    post = config.get("post_fcnet_hiddens") or []
    if has("convs") and not has("nets") and post:
        raise ConfigError(
            "load_rllib_weights with post_fcnet_hiddens behind convolutions: RLlib's nets leave out the last activation"
            " there and read the value off the convolutions. Such weights cannot be made to act alike."
        )
    if own_hidden and not has("nets") and post and config.get("fcnet_hiddens"):
        first, last = (activation_name(config.get(f"{key}_activation", None)) for key in ("fcnet", "post_fcnet"))
        if first != last:
            raise ConfigError(
                f"load_rllib_weights with post_fcnet_hiddens: RLlib's net uses fcnet_activation={first!r} in those"
                f" layers too. Build the policy with post_fcnet_activation={first!r}."
            )
    leaves = flatten_space(get_original_space(model.obs_space))
    images = any(len(leaf.shape or ()) == 3 and leaf.dtype == np.uint8 for leaf in leaves)
    if has("convs") and config.get("image_scale") is None and images:
        raise ConfigError(
            "load_rllib_weights: RLlib's nets see pixels as they are, and this one divides those of uint8 by 255. Build"
            " the policy with image_scale=False."
        )


def _warn_of_empty_slots(config: Mapping[str, Any], given: _Given) -> None:
    """Warn that attention acts as RLlib's only once no unit depends on a memory with empty slots.

    A unit sees the outputs of the unit below in the last steps, so each unit is late by the length of the memory.
    """
    units = sum(name.endswith("_layer._uvar") for name in given.by_name)
    if steps := units * {**MODEL_DEFAULTS, **config}["attention_memory_inference"]:
        warn_caller(
            "load_rllib_weights: RLlib's attention also attends to the empty slots of its memory, and rlcatalog masks"
            f" them. The outputs differ from RLlib's in the first {steps} steps of every episode (units of the"
            " transformer times attention_memory_inference) and are equal from then on. If these steps matter, evaluate"
            " the policy before you use it, or train it further.",
            CatalogWarning,
        )
