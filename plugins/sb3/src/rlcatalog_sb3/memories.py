"""Support for memories (LSTM, attention, custom ones), and their states in sb3-contrib's
RecurrentPPO.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn.functional import pad

from rlcatalog import Policy
from rlcatalog.errors import ConfigError, NotServedError
from rlcatalog.frameworks import Array

States = tuple[Tensor, ...]


#: Advice for an LSTM. for_sb3 puts the environment's masks into the observation, where RecurrentPPO
#: finds them.
_RECURRENT = (
    "Use RecurrentPPO(CatalogRecurrentPolicy, for_sb3(env), ...) from rlcatalog_sb3, which takes"
    " action masks as well; on the command line, --algo RecurrentPPO."
)
_ELSEWHERE = "Train it with rlcatalog-ppo or rlcatalog-rllib."


def refuse_memory(
    policy: Policy, name: str, where: str, *, recurrent: bool, algorithm: str
) -> None:
    """Reject a memory that the training loop does not support, and a recurrent loop for a model
    without memory.

    Args:
        policy: The policy.
        name: The memory's owner, for error messages.
        where: The config keys that select the memory, for error messages.
        recurrent: Whether the training loop supports states.
        algorithm: Name of the algorithm that runs the training loop.

    Raises:
        NotServedError: The training loop has no states, or supports only vectors that are initially
            zero, unlike attention's state.
        ConfigError: The training loop needs states, but the model has none.
    """
    initial = policy.memory.initial
    if recurrent and not initial:
        raise ConfigError(
            "CatalogRecurrentPolicy: the model has no memory. Set use_lstm in model_config, or use"
            " CatalogPolicy and PPO."
        )
    served = all(part.ndim == 1 and part.dtype.kind == "f" and not part.any() for part in initial)
    if initial and not recurrent:
        asks = where or f"{name} is recurrent (get_initial_state() is not empty): "
        way = _RECURRENT if served else _ELSEWHERE
        raise NotServedError(f"{asks}{algorithm} keeps no state between steps. {way}")
    if not served:
        raise NotServedError(
            f"{where}RecurrentPPO supports states of float vectors that are initially zero, as in"
            f" an LSTM; {name} has states of shapes {[part.shape for part in initial]}."
            f" {_ELSEWHERE}"
        )


class StatePacker:
    """Packer that joins a memory's state vectors to one row and splits it into two halves.

    An LSTM's two vectors do not change.

    Args:
        initial: The state at the start of an episode, as vectors `[n]`.

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
        """Return the state vectors `[B, n]`, with zeros where an episode begins `[B]`."""
        keep = (1.0 - starts).reshape(-1, 1)
        first, second = (half[0] * keep for half in states)
        if self._halves:
            return [first, second]
        row = torch.cat([first, second], 1)[:, : sum(self._widths)]
        return list(torch.split(row, self._widths, 1))
