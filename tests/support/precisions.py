"""Policies of other precisions in PyTorch, and what they did as a training batch."""

from __future__ import annotations

import contextlib

import numpy as np
import torch
from gymnasium.spaces import Box, Dict, Discrete, MultiDiscrete, Tuple

import rlcatalog
from rlcatalog.spaces import Repeated

DTYPES = [torch.float64, torch.bfloat16, torch.float16]
VECTOR, IMAGE = Box(-1, 1, (3,), np.float32), Box(0, 255, (10, 10, 2), np.uint8)
EYE = Box(-1, 1, (10, 10, 2), np.float64)
OBS = {
    "vector": VECTOR,
    "image": IMAGE,
    "image of floats": EYE,
    "dict with image": Dict({"eye": IMAGE, "self": Tuple([Discrete(3), VECTOR])}),
    "lists": Dict(
        {
            "seen": Repeated(Box(-1, 1, (2,), np.float32), 3),
            "hand": Repeated(Discrete(3), 3),
            "own": VECTOR,
        }
    ),
}
MODEL_OF = {
    "image": {"conv_filters": [[4, [4, 4], 2], [6, [5, 5], 1]]},
    "lists": {"custom_model": "complex_input"},
}
MODEL_OF["image of floats"] = MODEL_OF["dict with image"] = MODEL_OF["image"]
PAST = Tuple(
    [Discrete(3), Dict({"aim": Box(-1, 1, (2,), np.float32), "grip": MultiDiscrete([2, 3])})]
)
ACTIONS = {
    "discrete": (Discrete(3, start=1), {}),
    "box": (Box(-1, 1, (2,), np.float32), {}),
    "box, free_log_std": (Box(-1, 1, (2,), np.float32), {"free_log_std": True}),
    "nested": (PAST, {}),
    "nested, autoregressive": (
        PAST,
        {"use_autoregressive": True, "autoregressive_hiddens": [4, 3]},
    ),
}
MEMORIES = {
    "none": {},
    "lstm": {
        "use_lstm": True,
        "lstm_cell_size": 6,
        "lstm_use_prev_action": True,
        "lstm_use_prev_reward": True,
    },
    "attention": {
        "use_attention": True,
        "attention_dim": 8,
        "attention_num_heads": 2,
        "attention_head_dim": 4,
        "attention_memory_inference": 5,
        "attention_memory_training": 5,
        "attention_position_wise_mlp_dim": 8,
        "attention_use_n_prev_actions": 2,
    },
}
SMALL = {"fcnet_hiddens": [8], "fcnet_activation": "tanh", "conv_activation": "tanh"}


@contextlib.contextmanager
def default_dtype(dtype):
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


def build_in(obs, action, config, dtype, way="converted", seed=0):
    torch.manual_seed(seed)
    with default_dtype(dtype) if way == "default" else contextlib.nullcontext():
        policy = rlcatalog.build(obs, action, {**SMALL, **config}, "torch")
    if way == "converted":
        policy.model.to(dtype)
    return policy


def act_steps(policy, obs, steps):
    """Act for some steps with the same observations; return these, encoded, and the steps."""
    encoded = policy.preprocess(obs)
    state = None
    results = []
    for t in range(steps):
        reward = np.full(len(obs), 0.1 * t, np.float32)
        step = policy.act_encoded(encoded, state, prev_reward=reward)
        results.append(step)
        state = step.state
    return encoded, results


def make_batch(policy, encoded, steps):
    """Return steps as a training batch, one sequence behind the other."""
    rows = len(encoded)
    batch = {"obs": np.repeat(encoded, len(steps), axis=0)}
    for name in ("raw_action", "dist_inputs"):
        columns = np.stack([getattr(step, name) for step in steps], axis=1)
        batch[name] = columns.reshape(rows * len(steps), -1)
    if policy.memory:
        batch["seq_lens"] = np.full(rows, len(steps))
    if steps[0].state is not None and steps[0].state.views:
        seen = [step.state.views for step in steps]
        batch["views"] = {name: joined([view[name] for view in seen]) for name in seen[0]}
    return batch


def joined(parts):
    if isinstance(parts[0], dict):
        return {name: joined([part[name] for part in parts]) for name in parts[0]}
    if isinstance(parts[0], tuple):
        return tuple(joined(list(part)) for part in zip(*parts, strict=True))
    return np.stack(parts, 1).reshape(-1, *parts[0].shape[1:])


def assert_step_in(step, dtype):
    """Assert that a step is finite, and has the precision that is promised for a dtype."""
    wide = np.float64 if dtype is torch.float64 else np.float32
    for values in (step.logp, step.value, step.dist_inputs):
        assert values.dtype == wide
        assert np.isfinite(values).all()
    assert step.raw_action.dtype in (wide, np.int64)
    memory = () if step.state is None else step.state.memory
    assert all(part.dtype in (wide, np.int32) for part in memory)  # attention counts what it holds
