"""All names of skrl that are not part of its public interface and that rlcatalog uses.

No other module of rlcatalog uses such a name, because it may change in any release.

They were tried with skrl 2.1.1. `plugins/skrl/tests/test_skrl.py` checks that the names still do
what is relied on.
"""

from __future__ import annotations

from typing import Any

from skrl.agents.torch.ppo import PPO_RNN


class SeparateMemories(PPO_RNN):
    """skrl's PPO_RNN with separate memories before and after a step.

    skrl keeps both in one dict from the first step on. `act` then replaces the memory before the
    step by the one after it, which is stored.
    """

    def record_transition(self, **arguments: Any) -> None:
        """Store a step with the memory before it."""
        super().record_transition(**arguments)
        # `act` writes the memory after the next step into `_rnn_final_states`.
        self._rnn_final_states = dict(self._rnn_initial_states)
