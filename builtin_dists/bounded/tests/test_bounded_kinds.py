"""A divergence is between two of a kind; anything else is refused by name."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from rlcatalog.errors import ModelContractError
from rlcatalog_bounded import tf as by_tf, torch as by_torch


@pytest.mark.parametrize("library", [by_torch, by_tf], ids=["torch", "tf"])
def test_divergences_to_another_kind_are_refused(library):
    inputs = np.zeros((2, 4), np.float32)
    dirichlet = library.Dirichlet(inputs)
    beta = library.Beta(inputs, low=0.0, high=1.0)
    look_alike = SimpleNamespace(
        concentration=dirichlet.concentration, total=dirichlet.total, log_norm=dirichlet.log_norm
    )
    for dist, other in (
        (dirichlet, beta),
        (beta, dirichlet),
        (dirichlet, look_alike),
        (beta, look_alike),
    ):
        name = type(dist).__name__
        with pytest.raises(
            ModelContractError, match=rf"{name}\.kl\(\) expects another {name}, found"
        ):
            dist.kl(other)
