"""The backend, which acts with a policy and scores its actions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tape import Array, Numbers

from rlcatalog.actions import entropy_of, params_given
from rlcatalog.errors import ConfigError, NotServedError
from rlcatalog.frameworks import Evaluation, PolicyParts, views_of
from rlcatalog.models import check_values
from rlcatalog_tape import random
from rlcatalog_tape.ops import OPS


class Backend:
    """Runs a policy; see `rlcatalog.frameworks.Backend`.

    Args:
        policy: The policy.

    Raises:
        NotServedError: The model has a memory.
    """

    def __init__(self, policy: PolicyParts) -> None:
        if len(policy.memory.initial):
            raise NotServedError("framework 'tape' has no code for memories.")
        self.policy = policy
        self.checker = policy.output_checker

    def act(
        self,
        obs: Any,
        views: Mapping[str, Any],
        memory: tuple[Numbers, ...],
        mask: Any,
        explore: bool,
    ) -> tuple[Any, ...]:
        """Return raw actions, log densities, values, what scores the actions, and no memory."""
        rows = len(obs)
        dist = self._run_model(obs, views, mask, is_training=False, single_steps=True)
        sample = dist.sample() if explore else dist.deterministic_sample()
        raw = sample.reshape(rows, self.policy.action_codec.width)
        self.checker.check_sample(raw, rows)
        logp = dist.logp(sample)
        self.checker.check_rows(logp, rows, "logp")
        results = (raw, logp, self._values(rows), params_given(dist, sample))
        return (*(_like(obs, result) for result in results), ())

    def values(self, obs: Any, views: Mapping[str, Any], memory: tuple[Numbers, ...]) -> Any:
        """Return value estimates `[B]`."""
        self._run_model(obs, views, mask=None, is_training=False, values_only=True)
        return _like(obs, self._values(len(obs)))

    def evaluate(self, batch: Mapping[str, Any], entropy: bool = True) -> Evaluation:
        """Score the actions of a training batch."""
        policy = self.policy
        raw = OPS.tensor(batch["raw_action"])
        if policy.action_codec.scalar:  # then distributions take `[B]`
            raw = raw.reshape(len(raw))
        views = views_of(policy, batch)
        dist = self._run_model(batch["obs"], views, batch.get("mask"), is_training=True)
        logp = dist.logp(raw)
        entropies, entropy_kind = entropy_of(dist, OPS.tensor, entropy)
        kl = None
        if batch.get("dist_inputs") is not None:
            collecting = policy.stored_dist(OPS.tensor(batch["dist_inputs"]), policy.model)
            kl = collecting.kl(policy.stored_dist(params_given(dist, raw), policy.model))
        for result, method in ((logp, "logp"), (entropies, "entropy"), (kl, "kl")):
            if result is not None:
                self.checker.check_rows(result, len(raw), method)
        return Evaluation(logp, entropies, entropy_kind, self._values(len(raw)), dist, kl)

    def log_density(self, dist_inputs: Numbers, raw_action: Numbers) -> Numbers:
        """Return the log densities `[B]` of raw actions under stored parameters."""
        dist = self.policy.stored_dist(OPS.tensor(dist_inputs), self.policy.model)
        logp: Numbers = OPS.array(dist.logp(raw_action))
        return logp

    def _run_model(self, obs: Any, views: Mapping[str, Any], mask: Any, **flags: bool) -> Any:
        """Run the model, and return the distribution of actions."""
        policy = self.policy
        outputs, _ = policy.model({"obs": obs, **views, **flags}, [], None)
        self.checker.check_outputs(outputs, len(obs))
        if mask is not None:
            outputs = policy.dist_class.masked(outputs, OPS.booleans(mask, outputs))
        return policy.dist_class(outputs, policy.model)

    def _values(self, rows: int) -> Array | None:
        """Return the values `[B]` of the last pass; None for a model without values."""
        if not self.policy.has_value:
            return None
        values: Array = self.policy.model.value_function()
        check_values(self.policy.model, values, rows)
        return values.reshape(rows)

    # --- devices and random numbers ---------------------------------------------------------------

    @staticmethod
    def device_of(name: str) -> str:
        """Return the device with this name."""
        if name not in ("cpu", "auto"):
            raise ConfigError(f"device={name!r}: framework 'tape' has one device, 'cpu'.")
        return "cpu"

    def to(self, device: str) -> None:
        """Move to a device, of which there is one."""

    def random_state(self) -> dict[str, Numbers]:
        """Return the state of the random generator as arrays, by name."""
        return random.state()

    def set_random_state(self, state: Mapping[str, Numbers]) -> None:
        """Restore the state that `random_state` returned."""
        random.set_state(state)


def _like(obs: Any, result: Array | None) -> Any:
    """Return a result of acting: a tensor if the observations are one, and else an array."""
    if result is None:
        return None
    return result.constant() if isinstance(obs, Array) else OPS.array(result)
