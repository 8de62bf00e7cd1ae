"""Memories (LSTM, attention, a user's): which ones are supported, and how sb3-contrib's RecurrentPPO carries them."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn.functional import pad

from rlcatalog import Policy
from rlcatalog.errors import ConfigError, NotServedError
from rlcatalog.frameworks import Array

States = tuple[Tensor, ...]


#: What to train an LSTM with. for_sb3 puts the environment's masks into the observation, where RecurrentPPO finds them.
_RECURRENT = (
    "Use RecurrentPPO(CatalogRecurrentPolicy, for_sb3(env), ...) from rlcatalog_sb3, which takes action masks as well;"
    " on the command line, --algo RecurrentPPO."
)
_ELSEWHERE = "Train it with rlcatalog-ppo or rlcatalog-rllib."


def refuse_memory(policy: Policy, name: str, where: str, *, recurrent: bool, algorithm: str) -> None:
    """Refuse a memory that the algorithm's loop does not carry, and a loop with memory for a model without one.

    Args:
        policy: The policy.
        name: The owner of the memory, for messages.
        where: The keys that ask for it, for messages.
        recurrent: Whether the loop carries the states of a memory.
        algorithm: Name of the algorithm whose loop it is.

    Raises:
        NotServedError: The loop carries no memory, or only vectors that begin as zeros, unlike those of attention.
        ConfigError: The loop carries states, and the model has none.
    """
    initial = policy.memory.initial
    if recurrent and not initial:
        raise ConfigError(
            "CatalogRecurrentPolicy: the model has no memory. Set use_lstm in model_config, or take CatalogPolicy"
            " and PPO."
        )
    served = all(part.ndim == 1 and part.dtype.kind == "f" and not part.any() for part in initial)
    if initial and not recurrent:
        asks = where or f"{name} is recurrent (get_initial_state() is not empty): "
        way = _RECURRENT if served else _ELSEWHERE
        raise NotServedError(f"{asks}{algorithm} carries no state from step to step. {way}")
    if not served:
        raise NotServedError(
            f"{where}RecurrentPPO carries vectors of floats that begin as zeros, as an LSTM's;"
            f" {name} carries states of shapes {[part.shape for part in initial]}. {_ELSEWHERE}"
        )


class StatePacker:
    """Packer of a memory's state vectors into one row of two halves; an LSTM's two vectors stay as they are.

    Args:
        initial: The state at the start of an episode, vectors `[n]`.

    Attributes:
        size: Width of one half.
    """

    def __init__(self, initial: Sequence[Array]) -> None:
        self._widths = [int(part.shape[0]) for part in initial]
        self.size = -(-sum(self._widths) // 2)
        self._halves = self._widths == [self.size, self.size]

    def pack(self, parts: Sequence[Tensor]) -> States:
        """Return the two tensors `[1, B, size]` for state vectors `[B, n]`."""
        if self._halves:
            return parts[0][None], parts[1][None]
        row = pad(torch.cat(list(parts), 1), (0, 2 * self.size - sum(self._widths)))
        return row[None, :, : self.size], row[None, :, self.size :]

    def unpack(self, states: States, starts: Tensor) -> list[Tensor]:
        """Return the state vectors `[B, n]`, zeros where an episode begins `[B]`."""
        keep = (1.0 - starts).reshape(-1, 1)
        first, second = (half[0] * keep for half in states)
        if self._halves:
            return [first, second]
        row = torch.cat([first, second], 1)[:, : sum(self._widths)]
        return list(torch.split(row, self._widths, 1))
