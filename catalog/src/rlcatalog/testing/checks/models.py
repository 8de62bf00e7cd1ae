"""Checks of models: trunks, memories and heads."""

from __future__ import annotations

from rlcatalog.testing.contract import Part, check, require
from rlcatalog.testing.examples import observations_of

MODELS = ("trunk", "memory", "head")


@check(*MODELS, hint="let forward return [B, num_outputs]; Box actions need two outputs per number")
def output_width(part: Part) -> None:
    """A model returns one row of `num_outputs` numbers for each observation."""
    for example in part.examples:
        policy = part.policy(example)
        step = policy.act(observations_of(example, 3))
        expected = (3, policy.resolution.num_outputs)
        require(step.dist_inputs.shape == expected, f"{example}: outputs {step.dist_inputs.shape}, expected {expected}")
