"""The check that this package adds to the conformance kit: Stable-Baselines3 trains each weight."""

import pytest

pytest.importorskip("stable_baselines3", reason="Stable-Baselines3 is not installed")

from engine_models import WithUnusedWeight, register_part

from rlcatalog import Catalog
from rlcatalog.plugins.discovery import scan
from rlcatalog_sb3.checks import sb3_moves_every_weight
from rlcatalog_testing import NotApplicable, cases
from rlcatalog_torch import FullyConnectedNetwork


class WithCustomLoss(FullyConnectedNetwork):
    """A model that overrides `custom_loss`, which Stable-Baselines3 does not use."""

    def custom_loss(self, policy_loss, loss_inputs):
        return policy_loss + 1


@pytest.fixture(scope="module")
def catalog():
    """A catalog of all installed plugins, for this file only."""
    return Catalog(scan(), environ={})


def test_check_names_an_unused_weight(catalog):
    part = register_part(catalog, "with_unused_weight", WithUnusedWeight)

    with pytest.raises(AssertionError, match="does not change these weights: idle"):
        sb3_moves_every_weight(part)


@pytest.mark.parametrize("distribution", ["rlcatalog-fcnet", "rlcatalog-bounded"])
def test_check_passes_for_parts_of_this_repository(catalog, distribution):
    all_cases = cases(distribution, catalog=catalog)
    cases_of_check = [case for case in all_cases if case.check is sb3_moves_every_weight]

    assert cases_of_check
    for case in cases_of_check:
        case()


def test_check_is_skipped_with_the_message_of_a_rejection(catalog):
    part = register_part(catalog, "with_custom_loss", WithCustomLoss)

    with pytest.raises(NotApplicable, match="custom_loss: Stable-Baselines3 does not"):
        sb3_moves_every_weight(part)
