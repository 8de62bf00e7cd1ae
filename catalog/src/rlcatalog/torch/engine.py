"""What PyTorch does for a `Policy`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch

from rlcatalog.distribution import ActionDistribution, entropy_of
from rlcatalog.errors import ModelContractError
from rlcatalog.policy import Evaluation, Policy
from rlcatalog.structures import parts_of

Array = np.ndarray[Any, Any]


class TorchEngine:
    """Runs a policy's model and distribution in PyTorch.

    Args:
        policy: The policy.
    """

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self.model: Any = policy.model
        self.dist_class: Any = policy.dist_class
        self.scalar = policy.adapter.scalar
        self.width = policy.adapter.width
        self.has_value = policy.has_value
        self.initial = [torch.as_tensor(np.asarray(part)) for part in self.model.get_initial_state()]
        self.device, self.on_cpu = torch.device("cpu"), True
        self.numpy: Callable[[torch.Tensor], Array] = torch.Tensor.numpy

    def act(self, obs: Array, state: Any, mask: Array | None, explore: bool) -> tuple[Any, ...]:
        """Return raw actions, logp, value or None, inputs and new state, as NumPy arrays."""
        model = self.model
        if model.training:
            model.eval()
        with torch.inference_mode():
            states = self._states(state, len(obs)) if self.initial else []
            seq_lens = self._ones(states) if states else None
            inputs, new_state = model({"obs": self.tensor(obs), "is_training": False}, states, seq_lens)
            if mask is not None:
                inputs = self.dist_class.masked(inputs, self.tensor(mask))
            dist = self.dist_class(inputs, model)
            sample = dist.sample() if explore else dist.deterministic_sample()
            raw, logp = self._score(dist, sample)
            value = self.numpy(model.value_function()) if self.has_value else None
            found = [self.numpy(part) for part in new_state] if states else None
            return raw, self.numpy(logp), value, self.numpy(inputs), found

    def evaluate(self, batch: Mapping[str, Any]) -> Evaluation:
        """Score stored actions; see `Policy.evaluate`."""
        model = self.model
        if not model.training:
            model.train()
        obs = self.tensor(batch["obs"])
        states: list[torch.Tensor] = []
        seq_lens = None
        if self.initial:
            seq_lens = self.tensor(batch["seq_lens"]) if "seq_lens" in batch else self._ones([obs])
            states = self._states(batch.get("state"), len(obs) if seq_lens is None else len(seq_lens))
        inputs, _ = model({"obs": obs, "is_training": True}, states, seq_lens)
        if batch.get("mask") is not None:
            inputs = self.dist_class.masked(inputs, self.tensor(batch["mask"]).bool())
        dist = self.dist_class(inputs, model)
        raw = self.tensor(batch["raw_action"])
        logp = dist.logp(raw[:, 0] if self.scalar and raw.ndim == 2 else raw)
        entropy, kind = entropy_of(dist, self._flat)
        return Evaluation(logp, entropy, kind, model.value_function() if self.has_value else None, dist)

    def initial_state(self, batch_size: int) -> Any:
        """Return the state of that many fresh episodes, or None."""
        if not self.initial:
            return None
        return [np.repeat(part[None].cpu().numpy(), batch_size, axis=0) for part in self.initial]

    def to(self, device: str) -> None:
        """Move the model to a device."""
        self.device = torch.device(device)
        self.on_cpu = self.device.type == "cpu"
        self.numpy = torch.Tensor.numpy if self.on_cpu else _copied
        self.model.to(self.device)

    def tensor(self, value: Any) -> torch.Tensor:
        """Return an array or tensor as a tensor on the device; float64 becomes float32."""
        if isinstance(value, torch.Tensor):
            tensor = value
        else:
            array = np.asarray(value)
            tensor = torch.from_numpy(array if array.flags.carray else array.copy())
        if tensor.dtype is torch.float64:
            tensor = tensor.float()
        return tensor if self.on_cpu and tensor.is_cpu else tensor.to(self.device)

    def _score(self, dist: ActionDistribution, sample: Any) -> tuple[Array, torch.Tensor]:
        """Return a sample in its flat form, an array `[B, width]`, and its logp."""
        if not isinstance(sample, torch.Tensor):
            sample = self._flat(sample)
        raw = self.numpy(sample)
        if raw.ndim == 1:
            raw = raw[:, None]
        elif raw.ndim != 2:
            raw = raw.reshape(len(raw), -1)
        if raw.shape[1] != self.width:
            raise ModelContractError(
                f"{getattr(self.dist_class, '__name__', self.dist_class)}.sample() gave {raw.shape[1]} values per"
                f" action; {self.policy.action_space} takes {self.width}."
            )
        return raw, dist.logp(sample)

    def _flat(self, sample: Any) -> torch.Tensor:
        """Return a sample as one tensor: a structure's parts side by side, `[B, width]`."""
        if isinstance(sample, torch.Tensor):
            return sample
        parts = [part.reshape(part.shape[0], -1) for part in parts_of(sample) or []]
        if len({part.dtype for part in parts}) > 1:  # float32 holds whole numbers that half precision would not
            parts = [part.float() for part in parts]
        return torch.cat(parts, dim=1)

    def _states(self, state: Any, batch_size: int) -> list[torch.Tensor]:
        if not self.initial:
            return []
        if state is None:
            state = self.initial_state(batch_size)
        return [self.tensor(part) for part in state]

    def _ones(self, like: list[torch.Tensor]) -> torch.Tensor | None:
        return torch.ones(len(like[0]), dtype=torch.int32, device=self.device) if like else None


def _copied(tensor: torch.Tensor) -> Array:
    return tensor.cpu().numpy()
