"""Fixtures that build models and policies with a parametric head, for five actions, 2 to 6."""

from __future__ import annotations

import pytest
from gymnasium import spaces
from model_runs import set_random_weights
from parametric_observations import KINDS

import rlcatalog
from rlcatalog import ModelCatalog

FIVE_ACTIONS = spaces.Discrete(5, start=2)


@pytest.fixture(autouse=True, scope="module")
def _one_thread(one_thread):
    """Small tensors gain nothing from a second thread."""


@pytest.fixture(params=list(KINDS))
def kind(request):
    """What an observation says of the five actions: a mask, embeddings, a list of embeddings."""
    return request.param


@pytest.fixture
def build_model():
    """Build a model and its preprocessor as an algorithm does that knows nothing of masks.

    It has random weights, and a trunk of width 8. Its observations include the mask.
    """

    def build(framework, space, config=None, num_outputs=5, interface=None):
        config = {"fcnet_hiddens": [8], **(config or {})}
        preprocessor = ModelCatalog.get_preprocessor_for_space(space, config)
        model = ModelCatalog.get_model_v2(
            preprocessor.observation_space,
            FIVE_ACTIONS,
            num_outputs,
            config,
            framework,
            model_interface=interface,
        )
        return set_random_weights(model), preprocessor

    return build


@pytest.fixture
def build_policy():
    """Build a policy with random weights, and a trunk of width 8.

    The policy applies the mask itself, so that the model's observations do not include it.
    """

    def build(framework, space, config=None):
        config = {"fcnet_hiddens": [8], **(config or {})}
        policy = rlcatalog.build(space, FIVE_ACTIONS, config, framework)
        set_random_weights(policy.model)
        return policy

    return build
