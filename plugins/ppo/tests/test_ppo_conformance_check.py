"""PPO's check for the conformance kit: an update must change every weight of a part's model."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from rlcatalog.errors import NotServedError
from rlcatalog_ppo import checks
from rlcatalog_ppo.config import PPOConfig, parse
from rlcatalog_testing import NotApplicable

PART = SimpleNamespace(framework="tf", catalog="catalog")


class FakePPO:
    """Takes the place of PPO; `train` adds `change` to the only weight `w`.

    Attributes:
        instances: All instances.
    """

    instances: list[FakePPO]
    change: float

    def __init__(self, env, config, catalog):
        self.config = config
        self.catalog = catalog
        self.weights = {"w": np.zeros(2)}
        self.policy = SimpleNamespace(model=self)
        self.calls = []
        self.instances.append(self)

    def train(self):
        self.calls.append("train")
        self.weights["w"] = self.weights["w"] + self.change

    def stop(self):
        self.calls.append("stop")


@pytest.fixture
def fake_ppo(monkeypatch):
    """Let the check train a `FakePPO`, whose class is returned."""
    monkeypatch.setattr(FakePPO, "instances", [], raising=False)
    monkeypatch.setattr(FakePPO, "change", 1.0, raising=False)
    monkeypatch.setattr(checks, "PPO", FakePPO)
    example = SimpleNamespace(config={"fcnet_hiddens": [3]})
    monkeypatch.setattr(checks, "update_example", lambda part: example)
    monkeypatch.setattr(checks, "trained_weights", lambda model: dict(model.weights))
    return FakePPO


def test_part_passes_if_every_weight_changes(fake_ppo):
    # `FakePPO.train` adds 1 to its only weight.
    checks.ppo_moves_every_weight.run(PART)


def test_check_names_weights_that_do_not_change(fake_ppo, monkeypatch):
    monkeypatch.setattr(fake_ppo, "change", 0.0)  # of its only weight, `w`

    with pytest.raises(AssertionError, match="does not change these weights: w"):
        checks.ppo_moves_every_weight.run(PART)


def test_check_trains_once_and_stops_algorithm(fake_ppo):
    checks.ppo_moves_every_weight.run(PART)

    (algorithm,) = fake_ppo.instances
    assert algorithm.calls == ["train", "stop"]


def test_failing_check_stops_algorithm(fake_ppo, monkeypatch):
    monkeypatch.setattr(fake_ppo, "change", 0.0)

    with pytest.raises(AssertionError):
        checks.ppo_moves_every_weight.run(PART)

    (algorithm,) = fake_ppo.instances
    assert algorithm.calls == ["train", "stop"]


def test_check_trains_example_of_part(fake_ppo):
    checks.ppo_moves_every_weight.run(PART)

    (algorithm,) = fake_ppo.instances
    assert algorithm.catalog == "catalog"
    assert algorithm.config["framework"] == "tf"
    assert algorithm.config["model"] == {"fcnet_hiddens": [3]}  # of the example
    assert parse(algorithm.config, PPOConfig).num_epochs == 1


def test_check_is_skipped_for_parts_that_ppo_cannot_train(fake_ppo, monkeypatch):
    def refuse(*arguments, **keywords):
        raise NotServedError("no density")

    monkeypatch.setattr(checks, "PPO", refuse)

    with pytest.raises(NotApplicable, match="no density"):
        checks.ppo_moves_every_weight.run(PART)
