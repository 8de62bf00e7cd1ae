"""`Policy.check`: wrong numbers in tensors are reported later, with their step and row."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete

import rlcatalog
from rlcatalog.errors import (
    ActionMaskError,
    ModelContractError,
    NonFiniteError,
    ObservationError,
)
from rlcatalog_policy import tensor_acting, tensor_checks

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(autouse=True, params=["in CPU memory", "as on a GPU"])
def place(request, monkeypatch):
    """Where the tensors are: in CPU memory, or there too but treated as on another device."""
    if request.param == "as on a GPU":
        monkeypatch.setattr(tensor_acting, "is_on_other_device", lambda placement: True)
    return request.param


only_on_a_gpu = pytest.mark.parametrize("place", ["as on a GPU"], indirect=True)

THREE_FEATURES = Box(-1, 1, (3,), np.float32)
WITH_MASK = Dict({"obs": THREE_FEATURES, "action_mask": Box(0, 2, (4,), np.int8)})
LSTM = {"use_lstm": True, "lstm_cell_size": 4, "lstm_use_prev_reward": True}


def build_policy(obs_space=THREE_FEATURES, action_space=None, **config):
    action_space = Discrete(4) if action_space is None else action_space
    return rlcatalog.build(obs_space, action_space, {"fcnet_hiddens": [8], **config}, "torch")


def obs_with(value, *, row, rows=5):
    """Return observations of zeros, with one value in the second column."""
    obs = torch.zeros(rows, 3)
    obs[row, 1] = value
    return obs


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_check_names_step_and_row_of_a_wrong_observation(value):
    policy = build_policy()
    policy.act(torch.zeros(5, 3))
    policy.act(obs_with(value, row=3))
    policy.act(obs_with(value, row=1))  # only the first wrong step is reported

    with pytest.raises(NonFiniteError, match=r"step 2 since the last check: row 3 of 5.*obs\[1\]"):
        policy.check()


def test_check_begins_anew_after_an_error():
    policy = build_policy()
    policy.act(obs_with(np.nan, row=0))
    with pytest.raises(NonFiniteError):
        policy.check()

    policy.act(torch.zeros(5, 3))

    policy.check()  # raises nothing


def test_check_without_steps_raises_nothing():
    build_policy().check()


def test_large_finite_numbers_pass_the_check():
    # Their squares are infinite.
    policy = build_policy(Box(-np.inf, np.inf, (3,), np.float32))
    policy.act(obs_with(3e38, row=0))

    policy.check()


def test_check_finds_infinity_that_a_filter_clips():
    policy = build_policy(observation_filter="MeanStdFilter")
    policy.act(obs_with(np.inf, row=2))

    with pytest.raises(NonFiniteError, match="row 2 of 5: its observation"):
        policy.check()


def test_check_finds_wrong_weights():
    policy = build_policy()
    with torch.no_grad():
        next(policy.model.parameters())[0, 0] = np.nan
    policy.act(torch.ones(5, 3))

    with pytest.raises(NonFiniteError, match=r"row 0 of 5: .* look at the model's weights"):
        policy.check()


@pytest.mark.parametrize(
    ("space", "values", "message"),
    [
        (Discrete(3, start=2), [2, 5, 4], "row 1 of 3: obs: .* from 2 to 4; found 5"),
        (MultiDiscrete([2, 2]), [[0, 0], [0, 1], [1, -1]], "row 2 of 3: obs: .* from 0 to 1"),
    ],
    ids=["discrete", "multi-discrete"],
)
def test_check_finds_integers_out_of_range(space, values, message):
    policy = build_policy(space)
    policy.act(torch.tensor(values))

    with pytest.raises(ObservationError, match=message):
        policy.check()


def test_check_finds_integers_beyond_the_dtype_of_the_space():
    policy = build_policy(Box(0, 255, (3,), np.uint8))
    policy.act(torch.tensor([[0, 300, 0]]))

    with pytest.raises(ObservationError, match=r"within \[0, 255\] at \[1\]; found 300"):
        policy.check()


@pytest.mark.parametrize(
    ("mask", "message"),
    [([0, 0, 0, 0], "row 1 allows no action"), ([0, 1, 2, 1], "expected booleans, or 0 and 1")],
    ids=["nothing-allowed", "not-a-boolean"],
)
def test_check_finds_wrong_masks(mask, message):
    policy = build_policy(WITH_MASK)
    masks = torch.tensor([[1, 1, 1, 1], mask], dtype=torch.int8)
    policy.act({"obs": torch.zeros(2, 3), "action_mask": masks})

    with pytest.raises(ActionMaskError, match=f"step 1 since the last check: .*{message}"):
        policy.check()


def test_check_finds_wrong_masks_of_bits():
    policy = build_policy(action_space=MultiBinary(2))
    policy.act(torch.zeros(1, 3), mask=torch.tensor([[2, 3]]))

    with pytest.raises(ActionMaskError, match="values 0, 1 or 2"):
        policy.check()


def test_check_finds_missing_rewards():
    policy = build_policy(**LSTM)
    state = policy.act(torch.zeros(2, 3)).state
    policy.check()  # an episode begins without a reward

    policy.act(torch.zeros(2, 3), state)

    with pytest.raises(ModelContractError, match="requests past rewards"):
        policy.check()


def test_check_finds_wrong_rewards():
    policy = build_policy(**LSTM)
    state = policy.act(torch.zeros(2, 3)).state
    policy.act(torch.zeros(2, 3), state, prev_reward=torch.tensor([0.0, np.inf]))

    with pytest.raises(NonFiniteError, match=r"step 2 .* row 1 of 2: prev_reward is inf"):
        policy.check()


def test_check_covers_preprocess():
    policy = build_policy()
    policy.preprocess(obs_with(np.nan, row=4))

    with pytest.raises(NonFiniteError, match="preprocess call 1 since the last check: row 4 of 5"):
        policy.check()


def test_check_names_the_call_if_tensors_were_overwritten():
    policy = build_policy(observation_filter="MeanStdFilter")
    buffer = obs_with(np.inf, row=2)
    policy.act(buffer)
    buffer.zero_()

    with pytest.raises(NonFiniteError, match=r"step 1 .* overwritten since"):
        policy.check()


@only_on_a_gpu
def test_check_names_the_call_if_tensors_are_no_longer_kept(monkeypatch):
    monkeypatch.setattr(tensor_checks, "_MOST_STEPS", 3)
    policy = build_policy()
    policy.act(obs_with(np.nan, row=2))
    for _ in range(3):
        policy.act(torch.zeros(5, 3))

    with pytest.raises(NonFiniteError, match=r"call 1 since the last check .* last 3 calls"):
        policy.check()


def test_right_steps_are_not_kept_in_cpu_memory(place):
    policy = build_policy()
    policy.act(torch.zeros(5, 3))

    num_kept = len(policy._on_tensors().checks._entries)

    assert num_kept == (0 if place == "in CPU memory" else 1)


@only_on_a_gpu
def test_few_values_are_kept_for_large_batches(monkeypatch):
    monkeypatch.setattr(tensor_checks, "_MOST_VALUES", 100)
    policy = build_policy()
    for _ in range(4):
        policy.act(torch.zeros(5, 3))  # 45 values: logp, value, 4 logits and 3 features per row

    assert len(policy._on_tensors().checks._entries) == 2
