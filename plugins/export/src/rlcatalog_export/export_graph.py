"""The whole way of an exported policy, but for model and distribution: what any framework's graph has around them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from rlcatalog.choice import Pins
from rlcatalog.errors import NotServedError
from rlcatalog.frameworks import TensorOps
from rlcatalog.internals import exported_dtype
from rlcatalog_export.codecs import encode_inputs, lowered_actions, observation_inputs
from rlcatalog_export.interface import Interface, Port
from rlcatalog_policy import History, plain_config, space_to_json

if TYPE_CHECKING:
    from rlcatalog_policy import Policy


class ModelInputs(NamedTuple):
    """What model and distribution are given.

    Attributes:
        obs: The encoded and filtered observations `[B, ...]`.
        views: The views of past steps by name.
        memory: The model's memory.
        mask: The action mask `[B, m]`, or None.
        history: The history, to be handed to `ExportGraph.after`.
        past: What is kept beside the memory, too.
    """

    obs: Any
    views: Mapping[str, Any]
    memory: tuple[Any, ...]
    mask: Any
    history: History | None
    past: tuple[Any, ...]


class ExportGraph:
    """The way of a policy's observations and actions as tensor operations, and the ports at its ends.

    Args:
        policy: The policy.
        ops: The operations of the framework the graph is made in.
        masked: Whether the distribution takes action masks, where the action space has values to forbid.

    Attributes:
        masked: Whether there is an input for action masks.
        inputs: The inputs, but for the noise, whose width is not known before something was drawn.
    """

    def __init__(self, policy: Policy, ops: TensorOps, *, masked: bool = True) -> None:
        self.policy, self.ops = policy, ops
        self.masked = masked and policy.masks.size > 0
        self._filter = None if policy.filter is None else policy.filter.lowered()
        self._filtered_outside = policy.filter is not None and self._filter is None
        self._parts = list(observation_inputs(policy.preprocessor))
        self._actions = lowered_actions(policy.action_codec, ops)
        if self._actions is None and policy.views and {"actions", "action_inputs"} & set(policy.views.windows):
            raise NotServedError(
                f"export: {policy.model_name} asks to see past actions, and the codec of the action space"
                f" {policy.action_space} says nothing of tensor operations: it must name a class `lowered`."
            )
        self.inputs = tuple(self._inputs())

    # --- the graph -------------------------------------------------------------------------------------------------

    def before(self, given: Mapping[str, Any]) -> ModelInputs:
        """Return what model and distribution are given, from the inputs by name."""
        values = [given[port.name] for port in self.inputs if port.role == "observation"]
        ops, policy = self.ops, self.policy
        if self._filtered_outside:
            encoded = values[0]
        else:
            encoded = encode_inputs(self._parts, values, policy.preprocessor, ops)
            encoded = encoded if self._filter is None else self._filter(encoded, ops)
        memory = tuple(given[f"memory_{i}"] for i in range(len(policy.memory.initial)))
        past = tuple(given[f"past_{i}"] for i in range(len(policy.memory.before)))
        views, history = {}, None
        if policy.views:
            t = given["steps"]
            windows = {column: given[f"window_{column}"] for column in policy.views.windows}
            if policy.views.reads_rewards:
                reward = given["prev_reward"] * ops.as_type(t > 0, "float32")
                windows["rewards"] = ops.concat([windows["rewards"][:, 1:], reward[:, None]], 1)
            history = History(windows, t)
            views = policy.views.see(history, encoded, ops, self._actions)
            views = {name: views[name] for name in policy.views.acting}
        return ModelInputs(encoded, views, memory, given.get("mask"), history, past)

    def after(self, seen: ModelInputs, raw: Any, returned: Iterable[Any]) -> dict[str, Any]:
        """Return actions and state of the next step, by the names of their outputs.

        Args:
            seen: What `before` returned.
            raw: Raw actions `[B, width]`.
            returned: The memory that the model returned.
        """
        policy = self.policy
        outputs: dict[str, Any] = {}
        if self._actions is not None:
            adapted = list(self._actions.adapt(raw))
            names = _named([codec.info.path for codec, _ in adapted], "action")
            outputs |= {name: action for name, (_, action) in zip(names, adapted, strict=True)}
        memory, past = policy.memory.after(seen.memory, tuple(returned), seen.past, self.ops)
        outputs |= {f"memory_{i}_next": part for i, part in enumerate(memory)}
        outputs |= {f"past_{i}_next": part for i, part in enumerate(past)}
        if seen.history is not None:
            history = policy.views.after(seen.history, seen.obs, raw, self.ops, self._actions)
            for column, (_, _, dtype) in policy.views.windows.items():
                outputs[f"window_{column}_next"] = self.ops.as_type(history.windows[column], np.dtype(dtype).name)
            outputs["steps_next"] = history.t
        return outputs

    # --- the ports -------------------------------------------------------------------------------------------------

    def _inputs(self) -> Iterable[Port]:
        policy = self.policy
        yield from self._observations()
        if self.masked:
            yield Port(name="mask", role="mask", dtype="bool", shape=(policy.masks.size,))
        for name, parts in (("memory", policy.memory.initial), ("past", policy.memory.before)):
            yield from (_state(f"{name}_{i}", part) for i, part in enumerate(parts))
        if policy.views:
            for column, (depth, shape, dtype) in policy.views.windows.items():
                yield _state(f"window_{column}", np.zeros((depth, *shape), dtype))
            yield _state("steps", np.zeros((), np.int64))
            if policy.views.reads_rewards:
                yield Port(name="prev_reward", role="prev_reward", dtype="float32")
        yield Port(name="deterministic", role="deterministic", dtype="bool")

    def _observations(self) -> Iterable[Port]:
        root = self.policy.preprocessor
        if self._filtered_outside:
            space = self.policy.encoded_space
            yield Port(name="obs", role="observation", dtype=str(space.dtype), shape=root.shape, encoded=True)
            return
        names = _named([part.codec.info.path for part in self._parts], "obs")
        for name, part in zip(names, self._parts, strict=True):
            codec, info = part.codec, part.codec.info
            shape = (codec.size,) if part.encoded else info.shape or ()
            dtype = "float32" if part.encoded else exported_dtype(info.dtype or "float32")
            yield Port(name=name, role="observation", dtype=dtype, shape=shape, path=info.path, steps=part.steps,
                       encoded=part.encoded)  # fmt: skip

    def interface(self, outputs: Mapping[str, Any], noise: int, framework: str) -> Interface:
        """Return the interface.

        Args:
            outputs: Output name → dtype and shape of one row, as a run gave them, in the order of the outputs.
            noise: How many random numbers a row takes.
            framework: The framework of the policy that the file stands for.
        """
        policy, resolution = self.policy, self.policy.resolution
        inputs = list(self.inputs)
        if noise:
            inputs.insert(-1, Port(name="noise", role="noise", dtype="float32", shape=(noise,)))
        pins: dict[str, Any] = Pins.of(resolution).as_dict()
        read = {key for _, part in policy.preprocessor.components() for key in policy.catalog.config_keys(part)}
        config = plain_config(resolution.config.given | resolution.pinned_keys())
        return Interface(
            inputs=tuple(inputs),
            outputs=tuple(self._output(name, *form) for name, form in outputs.items()),
            observation="filtered" if self._filtered_outside else "leaves",
            framework=framework,
            model=policy.model_name,
            observation_space=space_to_json(policy.observation_space),
            action_space=space_to_json(policy.action_space),
            mask_key=policy.masks.key,
            mask_apart=policy.encoder.mask_apart,
            mask_columns=policy.masks.choices if self.masked else (),
            raw_kinds=resolution.dists.raw_kinds(policy.framework),
            action_bounds=policy.config["action_bounds"],
            encoding={key: value for key, value in config.items() if key in read},
            config=config,
            **pins,
        )

    def _output(self, name: str, dtype: str, shape: tuple[int, ...]) -> Port:
        if name.endswith("_next"):
            return Port(name=name, role="state", dtype=dtype, shape=shape, follows=name.removesuffix("_next"))
        if name in ("raw_action", "logp", "value", "dist_inputs"):
            return Port(name=name, role=name, dtype=dtype, shape=shape)
        paths = [leaf.info.path for leaf in self.policy.action_codec.leaves]
        path = dict(zip(_named(paths, "action"), paths, strict=True))[name]
        return Port(name=name, role="action", dtype=dtype, shape=shape, path=path)


def _state(name: str, initial: np.ndarray[Any, Any]) -> Port:
    values = tuple(float(value) for value in initial.ravel()) if initial.any() else ()
    return Port(name=name, role="state", dtype=initial.dtype.name, shape=initial.shape, initial=values)


def _named(paths: list[str], root: str) -> list[str]:
    """Return names of letters, digits and `_` for paths below a root: `obs['camera'][0]` becomes `obs_camera_0`."""
    names: list[str] = []
    for path in paths:
        steps = re.findall(r"[A-Za-z0-9_]+", path.removeprefix(root))
        name = plain = "_".join([root, *steps])
        count = 1
        while name in names:
            count += 1
            name = f"{plain}_{count}"
        names.append(name)
    return names
