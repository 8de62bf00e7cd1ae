"""Policies as functions from observations and noise to actions, for any framework."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from typing import Any

import numpy as np

from rlcatalog.choice import PartAddresses
from rlcatalog.errors import NotServedError
from rlcatalog.frameworks import Array, Tensor, TensorOps
from rlcatalog.internals import (
    encode_inputs,
    exported_dtype,
    lowered_actions,
    observation_inputs,
)
from rlcatalog_export.formats import ExportResult
from rlcatalog_export.interface import Interface, Port
from rlcatalog_export.noise import Noise
from rlcatalog_policy import (
    History,
    Policy,
    action_space_to_json,
    chosen_config,
    observation_space_to_json,
    plain_config,
)

#: Batch sizes that are tried before the export.
_TRIED = (2, 3)


class PolicyFunction:
    """Policy as a function of tensors; each framework's class samples from noise and records the
    function.

    Args:
        policy: A copy of the policy, which only this object uses.
        ops: The operations of the policy's framework.

    Attributes:
        policy: The policy.
        masked: Whether there is an input for action masks. There is one if the action space has
            values that can be forbidden, and the distribution supports masks.
        inputs: The inputs except the noise, whose width is unknown before the first sample.
        interface: Inputs and outputs.
        widths: How many random numbers each row needs in each draw.

    Raises:
        NotServedError: The policy uses something that cannot be exported.
    """

    noise_class: type[Noise]
    #: `drawing(noise)` is a context in which the framework draws from noise.
    drawing: Callable[[Any], AbstractContextManager[Any]]

    def __init__(self, policy: Policy, ops: TensorOps) -> None:
        self.policy = policy
        self._ops = ops
        self._filter = None
        if policy.filter is not None:
            self._filter = policy.filter.lowered()
        #: Whether the file takes filtered observations, because the filter has no tensor form.
        self._filters_outside = policy.filter is not None and self._filter is None
        self._leaves = list(observation_inputs(policy.preprocessor))
        self._actions = lowered_actions(policy.action_codec, ops)
        if self._actions is None and _reads_past_actions(policy):
            raise NotServedError(
                f"export: {policy.model_name} requests past actions, but the codec for the action"
                f" space {policy.action_space} has no tensor form. Set its attribute `lowered` to"
                " a class."
            )
        self.masked = policy.masks.size > 0
        try:
            self._try_batches()
        except NotServedError:
            is_mask_optional = self.masked and policy.masks.key is None
            if not is_mask_optional:
                raise
            # The observations hold no mask, so a file without this input is useful too.
            self.masked = False
            self._try_batches()

    # --- the function -----------------------------------------------------------------------------

    def run(self, given: Mapping[str, Any], noise: Any) -> dict[str, Any]:
        """Map a dict of inputs to a dict of outputs."""
        policy = self.policy
        ops = self._ops
        with self.drawing(noise):
            obs = self._encode(
                [given[port.name] for port in self.inputs if port.role == "observation"]
            )
            memory = tuple(given[f"memory_{i}"] for i in range(len(policy.memory.initial)))
            past = tuple(given[f"past_{i}"] for i in range(len(policy.memory.initial_past)))
            history = None
            views: dict[str, Any] = {}
            if policy.views:
                history = self._history(given)
                all_views = policy.views.see(history, obs, ops, self._actions)
                # Other views are needed in training only.
                views = {name: all_views[name] for name in policy.views.acting_names}
            inputs, states = policy.backend.inputs_of(obs, views, memory)
            explore = ~given["deterministic"]
            sample, logp, value, dist_inputs, new_states = policy.backend.step(
                inputs, states, given.get("mask"), explore
            )
            raw = ops.flat(sample)
            outputs = self._adapt(raw)
            stored_states = tuple(self._as_stored(part) for part in new_states)
            memory, past = policy.memory.after(memory, stored_states, past, ops)
            for i, part in enumerate(memory):
                outputs[f"memory_{i}_next"] = part
            for i, part in enumerate(past):
                outputs[f"past_{i}_next"] = part
            if history is not None:
                outputs |= self._next_history(history, obs, raw)
        outputs |= {"raw_action": raw, "logp": logp, "dist_inputs": dist_inputs}
        if value is not None:
            outputs["value"] = value
        return outputs

    def _adapt(self, raw: Tensor) -> dict[str, Tensor]:
        """Return the environment's actions by output name; empty if they have no tensor form."""
        if self._actions is None:
            return {}
        leaves = list(self._actions.adapt(raw))
        names = _names_of([codec.info.path for codec, _ in leaves], root="action")
        return {name: action for name, (_, action) in zip(names, leaves, strict=True)}

    def _as_stored(self, state: Tensor) -> Tensor:
        """Return a model's state in the dtype in which the file returns it."""
        if not self._ops.is_half(state):
            return state
        stored: Tensor = self._ops.as_type(state, "float32")
        return stored

    def _next_history(self, history: History, obs: Tensor, raw: Tensor) -> dict[str, Tensor]:
        """Return what the next step needs of the past, by output name."""
        after = self.policy.views.after(history, obs, raw, self._ops, self._actions)
        outputs: dict[str, Any] = {}
        for column, (_, _, dtype) in self.policy.views.windows.items():
            window = after.windows[column]
            outputs[f"window_{column}_next"] = self._ops.as_type(window, np.dtype(dtype).name)
        outputs["steps_next"] = after.t
        return outputs

    def _encode(self, values: list[Any]) -> Any:
        """Return encoded and filtered observations from the observation inputs."""
        if self._filters_outside:
            return values[0]
        encoded = encode_inputs(self._leaves, values, self.policy.preprocessor, self._ops)
        if self._filter is None:
            return encoded
        return self._filter(encoded, self._ops)

    def _history(self, given: Mapping[str, Any]) -> History:
        """Return the stored data from past steps, including the last reward."""
        ops = self._ops
        views = self.policy.views
        t = given["steps"]
        windows = {column: given[f"window_{column}"] for column in views.windows}
        if views.reads_rewards:
            # The first step of an episode has no past reward.
            reward = given["prev_reward"] * ops.as_type(t > 0, "float32")
            # The newest reward is appended, and the oldest one is dropped.
            windows["rewards"] = ops.concat([windows["rewards"][:, 1:], reward[:, None]], axis=1)
        return History(windows, t)

    def drawing_given(self, numbers: Array) -> AbstractContextManager[Any]:
        """Return a context in which the policy samples from given numbers `[B, k]`,
        as a file does.
        """
        raise NotImplementedError

    def written(self) -> ExportResult:
        """Return the results that are expected from a written file."""
        return ExportResult(self.interface, self.policy, self.drawing_given)

    # --- its description --------------------------------------------------------------------------

    def example(self, port: Port, rows: int, rng: np.random.Generator) -> Array:
        """Return an array for an input, filled with zeros or with numbers from the open interval
        (0, 1).
        """
        if port.role == "deterministic":
            return np.array(False)
        shape = (rows, *port.shape)
        dtype = np.dtype(port.dtype)
        mask_path = self.policy.masks.key_path
        is_in_mask = bool(mask_path) and port.steps[: len(mask_path)] == mask_path
        if port.role == "mask" or is_in_mask:
            return np.ones(shape, dtype)  # everything is allowed
        if port.role == "noise" or dtype.kind == "f":
            return (0.25 + 0.5 * rng.random(shape)).astype(dtype)
        return np.zeros(shape, dtype)

    def _try_batches(self) -> None:
        """Run the policy on two batches to fill its caches, and derive the interface."""
        self.inputs = tuple(self._inputs())
        outputs: dict[str, Array] = {}
        widths: list[list[int]] = []
        rng = np.random.default_rng(0)
        for rows in _TRIED:
            noise = self.noise_class(rows)
            given = {}
            for port in self.inputs:
                given[port.name] = self._ops.tensor(self.example(port, rows, rng))
            tensors = self.run(given, noise)
            outputs = {name: self._ops.array(tensor) for name, tensor in tensors.items()}
            widths.append(noise.widths)
            for name, array in outputs.items():
                if array.shape[:1] != (rows,):
                    raise NotServedError(
                        f"export: {name!r} has the shape {array.shape} for {rows} rows."
                    )
        if widths[0] != widths[1]:
            raise NotServedError(
                "export: the number of random numbers per row must not depend on the batch size;"
                f" found {sum(widths[0])} for {_TRIED[0]} rows and {sum(widths[1])} for"
                f" {_TRIED[1]}."
            )
        self.widths = widths[0]
        forms = {name: (array.dtype.name, array.shape[1:]) for name, array in outputs.items()}
        self.interface = self._interface(forms, sum(widths[0]))

    def _inputs(self) -> Iterable[Port]:
        """Yield the file's inputs."""
        policy = self.policy
        yield from self._observations()
        if self.masked:
            yield Port(name="mask", role="mask", dtype="bool", shape=(policy.masks.size,))
        for i, part in enumerate(policy.memory.initial):
            yield _state_port(f"memory_{i}", part)
        for i, part in enumerate(policy.memory.initial_past):
            yield _state_port(f"past_{i}", part)
        if policy.views:
            # The second argument is the value at the start of an episode.
            for column, (depth, shape, dtype) in policy.views.windows.items():
                yield _state_port(f"window_{column}", np.zeros((depth, *shape), dtype))
            yield _state_port("steps", np.zeros((), np.int64))
            if policy.views.reads_rewards:
                yield Port(name="prev_reward", role="prev_reward", dtype="float32")
        yield Port(name="deterministic", role="deterministic", dtype="bool")

    def _observations(self) -> Iterable[Port]:
        """Yield the inputs that take observations: one for each leaf, or the filtered vector."""
        root = self.policy.preprocessor
        if self._filters_outside:
            space = self.policy.encoded_space
            yield Port(
                name="obs",
                role="observation",
                dtype=str(space.dtype),
                shape=root.shape,
                encoded=True,
            )
            return
        names = _names_of([leaf.codec.info.path for leaf in self._leaves], root="obs")
        for name, leaf in zip(names, self._leaves, strict=True):
            info = leaf.codec.info
            is_encoded = leaf.lowered is None
            if is_encoded:
                dtype = "float32"
                shape: tuple[int, ...] = (leaf.codec.size,)
            else:
                dtype = exported_dtype(info.dtype or "float32")
                shape = info.shape or ()
            yield Port(
                name=name,
                role="observation",
                dtype=dtype,
                shape=shape,
                path=info.path,
                steps=leaf.steps,
                encoded=is_encoded,
            )

    def _interface(self, outputs: Mapping[str, Any], noise_width: int) -> Interface:
        """Return the interface.

        Args:
            outputs: For each output, in order, the dtype and the shape of one row, taken from a
                run.
            noise_width: Random numbers per row.
        """
        policy = self.policy
        resolution = policy.resolution
        inputs = list(self.inputs)
        if noise_width:
            noise = Port(name="noise", role="noise", dtype="float32", shape=(noise_width,))
            inputs.insert(-1, noise)  # "deterministic" stays the last input
        # The file keeps which parts were chosen, and the config keys that its codecs read.
        addresses: dict[str, Any] = PartAddresses.of(resolution).as_dict()
        codec_keys: set[str] = set()
        for _, part in policy.preprocessor.parts():
            codec_keys.update(policy.catalog.config_keys(part))
        config = plain_config(chosen_config(resolution))
        return Interface(
            inputs=tuple(inputs),
            outputs=tuple(self._output(name, *form) for name, form in outputs.items()),
            observation="filtered" if self._filters_outside else "leaves",
            framework=self._ops.framework,
            model=policy.model_name,
            observation_space=observation_space_to_json(policy),
            action_space=action_space_to_json(policy),
            mask_key=policy.masks.key,
            mask_apart=policy.encoder.removes_mask,
            mask_columns=policy.masks.choices if self.masked else (),
            raw_kinds=resolution.dists.raw_kinds(policy.framework),
            action_bounds=policy.config["action_bounds"],
            encoding={key: value for key, value in config.items() if key in codec_keys},
            config=config,
            **addresses,
        )

    def _output(self, name: str, dtype: str, shape: tuple[int, ...]) -> Port:
        """Return the port of an output, whose role follows from its name."""
        if name.endswith("_next"):
            return Port(
                name=name,
                role="state",
                dtype=dtype,
                shape=shape,
                follows=name.removesuffix("_next"),
            )
        if name in ("raw_action", "logp", "value", "dist_inputs"):
            return Port(name=name, role=name, dtype=dtype, shape=shape)
        # All other outputs are the environment's actions, named after their paths.
        paths = [leaf.info.path for leaf in self.policy.action_codec.leaves]
        path_of = dict(zip(_names_of(paths, root="action"), paths, strict=True))
        return Port(name=name, role="action", dtype=dtype, shape=shape, path=path_of[name])


def _reads_past_actions(policy: Policy) -> bool:
    """Return whether the policy's model requests actions of past steps."""
    if not policy.views:
        return False
    return not {"actions", "action_inputs"}.isdisjoint(policy.views.windows)


def _state_port(name: str, initial: Array) -> Port:
    """Return the input for a part of the state, with its values at the start of an episode."""
    values: tuple[float, ...] = ()  # zeros
    if initial.any():
        values = tuple(float(value) for value in initial.ravel())
    return Port(
        name=name, role="state", dtype=initial.dtype.name, shape=initial.shape, initial=values
    )


def _names_of(paths: list[str], *, root: str) -> list[str]:
    """Return names of letters, digits and `_` for paths below a root: `obs['camera'][0]` becomes
    `obs_camera_0`.
    """
    names: list[str] = []
    for path in paths:
        steps = re.findall(r"[A-Za-z0-9_]+", path.removeprefix(root))
        base = "_".join([root, *steps])
        name = base
        count = 1
        while name in names:
            count += 1
            name = f"{base}_{count}"
        names.append(name)
    return names
