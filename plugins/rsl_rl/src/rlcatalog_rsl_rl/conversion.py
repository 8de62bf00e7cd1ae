"""Conversion of a trained runner of rsl_rl into a policy that no longer needs rsl_rl."""

from __future__ import annotations

from rsl_rl.runners import OnPolicyRunner

from rlcatalog import Policy
from rlcatalog.errors import NotServedError
from rlcatalog_rsl_rl.actor import CatalogActor


def to_policy(runner: OnPolicyRunner) -> Policy:
    """Return the policy that a runner of rsl_rl has trained.

    The policy shares the runner's weights. It acts on the environment's observation groups, and can
    be saved and exported: `to_policy(runner).export("policy.onnx")`. A program that loads it needs
    no rsl_rl.

    Args:
        runner: The runner, whose actor is a `CatalogActor`.

    Raises:
        NotServedError: The actor is one of rsl_rl's own.
    """
    actor = runner.alg.get_policy()
    if not isinstance(actor, CatalogActor):
        raise NotServedError(
            f"{type(actor).__name__} has no catalog parts. Train with actor['class_name'] ="
            " 'rlcatalog_rsl_rl:CatalogActor'."
        )
    return actor.policy
