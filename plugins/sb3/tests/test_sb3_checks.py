"""The check that this package brings to the conformance kit."""

import pytest

pytest.importorskip("stable_baselines3", reason="Stable-Baselines3 is not installed")

import torch

from rlcatalog import Catalog
from rlcatalog.plugins.discovery import scan
from rlcatalog_sb3.checks import sb3_moves_every_weight
from rlcatalog_testing import NotApplicable, Part, cases
from rlcatalog_torch import FullyConnectedNetwork


class Idle(FullyConnectedNetwork):
    """Has a weight that nothing is computed with."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.idle = torch.nn.Parameter(torch.ones(3))


class WithLoss(FullyConnectedNetwork):
    """Has a loss of its own, which Stable-Baselines3 does not take."""

    def custom_loss(self, policy_loss, loss_inputs):
        return policy_loss + 1


@pytest.fixture(scope="module")
def catalog():
    """A catalog of these tests' own."""
    return Catalog(scan(), environ={})


def part(catalog, name, cls):
    catalog.register_model(name, cls)
    return Part(catalog.registry.get("model", name), catalog, "torch")


def test_a_weight_that_stays_is_named(catalog):
    with pytest.raises(AssertionError, match="an update does not change these weights: idle"):
        sb3_moves_every_weight(part(catalog, "idle", Idle))


@pytest.mark.parametrize("distribution", ["rlcatalog-fcnet", "rlcatalog-bounded"])
def test_parts_of_this_repository_pass(catalog, distribution):
    found = [
        case
        for case in cases(distribution, catalog=catalog)
        if case.check is sb3_moves_every_weight
    ]
    assert found
    for case in found:
        case()


def test_what_the_bridge_refuses_is_skipped_in_its_words(catalog):
    with pytest.raises(NotApplicable, match=r"custom_loss: Stable-Baselines3 does not add"):
        sb3_moves_every_weight(part(catalog, "lossy", WithLoss))
