"""Conversion of a trained agent of skrl into a policy that no longer needs skrl."""

from __future__ import annotations

from typing import Any

from rlcatalog import Policy
from rlcatalog.errors import NotServedError
from rlcatalog_skrl.model import CatalogModel


def to_policy(agent: Any) -> Policy:
    """Return the policy that an agent of skrl has trained.

    The policy shares the agent's weights. It acts on the environment's observations, and can be
    saved and exported: `to_policy(agent).export("policy.onnx")`. A program that loads it needs no
    skrl.

    Args:
        agent: The agent, whose policy is a `CatalogModel`.

    Raises:
        NotServedError: The policy is a model of another class.
    """
    model = agent.models.get("policy")
    if not isinstance(model, CatalogModel):
        raise NotServedError(
            f"{type(model).__name__} has no catalog parts. Train with a CatalogModel."
        )
    return model.policy
