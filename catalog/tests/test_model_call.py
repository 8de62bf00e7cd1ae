"""Calls of a model: what it passes to forward(), checks of what that returns, and defaults."""

from __future__ import annotations

import contextlib

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Discrete
from torch import nn

import rlcatalog
from rlcatalog.errors import ModelContractError, StaleOutputError
from rlcatalog_torch import TorchModelV2

pytestmark = pytest.mark.usefixtures("one_thread", "seeded")

FOUR_FEATURES = Box(-1, 1, (4,), np.float32)
TWO_ACTIONS = Discrete(2)


class RecordingModel(TorchModelV2):
    """Keeps the arguments of forward(), which returns zeros and no state, or `answer`."""

    answer = (torch.zeros(2, 1), [])

    def forward(self, input_dict, state, seq_lens):
        self.input_dict = input_dict
        self.state = state
        self.seq_lens = seq_lens
        return self.answer


@pytest.fixture
def model():
    return RecordingModel(FOUR_FEATURES, TWO_ACTIONS, 1, {}, "recording")


# --- what forward() gets --------------------------------------------------------------------------


def test_state_and_lengths_may_be_in_the_input(model):
    h = torch.ones(2, 3)
    c = torch.ones(2, 5)
    lengths = torch.tensor([1, 1])

    model({"obs": torch.zeros(2, 4), "state_in_0": h, "state_in_1": c, "seq_lens": lengths})

    assert model.state[0] is h
    assert model.state[1] is c
    assert model.seq_lens is lengths


def test_arguments_override_state_and_lengths_of_the_input(model):
    h = torch.ones(2, 3)
    c = torch.ones(2, 5)
    input_dict = {"obs": torch.zeros(2, 4), "state_in_0": h, "seq_lens": torch.tensor([1, 1])}

    model(input_dict, [c], torch.tensor([2]))

    assert model.state == [c]
    assert model.seq_lens.tolist() == [2]


def test_call_returns_the_given_state_if_forward_returns_none(model):
    h = torch.ones(2, 3)
    assert model.answer[1] == []

    _, state = model({"obs": torch.zeros(2, 4), "state_in_0": h})

    assert state == [h]


def test_forward_cannot_change_the_callers_input():
    class AddsAnEntry(TorchModelV2):
        def forward(self, input_dict, state, seq_lens):
            input_dict["mine"] = 1
            return torch.zeros(2, 1), state

    input_dict = {"obs": torch.zeros(2, 4)}

    model = AddsAnEntry(FOUR_FEATURES, TWO_ACTIONS, num_outputs=1, model_config={}, name="model")
    model(input_dict)

    assert list(input_dict) == ["obs"]


@pytest.mark.parametrize("shape", [(), (4,), (2, 3), (2, 3, 1)], ids=str)
def test_obs_flat_is_the_observation_in_one_row(shape):
    model = RecordingModel(Box(-1, 1, shape), TWO_ACTIONS, 1, {}, "recording")
    obs = torch.rand(5, *shape)

    model({"obs": obs})

    assert model.input_dict["obs"] is obs
    torch.testing.assert_close(model.input_dict["obs_flat"], obs.reshape(5, -1), rtol=0, atol=0)


def test_forward_runs_in_the_context_of_the_model():
    events = []

    class WithContext(TorchModelV2):
        @contextlib.contextmanager
        def context(self):
            events.append("enter")
            yield
            events.append("exit")

        def forward(self, input_dict, state, seq_lens):
            events.append("forward")
            return torch.zeros(2, 1), state

    model = WithContext(FOUR_FEATURES, TWO_ACTIONS, num_outputs=1, model_config={}, name="model")
    model({"obs": torch.zeros(2, 4)})

    assert events == ["enter", "forward", "exit"]


# --- what forward() returns -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("answer", "found"),
    [
        pytest.param(torch.zeros(2, 1), "Tensor", id="tensor"),
        pytest.param((torch.zeros(2, 1),), "tuple", id="tuple-of-one"),
    ],
)
def test_forward_without_a_pair_is_an_error(model, answer, found):
    model.answer = answer

    with pytest.raises(
        ModelContractError, match=r"must return a tuple \(output, state\)"
    ) as caught:
        model({"obs": torch.zeros(2, 4)})

    assert str(caught.value).startswith("RecordingModel.forward() ")
    assert f"found {found}" in str(caught.value)


@pytest.mark.parametrize(
    ("state", "found"),
    [pytest.param((), "tuple", id="tuple"), pytest.param(None, "NoneType", id="none")],
)
def test_forward_without_a_list_as_state_is_an_error(model, state, found):
    model.answer = (torch.zeros(2, 1), state)

    with pytest.raises(ModelContractError, match="must return its state as a list") as caught:
        model({"obs": torch.zeros(2, 4)})

    assert str(caught.value).startswith("RecordingModel.forward() ")
    assert f"found {found}" in str(caught.value)


# --- methods that a model need not implement ------------------------------------------------------


def test_model_has_no_state_and_no_metrics_by_default(model):
    assert model.get_initial_state() == []
    assert model.metrics() == {}
    assert not model.is_time_major()


def test_custom_loss_returns_the_loss_by_default(model):
    losses = [torch.tensor(1.0)]

    assert model.custom_loss(losses, {}) is losses


def test_missing_value_function_is_an_error(model):
    with pytest.raises(NotImplementedError, match=r"must implement value_function\(\)") as caught:
        model.value_function()

    assert str(caught.value).startswith("RecordingModel ")


def test_missing_forward_is_an_error():
    model = TorchModelV2(FOUR_FEATURES, TWO_ACTIONS, 1, {}, "model")

    with pytest.raises(NotImplementedError, match=r"must implement forward\("):
        model({"obs": torch.zeros(2, 4)})


def test_last_output_before_a_call_is_an_error(model):
    with pytest.raises(StaleOutputError, match=r"call the model before last_output\(\)"):
        model.last_output()


# --- policies of a model without a value ----------------------------------------------------------


class WithoutValue(TorchModelV2):
    """One layer, and no value_function()."""

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.layer = nn.Linear(4, self.num_outputs)

    def forward(self, input_dict, state, seq_lens):
        return self.layer(input_dict["obs"]), state


def test_policy_of_model_without_value_acts_without_one(catalog):
    policy = rlcatalog.build(
        FOUR_FEATURES, TWO_ACTIONS, {"custom_model": WithoutValue}, catalog=catalog
    )

    step = policy.act(np.zeros((6, 4), np.float32))

    assert step.value is None


def test_policy_of_model_without_value_evaluates_without_one(catalog):
    policy = rlcatalog.build(
        FOUR_FEATURES, TWO_ACTIONS, {"custom_model": WithoutValue}, catalog=catalog
    )
    obs = np.zeros((6, 4), np.float32)
    actions = policy.act(obs).raw_action

    assert policy.evaluate({"obs": obs, "raw_action": actions}).value is None
