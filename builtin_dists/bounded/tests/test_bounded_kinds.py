"""KL divergence between distributions of different kinds, which is an error."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from rlcatalog.errors import ModelContractError


def make(framework, name):
    """Create a Beta, a Dirichlet, or an object that has a Dirichlet's attributes."""
    inputs = np.zeros((2, 4), np.float32)
    if name == "Beta":
        return framework.load("Beta")(inputs, low=0.0, high=1.0)
    dirichlet = framework.load("Dirichlet")(inputs)
    if name == "Dirichlet":
        return dirichlet
    return SimpleNamespace(
        concentration=dirichlet.concentration, total=dirichlet.total, log_norm=dirichlet.log_norm
    )


@pytest.mark.parametrize(
    ("name", "other"),
    [
        ("Dirichlet", "Beta"),
        ("Beta", "Dirichlet"),
        ("Dirichlet", "look-alike"),
        ("Beta", "look-alike"),
    ],
)
def test_kl_with_other_kind_is_an_error(framework, name, other):
    dist = make(framework, name)

    with pytest.raises(ModelContractError, match=rf"{name}\.kl\(\) expects another {name}, found"):
        dist.kl(make(framework, other))
