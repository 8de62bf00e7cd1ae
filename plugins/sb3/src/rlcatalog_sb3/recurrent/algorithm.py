"""`RecurrentPPO`: sb3-contrib's, whose buffer tells the policy how long its padded sequences are."""

from __future__ import annotations

from typing import Any

import numpy as np
import sb3_contrib
from sb3_contrib.common.recurrent.buffers import RecurrentDictRolloutBuffer, RecurrentRolloutBuffer

from rlcatalog_sb3.recurrent.torch import CatalogRecurrentPolicy


class _TellsLengths:
    """A buffer that hands on the lengths of the sequences in each sample."""

    policy: CatalogRecurrentPolicy
    seq_start_indices: Any

    def _get_samples(self, batch_inds: Any, *args: Any, **kwargs: Any) -> Any:
        samples = super()._get_samples(batch_inds, *args, **kwargs)  # type: ignore[misc]
        self.policy.seq_lens = np.diff(self.seq_start_indices, append=len(batch_inds)).astype(np.int32)
        return samples


class _Buffer(_TellsLengths, RecurrentRolloutBuffer):
    pass


class _DictBuffer(_TellsLengths, RecurrentDictRolloutBuffer):
    pass


class RecurrentPPO(sb3_contrib.RecurrentPPO):
    """sb3-contrib's RecurrentPPO, in which the padding of sequences reaches no trunk of a `CatalogRecurrentPolicy`.

    Its policies are told neither the lengths of sequences nor which rows are padding; the loss leaves padding out, but
    a trunk that counts (batch normalisation) or divides by what it sees would take it for observations.
    """

    def _setup_model(self) -> None:
        super()._setup_model()
        if isinstance(self.policy, CatalogRecurrentPolicy):
            theirs: Any = self.rollout_buffer
            made = _DictBuffer if isinstance(theirs, RecurrentDictRolloutBuffer) else _Buffer
            self.rollout_buffer = made(
                self.n_steps, self.observation_space, self.action_space, theirs.hidden_state_shape, self.device,
                gamma=self.gamma, gae_lambda=self.gae_lambda, n_envs=self.n_envs,
            )  # fmt: skip
            self.rollout_buffer.policy = self.policy
