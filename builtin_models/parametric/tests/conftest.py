"""Fixtures that build and run models with a parametric head, and draw their observations."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
import torch
from gymnasium import spaces

import rlcatalog
from rlcatalog import ModelCatalog
from rlcatalog.spaces import Repeated

#: Five actions, 2 to 6.
ACTIONS = spaces.Discrete(5, start=2)
REAL_OBS = spaces.Box(-1, 1, (4,), np.float32)
MASK = spaces.MultiBinary(5)
#: An embedding of three numbers for each action.
EMBEDDINGS = spaces.Box(-1, 1, (5, 3), np.float32)
EMBEDDING = spaces.Box(-1, 1, (3,), np.float32)
KINDS = {
    "mask": {"action_mask": MASK},
    "embeddings": {"avail_actions": EMBEDDINGS},
    "embeddings and mask": {"action_mask": MASK, "avail_actions": EMBEDDINGS},
    "list": {"avail_actions": Repeated(EMBEDDING, 5)},
    "list and mask": {"action_mask": MASK, "avail_actions": Repeated(EMBEDDING, 5)},
}
SMALL = {"fcnet_hiddens": [8]}


@pytest.fixture(autouse=True, scope="module")
def _one_thread(one_thread):
    """Small tensors gain nothing from a second thread."""


@pytest.fixture(params=["torch", "tf"])
def framework(request):
    return request.param


@pytest.fixture(params=list(KINDS))
def kind(request):
    """What an observation says of the five actions: a mask, embeddings, a list of embeddings."""
    return request.param


# --- observations ---------------------------------------------------------------------------------


def _make_space(kind, real_obs=REAL_OBS):
    return spaces.Dict({**KINDS[kind], "real_obs": real_obs})


@pytest.fixture
def make_space():
    """Return a Dict space with the entries of a kind, and `real_obs`: four numbers by default."""
    return _make_space


def _draw_observations(space, rows, seed=0):
    space.seed(seed)
    random = np.random.default_rng(seed)
    observations = [space.sample() for _ in range(rows)]
    for obs in observations:
        if isinstance(space.spaces.get("avail_actions"), Repeated | spaces.Sequence):
            count = 1 + random.integers(5)
            obs["avail_actions"] = list(random.uniform(-1, 1, (count, 3)).astype(np.float32))
        if "action_mask" in obs:
            obs["action_mask"] = (random.random(5) < 0.4).astype(np.int8)
            obs["action_mask"][0] = 1
    return observations


@pytest.fixture
def draw_observations():
    """Draw observations that each allow an action or more, by their masks and lists."""
    return _draw_observations


def _find_allowed(observations):
    rows = []
    for obs in observations:
        allowed = np.asarray(obs.get("action_mask", np.ones(5))).astype(bool)
        embeddings = obs.get("avail_actions")
        if isinstance(embeddings, list | tuple):
            allowed = allowed & (np.arange(5) < len(embeddings))
        rows.append(allowed)
    return np.stack(rows)


@pytest.fixture
def find_allowed():
    """Return which of the five actions each observation allows, booleans [rows, 5]."""
    return _find_allowed


def _stack_embeddings(observations):
    padded = np.zeros((len(observations), 5, 3), np.float32)
    for row, obs in zip(padded, observations, strict=True):
        row[: len(obs["avail_actions"])] = obs["avail_actions"]
    return padded


@pytest.fixture
def stack_embeddings():
    """Return the embeddings of the actions, [rows, 5, 3]; lists are padded with zeros."""
    return _stack_embeddings


# --- models ---------------------------------------------------------------------------------------


def _set_random_weights(model):
    random = np.random.default_rng(0)
    weights = {}
    for name, array in model.get_weights().items():
        weights[name] = random.normal(0, 0.5, array.shape)
    model.set_weights(weights)
    return model


@pytest.fixture
def set_random_weights():
    return _set_random_weights


def _build_model(framework, space, config=None, num_outputs=5, interface=None):
    config = {**SMALL, **(config or {})}
    preprocessor = ModelCatalog.get_preprocessor_for_space(space, config)
    model = ModelCatalog.get_model_v2(
        preprocessor.observation_space,
        ACTIONS,
        num_outputs,
        config,
        framework,
        model_interface=interface,
    )
    return _set_random_weights(model), preprocessor


@pytest.fixture
def build_model():
    """Build a model and its preprocessor as an algorithm does that knows nothing of masks.

    It has random weights, and a trunk of width 8. Its observations include the mask.
    """
    return _build_model


def _build_policy(framework, space, config=None):
    policy = rlcatalog.build(space, ACTIONS, {**SMALL, **(config or {})}, framework)
    _set_random_weights(policy.model)
    return policy


@pytest.fixture
def build_policy():
    """Build a policy for five actions, with random weights, and a trunk of width 8.

    The policy applies the mask itself, so that the model's observations do not include it.
    """
    return _build_policy


def _to_array(x):
    return x.detach().numpy() if isinstance(x, torch.Tensor) else np.asarray(x)


@pytest.fixture
def to_array():
    """Return a tensor of either framework as an array."""
    return _to_array


def _to_tensor(framework, x):
    return torch.from_numpy(np.asarray(x)) if framework == "torch" else tf.constant(x)


@pytest.fixture
def to_tensor():
    """Return an array as a tensor of a framework."""
    return _to_tensor


def _run_model(model, encoded, state=None, lengths=None):
    if lengths is not None:
        lengths = _to_tensor(model.framework, np.asarray(lengths, np.int32))
    outputs, _ = model({"obs": _to_tensor(model.framework, encoded)}, state, lengths)
    return _to_array(outputs), _to_array(model.value_function())


@pytest.fixture
def run_model():
    """Return a model's outputs and values as arrays."""
    return _run_model


def _assert_close(result, expected, tolerance=1e-5):
    np.testing.assert_allclose(result, expected, rtol=tolerance, atol=tolerance)


@pytest.fixture
def assert_close():
    return _assert_close
