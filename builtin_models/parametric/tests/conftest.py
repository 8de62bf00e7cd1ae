"""What the tests of the head share: one thread, spaces, models of both frameworks with equal
weights, running them.
"""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import tensorflow as tf
import torch
from gymnasium import spaces

import rlcatalog
from rlcatalog import ModelCatalog
from rlcatalog.spaces import Repeated

N, E = 5, 3
ACTIONS = spaces.Discrete(N, start=2)
PLACE = spaces.Box(-1, 1, (4,), np.float32)
MASK, EMBEDDINGS = spaces.MultiBinary(N), spaces.Box(-1, 1, (N, E), np.float32)
ITEM = spaces.Box(-1, 1, (E,), np.float32)
KINDS = {
    "mask": {"action_mask": MASK},
    "embeddings": {"avail_actions": EMBEDDINGS},
    "both": {"action_mask": MASK, "avail_actions": EMBEDDINGS},
    "list": {"avail_actions": Repeated(ITEM, N)},
    "list and mask": {"action_mask": MASK, "avail_actions": Repeated(ITEM, N)},
}
SMALL = {"fcnet_hiddens": [8]}
LSTM = {"use_lstm": True, "lstm_cell_size": 6}
ATTENTION = {
    "use_attention": True, "attention_dim": 8, "attention_num_heads": 2, "attention_head_dim": 4,
    "attention_memory_inference": 4, "attention_memory_training": 4,
    "attention_position_wise_mlp_dim": 8,
}  # fmt: skip


@pytest.fixture(autouse=True, scope="module")
def _one_thread():
    """Small tensors gain nothing from a second thread."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(params=["torch", "tf"])
def framework(request):
    return request.param


@pytest.fixture(params=list(KINDS))
def kind(request):
    return request.param


def _space(kind, place=PLACE):
    return spaces.Dict({**KINDS[kind], "real_obs": place})


def _observations(space, rows=6, seed=0):
    """Observations with something allowed in each row, in the masks and in the lists."""
    space.seed(seed)
    random, found = np.random.default_rng(seed), [space.sample() for _ in range(rows)]
    for row in found:
        listed = isinstance(space.spaces.get("avail_actions"), Repeated | spaces.Sequence)
        if listed:
            count = 1 + random.integers(N)
            row["avail_actions"] = [ITEM.sample() for _ in range(count)]
        if "action_mask" in row:
            row["action_mask"] = (random.random(N) < 0.4).astype(np.int8)
            row["action_mask"][0] = 1
    return found


def _allowed(obs):
    """What observations allow, booleans `[B, n]`, read off them once more."""
    rows = []
    for row in obs:
        allowed = np.asarray(row.get("action_mask", np.ones(N))).astype(bool)
        shown = row.get("avail_actions")
        rows.append(
            allowed & (np.arange(N) < (len(shown) if isinstance(shown, list | tuple) else N))
        )
    return np.stack(rows)


def _embeddings(obs):
    padded = np.zeros((len(obs), N, E), np.float32)
    for row, one in zip(padded, obs, strict=True):
        row[: len(one["avail_actions"])] = one["avail_actions"]
    return padded


def _randomise(model, seed=0):
    random = np.random.default_rng(seed)
    model.set_weights(
        {name: random.normal(0, 0.5, w.shape) for name, w in model.get_weights().items()}
    )
    return model


def _model(framework, space, config=None, actions=ACTIONS, num_outputs=N, interface=None):
    """Build as an algorithm does that knows nothing of masks; return the model and its
    preprocessor.
    """
    config = {**SMALL, **(config or {})}
    preprocessor = ModelCatalog.get_preprocessor_for_space(space, config)
    model = ModelCatalog.get_model_v2(
        preprocessor.observation_space,
        actions,
        num_outputs,
        config,
        framework,
        model_interface=interface,
    )
    return _randomise(model), preprocessor


def _policy(framework, space, config=None, actions=ACTIONS):
    policy = rlcatalog.build(space, actions, {**SMALL, **(config or {})}, framework)
    _randomise(policy.model)
    return policy


def _array(x):
    return x.detach().numpy() if isinstance(x, torch.Tensor) else np.asarray(x)


def _tensor(framework, x):
    return torch.from_numpy(np.asarray(x)) if framework == "torch" else tf.constant(x)


def _run(model, encoded, state=None, lengths=None, **more):
    """Return outputs and values as arrays."""
    lengths = None if lengths is None else _tensor(model.framework, np.asarray(lengths, np.int32))
    outputs, _ = model({"obs": _tensor(model.framework, encoded), **more}, state, lengths)
    return _array(outputs), _array(model.value_function())


def _close(found, expected, tolerance=1e-5):
    np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance)


@pytest.fixture
def head():
    """Helpers of these tests."""
    return SimpleNamespace(
        n=N,
        width=E,
        actions=ACTIONS,
        space=_space,
        observations=_observations,
        allowed=_allowed,
        close=_close,
        embeddings=_embeddings,
        model=_model,
        policy=_policy,
        array=_array,
        tensor=_tensor,
        run=_run,
        small=SMALL,
        randomise=_randomise,
        place=PLACE,
        kinds=KINDS,
        lstm=LSTM,
        attention=ATTENTION,
    )
