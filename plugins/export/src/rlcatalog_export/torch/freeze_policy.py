"""Freezing of PyTorch policies: the acting step is recorded as a graph that onnxruntime runs.

The graph is recorded operation by operation while the policy acts. Recording takes milliseconds,
while a full export takes seconds. Each graph supports a single number of rows. The weights are
inputs, so a graph always uses the current weights.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

import numpy as np

from rlcatalog import Policy
from rlcatalog.errors import CatalogError, CatalogWarning, NotServedError, raised_as, reason
from rlcatalog.frameworks import Array, Backend
from rlcatalog.reporting import warn_caller
from rlcatalog_export import observations
from rlcatalog_export.agreement import disagreement
from rlcatalog_export.noise_blocks import NoiseBlocks
from rlcatalog_export.torch.step_graph import StepGraph, weights_of

#: Maximum number of graphs to keep; for other keys, the policy itself acts.
_MOST = 16
#: What a graph is recorded for: the number of rows, whether to explore, whether there is no mask,
#: and whether a critic of its own is left out.
_Key: TypeAlias = tuple[int, bool, bool, bool]


class FrozenTorch:
    """Backend of a frozen policy, with one recorded graph for each number of rows.

    Each graph is compared with the policy at its first, second, fourth, eighth … step. This
    comparison detects effects that a recording cannot capture, such as a counter in Python. If the
    results differ, the policy itself acts from then on.

    Args:
        policy: The policy.
        rows: Number of rows in each step.
        seed: Seed for sampling actions.

    Attributes:
        reason: Why the policy itself acts; None if a graph does.

    Raises:
        NotServedError: The policy cannot be recorded.
    """

    def __init__(self, policy: Policy, rows: int, seed: int | None) -> None:
        if policy.device != "cpu":
            raise NotServedError(
                f"freeze: the policy is on {policy.device}, but graphs only run on the CPU."
            )
        self._policy = policy
        self._backend: Backend = policy.backend
        self._noise = NoiseBlocks(seed)
        #: The value is None if the policy itself acts.
        self._graphs: dict[_Key, StepGraph | None] = {}
        #: Number of comparisons in a row in which random numbers led to different actions.
        self._draws_in_doubt = 0
        self.reason: str | None = None
        self._try(rows)

    def act(
        self,
        obs: Array,
        views: Mapping[str, Any],
        memory: tuple[Array, ...],
        mask: Array | None,
        explore: bool,
        policy_only: bool = False,
    ) -> tuple[Any, ...]:
        """Return raw actions, logp, the value or None, the distribution's inputs and the new
        memory, as arrays.
        """
        key = (len(obs), explore, mask is None, policy_only)
        graph = self._graphs.get(key)
        if graph is None:
            graph = self._record(key, obs, views, memory, mask)
        if graph is None:
            return self._backend.act(obs, views, memory, mask, explore, policy_only)
        outputs = graph.run(obs, views, memory, mask, self._noise)
        steps = graph.steps + 1
        graph.steps = steps
        # A power of two has a single bit.
        is_power_of_two = steps & (steps - 1) == 0
        if is_power_of_two:
            inputs = {"obs": obs, "views": views, "memory": memory, "mask": mask}
            return self._compare(graph, inputs, outputs)
        return outputs

    def update(self) -> None:
        """Act with the policy's current weights."""
        weights = weights_of(self._policy)
        for key, graph in list(self._graphs.items()):
            if graph is not None and not graph.refresh(weights):
                del self._graphs[key]  # its shape has changed, so record it again

    def random_state(self) -> dict[str, Array]:
        """Return the state of the generator for sampling actions."""
        return {"frozen": self._noise.state()}

    def set_random_state(self, state: Mapping[str, Array]) -> None:
        """Set the state of the generator, if a state is given."""
        if "frozen" in state:
            self._noise.set_state(state["frozen"])

    def _try(self, rows: int) -> None:
        """Record one step on a random batch to detect unsupported operations immediately."""
        policy = self._policy
        rng = np.random.default_rng(0)
        obs, mask = observations(policy, rows, rng)
        if policy.masks.key is None:
            mask = None
        reward = np.zeros(rows, np.float32)
        # A model may raise any error on recorded tensors.
        with raised_as(
            lambda why: NotServedError(f"freeze: the policy cannot be recorded: {why}"),
            CatalogError,
        ):
            encoded = policy.preprocess(obs)
            inputs = policy.backend_inputs(encoded, state=None, prev_reward=reward, mask=mask)
            graph = StepGraph(policy, inputs, explore=True)
            has_no_mask = inputs["mask"] is None
            self._graphs[rows, True, has_no_mask, False] = graph
            # Numbers of its own: the caller's first step draws the first numbers of the seed.
            noise = NoiseBlocks(seed=0)
            outputs = graph.run(
                inputs["obs"], inputs["views"], inputs["memory"], inputs["mask"], noise
            )
            self._compare(graph, inputs, outputs)
        if self.reason is not None:
            raise NotServedError(self.reason)

    def _record(
        self,
        key: _Key,
        obs: Array,
        views: Mapping[str, Any],
        memory: tuple[Array, ...],
        mask: Array | None,
    ) -> StepGraph | None:
        """Record a graph for a key that has none; None if the policy itself acts."""
        was_tried = key in self._graphs
        if self.reason is not None or was_tried:
            return None
        graph = None
        if len(self._graphs) < _MOST:
            inputs = {"obs": obs, "views": views, "memory": memory, "mask": mask}
            _, explore, _, policy_only = key
            try:
                graph = StepGraph(self._policy, inputs, explore, policy_only)
            except Exception as error:  # a model may raise any error on recorded tensors
                self.reason = (
                    f"freeze: a batch of {len(obs)} rows cannot be recorded: {reason(error)}"
                )
        self._graphs[key] = graph
        return graph

    def _compare(
        self, graph: StepGraph, inputs: Mapping[str, Any], outputs: tuple[Any, ...]
    ) -> tuple[Any, ...]:
        """Return a graph's outputs, or the policy's own outputs if they differ."""
        policy_outputs = graph.run_policy(inputs)
        expected = _name_outputs(policy_outputs)
        actual = _name_outputs(outputs)
        drawn = {name: expected.pop(name) for name in _DRAWN}
        difference = disagreement(self._policy, expected, actual)
        if not difference:
            difference = disagreement(self._policy, drawn, actual)
            # A random number at the boundary between two actions may fall on either side, but not
            # twice in a row.
            if difference:
                self._draws_in_doubt += 1
            else:
                self._draws_in_doubt = 0
            if self._draws_in_doubt < 2:
                return outputs
        self.reason = (
            f"freeze: the recorded graph no longer matches the policy: {difference} in step"
            f" {graph.steps}; the policy itself acts from now on. Call update() after each change"
            " of the weights. State of a model or distribution outside its parameters and buffers,"
            " such as a Python counter, is not recorded."
        )
        warn_caller(self.reason, CatalogWarning)
        self._graphs = dict.fromkeys(self._graphs)  # None for each key: the policy itself acts
        return policy_outputs


#: Operations that depend on random numbers.
_DRAWN = ("raw_action", "logp")


def _name_outputs(outputs: tuple[Any, ...]) -> dict[str, Array | None]:
    """Return the results of a backend's `act` as a dict."""
    raw, logp, value, dist_inputs, memory = outputs
    by_name = {"dist_inputs": dist_inputs, "raw_action": raw, "logp": logp, "value": value}
    for i, part in enumerate(memory):
        by_name[f"memory_{i}"] = part
    return by_name
