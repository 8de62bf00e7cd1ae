"""Plain nn.Modules as models: what they are shown, how they are built, tried, copied and saved."""

from __future__ import annotations

import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete
from torch import nn

import rlcatalog
from rlcatalog.errors import ConfigError, UnknownNameError

OBS = Box(-1, 1, (4,), np.float32)


class Net(nn.Module):
    """A layer of a width that is asked for."""

    def __init__(self, space, hidden=8):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(space.shape[0], hidden), nn.Tanh())

    def forward(self, obs):
        return self.layers(obs)


def features_by_hand(weights, obs, name="module.layers.0"):
    return np.tanh(obs @ weights[f"{name}.weight"].T + weights[f"{name}.bias"])


def test_a_class_gives_features_and_rlcatalog_adds_logits_and_value():
    policy = rlcatalog.build(OBS, Discrete(3), model=Net)
    obs = np.linspace(-1, 1, 8, dtype=np.float32).reshape(2, 4)
    step, weights = policy.act(obs), policy.model.get_weights()
    features = features_by_hand(weights, obs)
    logits = features @ weights["outputs.logits.weight"].T + weights["outputs.logits.bias"]
    value = features @ weights["outputs.value.weight"].T + weights["outputs.value.bias"]
    np.testing.assert_allclose(step.dist_inputs, logits, atol=1e-6)
    np.testing.assert_allclose(step.value, value[:, 0], atol=1e-6)
    scored = policy.evaluate({"obs": policy.preprocess(obs), "raw_action": step.raw_action})
    np.testing.assert_allclose(scored.logp.detach(), step.logp, atol=1e-6)


def test_an_unregistered_class_is_saved_by_name_and_loaded_with_its_code(tmp_path):
    policy = rlcatalog.build(OBS, Discrete(3), {"custom_model_config": {"hidden": 5}}, model=Net)
    policy.save(tmp_path)
    with pytest.raises(UnknownNameError, match=r"Or bring its code: rlcatalog\.load\(.*, model=Net\)\."):
        rlcatalog.load(tmp_path)
    loaded = rlcatalog.load(tmp_path, model=Net)
    for name, weight in policy.model.get_weights().items():
        np.testing.assert_array_equal(loaded.model.get_weights()[name], weight)


def test_model_is_refused_for_a_saved_policy_of_packages(tmp_path):
    rlcatalog.build(OBS, Discrete(3)).save(tmp_path)
    with pytest.raises(ConfigError, match="this one is of packages: rlcatalog-fcnet/fcnet"):
        rlcatalog.load(tmp_path, model=Net)


def test_two_different_models_are_an_error():
    with pytest.raises(ConfigError, match="are both given"):
        rlcatalog.build(OBS, Discrete(3), {"custom_model": "fcnet"}, model=Net)
    assert rlcatalog.build(OBS, Discrete(3), {"custom_model": Net}, model=Net).model_name == "Net"
