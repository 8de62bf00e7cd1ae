"""What TensorFlow does for a `Policy`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from rlcatalog.distribution import entropy_of
from rlcatalog.errors import ModelContractError
from rlcatalog.policy import Evaluation, Policy
from rlcatalog.structures import parts_of
from rlcatalog.tf.ops import flatten_rows

Array = np.ndarray[Any, Any]


class TFEngine:
    """Runs a policy's model and distribution in TensorFlow; acting is traced once per signature.

    Args:
        policy: The policy.
    """

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self.device = "/cpu:0"
        self._attach(policy.model)

    def _attach(self, model: Any) -> None:
        self.model: Any = model
        self.dist_class: Any = self.policy.dist_class
        self.scalar, self.width = self.policy.adapter.scalar, self.policy.adapter.width
        self.has_value = self.policy.has_value
        self.initial = [np.asarray(part) for part in model.get_initial_state()]
        dtype = np.dtype(self.policy.encoded_space.dtype)
        self.dtype = np.dtype(np.float32) if dtype == np.float64 else dtype
        self._signature = tf.TensorSpec([None, *self.policy.preprocessor.shape], self.dtype)
        self._traced: dict[tuple[bool, bool], Any] = {}
        if _unbuilt(model):
            self._forward(
                tf.zeros([1, *self.policy.preprocessor.shape], self.dtype), self._states(None, 1), None, False
            )

    def act(self, obs: Array, state: Any, mask: Array | None, explore: bool) -> tuple[Any, ...]:
        """Return raw actions, logp, value or None, inputs and new state, as NumPy arrays."""
        act = self._traced.get((explore, mask is not None)) or self._trace(explore, mask is not None)
        if obs.dtype != self.dtype:
            obs = obs.astype(self.dtype)
        arguments = [tf.constant(obs), *self._states(state, len(obs))]
        if mask is not None:
            arguments.append(tf.constant(mask))
        raw, logp, value, inputs, *new_state = act(*arguments)
        return (
            raw.numpy(),
            logp.numpy(),
            value.numpy() if self.has_value else None,
            inputs.numpy(),
            [part.numpy() for part in new_state] if self.initial else None,
        )

    def _trace(self, explore: bool, masked: bool) -> Any:
        """Trace one variant of acting: its arguments are obs, the state tensors and, if masked, the mask."""
        states = [tf.TensorSpec([None, *part.shape], part.dtype) for part in self.initial]
        signature = [self._signature, *states]
        if masked:
            signature.append(tf.TensorSpec([None, self.policy.masks.size], tf.bool))

        def act(obs: Any, *rest: Any) -> tuple[Any, ...]:
            with tf.device(self.device):
                return self._forward(obs, list(rest[: len(states)]), rest[-1] if masked else None, explore)

        traced = tf.function(act, input_signature=signature, autograph=False).get_concrete_function()
        self._traced[explore, masked] = traced
        return traced

    def _forward(self, obs: Any, states: list[Any], mask: Any, explore: bool) -> tuple[Any, ...]:
        seq_lens = tf.ones([tf.shape(obs)[0]], tf.int32) if self.initial else None
        inputs, new_state = self.model({"obs": obs, "is_training": False}, states, seq_lens)
        if mask is not None:
            inputs = self.dist_class.masked(inputs, mask)
        dist = self.dist_class(inputs, self.model)
        sample = dist.sample() if explore else dist.deterministic_sample()
        raw, logp = self._score(dist, sample)
        value = self.model.value_function() if self.has_value else tf.constant(0.0)
        return raw, logp, value, inputs, *(new_state if self.initial else ())

    def evaluate(self, batch: Mapping[str, Any]) -> Evaluation:
        """Score stored actions; see `Policy.evaluate`."""
        with tf.device(self.device):
            obs = self.tensor(batch["obs"])
            states, seq_lens = [], None
            if self.initial:
                given = batch.get("seq_lens")
                seq_lens = tf.ones([tf.shape(obs)[0]], tf.int32) if given is None else self.tensor(given)
                state = batch.get("state")
                states = self._states(None, int(seq_lens.shape[0])) if state is None else list(map(self.tensor, state))
            inputs, _ = self.model({"obs": obs, "is_training": True}, states, seq_lens)
            if batch.get("mask") is not None:
                inputs = self.dist_class.masked(inputs, tf.cast(self.tensor(batch["mask"]), tf.bool))
            dist = self.dist_class(inputs, self.model)
            raw = self.tensor(batch["raw_action"])
            logp = dist.logp(raw[:, 0] if self.scalar and raw.shape.rank == 2 else raw)
            entropy, kind = entropy_of(dist, self._flat)
            return Evaluation(logp, entropy, kind, self.model.value_function() if self.has_value else None, dist)

    def initial_state(self, batch_size: int) -> Any:
        """Return the state of that many fresh episodes, or None."""
        if not self.initial:
            return None
        return [np.repeat(part[None], batch_size, axis=0) for part in self.initial]

    def to(self, device: str) -> None:
        """Rebuild the model on a device; variables stay where they were made."""
        self.device = device
        weights = self.model.get_weights()
        with tf.device(device):
            self.policy.model = self.policy.make_model()
            self._attach(self.policy.model)
            self.model.set_weights(weights)

    def tensor(self, value: Any) -> Any:
        """Return an array or tensor as a tensor; float64 becomes float32."""
        tensor = tf.convert_to_tensor(value)
        return tf.cast(tensor, tf.float32) if tensor.dtype == tf.float64 else tensor

    def _score(self, dist: Any, sample: Any) -> tuple[Any, Any]:
        """Return a sample in its flat form `[B, width]` and its logp."""
        sample = self._flat(sample)
        return self._checked(_rows(sample)), dist.logp(sample)

    def _flat(self, sample: Any) -> Any:
        """Return a sample as one tensor: a structure's parts side by side, `[B, width]`."""
        parts = parts_of(sample)
        if parts is None:
            return sample
        rows = [_rows(part) for part in parts]
        dtype = rows[0].dtype if len({part.dtype for part in rows}) == 1 else tf.float32
        return tf.concat([tf.cast(part, dtype) for part in rows], axis=1)

    def _checked(self, raw: Any) -> Any:
        if raw.shape[1] != self.width:
            raise ModelContractError(
                f"{getattr(self.dist_class, '__name__', self.dist_class)}.sample() gave {raw.shape[1]} values per"
                f" action; {self.policy.action_space} takes {self.width}."
            )
        return raw

    def _states(self, state: Any, batch_size: int) -> list[Any]:
        if not self.initial:
            return []
        return [tf.constant(part) for part in (self.initial_state(batch_size) if state is None else state)]


def _rows(x: Any) -> Any:
    return x[:, None] if x.shape.rank == 1 else flatten_rows(x)


def _unbuilt(model: Any) -> bool:
    """Whether an attribute is a Keras layer that makes its variables at the first call."""
    return any(getattr(value, "built", True) is False for value in vars(model).values())
