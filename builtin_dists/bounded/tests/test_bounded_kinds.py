"""Errors that Beta and Dirichlet share: masks, and distributions of different kinds."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from rlcatalog.errors import ModelContractError, NotServedError


@pytest.mark.parametrize(("name", "other_name"), [("Dirichlet", "Beta"), ("Beta", "Dirichlet")])
def test_kl_with_other_kind_is_an_error(framework, name, other_name):
    dist = framework.load(name)(np.zeros((2, 4), np.float32))
    other = framework.load(other_name)(np.zeros((2, 4), np.float32))

    with pytest.raises(ModelContractError, match=rf"{name}\.kl\(\) expects another {name}"):
        dist.kl(other)


@pytest.mark.parametrize("name", ["Dirichlet", "Beta"])
def test_kl_with_look_alike_is_an_error(framework, name):
    dist = framework.load(name)(np.zeros((2, 4), np.float32))
    look_alike = SimpleNamespace(
        concentration=dist.concentration, total=dist.total, log_norm=dist.log_norm
    )

    with pytest.raises(ModelContractError, match=rf"expects another {name}, found"):
        dist.kl(look_alike)


@pytest.mark.parametrize("name", ["Dirichlet", "Beta"])
def test_empty_mask_leaves_inputs_alone(framework, name):
    inputs = framework.tensor(np.zeros((7, 4), np.float32))

    assert framework.load(name).masked(inputs, np.ones((7, 0), bool)) is inputs


@pytest.mark.parametrize("name", ["Dirichlet", "Beta"])
def test_mask_is_an_error(framework, name):
    inputs = framework.tensor(np.zeros((7, 4), np.float32))

    with pytest.raises(NotServedError, match="does not support action masks") as caught:
        framework.load(name).masked(inputs, np.ones((7, 2), bool))

    assert name in str(caught.value)
    assert "but got a mask with 2 columns" in str(caught.value)
