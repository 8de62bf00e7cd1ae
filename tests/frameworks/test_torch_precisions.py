"""Models of other precisions in PyTorch, converted or built under another default dtype: every two
parts that meet.

The truths: in double precision a slope, which differences 1e-7 apart only find where nothing passes
through float32; in half precision the same weights in float32.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch
from action_kinds import ACTIONS as EVERY_ACTION
from gymnasium.spaces import Box, Discrete
from pairwise import pairwise
from precisions import (
    ACTIONS,
    DTYPES,
    MEMORIES,
    MODEL_OF,
    OBS,
    VECTOR,
    acted,
    batch_of,
    check_step,
    drawn,
    made,
)

pytestmark = [
    pytest.mark.usefixtures("one_thread"),
    # One config serves parts of every kind here.
    pytest.mark.filterwarnings("ignore::rlcatalog.errors.UnreadKeysWarning"),
]

FACTORS = {
    "obs": list(OBS),
    "action": list(ACTIONS),
    "memory": list(MEMORIES),
    "share": [True, False],
    "dtype": DTYPES,
    "way": ["converted", "default"],
}


CASES = pairwise(FACTORS, lambda case: True)


def label(case):
    return "-".join(str(case[name]).removeprefix("torch.") for name in FACTORS)


@pytest.mark.parametrize("case", CASES, ids=label)
def test_models_of_other_precisions_act_and_are_evaluated(case):
    (action, extra), dtype = ACTIONS[case["action"]], case["dtype"]
    config = {
        **MODEL_OF.get(case["obs"], {}),
        **MEMORIES[case["memory"]],
        **extra,
        "vf_share_layers": case["share"],
    }
    policy = made(OBS[case["obs"]], action, config, dtype, case["way"])
    assert {p.dtype for p in policy.model.parameters()} == {dtype}
    obs = drawn(OBS[case["obs"]], 4)
    policy.act(obs)
    encoded, found = acted(policy, obs, 3)
    for step in found:
        check_step(step, dtype)
    np.testing.assert_array_equal(policy.values(encoded), found[0].value)
    result = policy.evaluate(batch_of(policy, encoded, found))
    tolerance = (
        {"rtol": 1e-10, "atol": 1e-10} if dtype is torch.float64 else {"rtol": 0.05, "atol": 0.1}
    )
    for name in ("logp", "value"):
        stored = np.stack([getattr(step, name) for step in found], 1).ravel()
        np.testing.assert_allclose(
            getattr(result, name).detach().numpy(), stored, **tolerance, err_msg=name
        )
    assert abs(result.kl).max() <= tolerance["atol"]
    (result.logp.sum() + result.entropy.sum() + result.value.sum()).backward()
    gradients = [p.grad for p in policy.model.parameters() if p.grad is not None]
    assert gradients
    assert all(g.dtype is dtype and g.isfinite().all() for g in gradients)
    if dtype is torch.float64:
        check_slope(policy, batch_of(policy, encoded, found))


def check_slope(policy, batch):
    """The slope along a random direction of the weights is the quotient of
    differences 1e-7 apart.
    """
    model = policy.model
    torch.manual_seed(1)
    start = {name: p.detach().clone() for name, p in model.named_parameters()}
    way = {name: torch.randn_like(p) for name, p in start.items()}

    def total(t):
        with torch.no_grad():
            for name, p in model.named_parameters():
                p.copy_(start[name] + t * way[name])
        result = policy.evaluate(batch)
        return result.logp.sum() + result.value.sum()

    model.zero_grad()
    total(0.0).backward()
    slope = sum(
        (p.grad * way[name]).sum() for name, p in model.named_parameters() if p.grad is not None
    )
    quotient = (total(1e-7) - total(-1e-7)) / 2e-7
    torch.testing.assert_close(quotient, slope, rtol=1e-5, atol=1e-5)


@pytest.mark.grid
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("kind", list(EVERY_ACTION))
def test_every_distribution_serves_every_precision(kind, dtype):
    space, config = EVERY_ACTION[kind]
    policy = made(VECTOR, space, config, dtype)
    encoded, (step,) = acted(policy, drawn(VECTOR, 6), 1)
    check_step(step, dtype)
    single = made(VECTOR, space, config, torch.float32)
    single.model.set_weights(policy.model.get_weights())
    torch.manual_seed(2)
    raw = acted(single, drawn(VECTOR, 6), 1)[1][0].raw_action
    batch = {"obs": encoded, "raw_action": raw}
    found, expected = policy.evaluate(batch), single.evaluate(batch)
    tolerance = (
        {"rtol": 1e-4, "atol": 1e-4} if dtype is torch.float64 else {"rtol": 0.05, "atol": 0.15}
    )
    for name in ("logp", "entropy", "value"):
        if name != "entropy" or found.entropy_kind == "exact":
            np.testing.assert_allclose(
                getattr(found, name).detach(),
                getattr(expected, name).detach(),
                **tolerance,
                err_msg=name,
            )


# --- against NumPy in double precision ------------------------------------------------------------


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def by_hand(weights, xs, memory):
    """Return logits and values `[T, B, …]` of steps `xs` `[T, B, n]`: tanh layer, LSTM if any,
    outputs.
    """
    trunk = "trunk." if memory else ""
    logits, values = [], []
    h, c = np.zeros((2, xs.shape[1], 6))
    for x in xs:
        x = np.tanh(
            x @ weights[f"{trunk}hidden.layers.0.weight"].T
            + weights[f"{trunk}hidden.layers.0.bias"]
        )
        if memory:
            gates = (
                x @ weights["cell.weight_ih"].T
                + h @ weights["cell.weight_hh"].T
                + weights["cell.bias"]
            )
            i, f, g, o = np.split(gates, 4, axis=1)
            c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
            x = h = sigmoid(o) * np.tanh(c)
        logits.append(x @ weights["outputs.logits.weight"].T + weights["outputs.logits.bias"])
        values.append((x @ weights["outputs.value.weight"].T + weights["outputs.value.bias"])[:, 0])
    return np.stack(logits), np.stack(values)


@pytest.mark.parametrize("memory", [False, True], ids=["fcnet", "lstm"])
@pytest.mark.parametrize("way", ["converted", "default"])
@pytest.mark.parametrize("normal", [False, True], ids=["choice", "normal"])
def test_double_precision_is_double_throughout(memory, way, normal):
    space = Box(-9, 9, (2,), np.float64) if normal else Discrete(3)
    config = {"use_lstm": True, "lstm_cell_size": 6} if memory else {}
    obs_space = Box(-1, 1, (3,), np.float64)
    policy = made(obs_space, space, config, torch.float64, way)
    # As it is encoded.
    xs = np.random.default_rng(0).uniform(-1, 1, (4, 5, 3)).astype(np.float32).astype(np.float64)
    state, found = None, []
    for x in xs:
        found.append(policy.act(x, state))
        state = found[-1].state
    weights = policy.model.get_weights()
    assert all(value.dtype == np.float64 for value in weights.values())
    logits, values = by_hand(weights, xs, memory)
    raw = np.stack([step.raw_action for step in found])
    if normal:
        mean, log_std = np.split(logits, 2, axis=2)
        terms = ((raw - mean) / np.exp(log_std)) ** 2 / 2 + log_std + np.log(2 * np.pi) / 2
        expected = -terms.sum(axis=2)
    else:
        peak = logits.max(axis=2, keepdims=True)
        log_probs = logits - peak - np.log(np.exp(logits - peak).sum(axis=2, keepdims=True))
        expected = np.take_along_axis(log_probs, raw, axis=2)[..., 0]
    np.testing.assert_allclose(
        np.stack([step.logp for step in found]), expected, rtol=0, atol=1e-10
    )
    np.testing.assert_allclose(np.stack([step.value for step in found]), values, rtol=0, atol=1e-10)
    rows = lambda x: x.swapaxes(0, 1).reshape(20, -1)  # noqa: E731
    batch = {"obs": rows(xs), "raw_action": rows(raw), "seq_lens": np.full(5, 4)}
    result = policy.evaluate(
        batch if memory else {name: batch[name] for name in ("obs", "raw_action")}
    )
    np.testing.assert_allclose(result.logp.detach(), rows(expected)[:, 0], rtol=0, atol=1e-10)
    np.testing.assert_allclose(result.value.detach(), rows(values)[:, 0], rtol=0, atol=1e-10)


def test_shares_of_lists_are_double_too():
    policy = made(OBS["lists"], Discrete(3), MODEL_OF["lists"], torch.float64)
    (obs,) = drawn(OBS["lists"], 1)
    policy.act([{**obs, "seen": [np.zeros(2, np.float32)], "hand": [1, 2]}])
    features = policy.model._features[0]
    for share in (1 / 3, 2 / 3):
        assert abs(features - share).min() < 1e-15
