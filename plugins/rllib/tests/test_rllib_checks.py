"""The check that this package adds to the conformance kit: RLlib trains each weight."""

import pytest

pytest.importorskip("ray.rllib", reason="Ray RLlib is not installed")

import ray
from engine_models import WithUnusedWeight, WithUpdateOps, register_part

from rlcatalog import Catalog, FrameworkSpec
from rlcatalog.plugins.discovery import scan
from rlcatalog_rllib.checks import rllib_moves_every_weight
from rlcatalog_testing import NotApplicable, cases
from rlcatalog_torch import FullyConnectedNetwork


@pytest.fixture(scope="module")
def catalog():
    """A catalog of all installed plugins, for this file only."""
    return Catalog(scan(), environ={})


def test_check_names_an_unused_weight(catalog):
    part = register_part(catalog, "with_unused_weight", WithUnusedWeight)

    with pytest.raises(AssertionError, match="does not change these weights: idle"):
        rllib_moves_every_weight(part)


@pytest.mark.parametrize("distribution", ["rlcatalog-fcnet", "rlcatalog-bounded"])
def test_check_passes_for_parts_of_this_repository(catalog, distribution):
    all_cases = cases(distribution, catalog=catalog)
    cases_of_check = [case for case in all_cases if case.check is rllib_moves_every_weight]

    assert cases_of_check
    for case in cases_of_check:
        case()


def test_check_does_not_start_ray(catalog):
    part = register_part(catalog, "fcnet_without_ray", FullyConnectedNetwork)
    was_running = ray.is_initialized()  # by a test of another file, in this process

    rllib_moves_every_weight(part)

    assert ray.is_initialized() == was_running


def test_check_is_skipped_with_the_message_of_a_rejection(catalog):
    part = register_part(catalog, "with_update_ops", WithUpdateOps)

    with pytest.raises(NotApplicable, match=r"update_ops\(\) must run after each"):
        rllib_moves_every_weight(part)


def test_check_turns_eager_execution_on_again(catalog, monkeypatch):
    # RLlib turns eager execution off if it is the first to import TensorFlow.
    pytest.importorskip("rlcatalog_tf", reason="rlcatalog-tf is not installed")
    part = register_part(catalog, "fcnet_beside_tensorflow", FullyConnectedNetwork)
    prepared = []
    monkeypatch.setattr(FrameworkSpec, "prepare", lambda self: prepared.append(self.name))

    rllib_moves_every_weight(part)

    assert "tf" in prepared
