"""`Policy.act_encoded`: the state that a step passes on, and the checks after each step."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from gymnasium import spaces

import rlcatalog
from rlcatalog import ViewRequirement
from rlcatalog.errors import ActionMaskError, ModelContractError, NonFiniteError
from rlcatalog_torch import Categorical, TorchModelV2

TWO_FEATURES = spaces.Box(-1, 1, (2,), np.float32)
THREE_ACTIONS = spaces.Discrete(3)
TWO_OBS = np.float32([[0.5, -0.5], [1, 0]])
NAN_IN_ROW_1 = np.float32([[0.5, -0.5], [np.nan, 0]])


class ReadsPreviousObservation(TorchModelV2):
    """Requests a view of the observation before, so that rlcatalog counts the steps."""

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.layer = torch.nn.Linear(4, self.num_outputs)
        self.view_requirements["before"] = ViewRequirement("obs", shift=-1, space=TWO_FEATURES)

    def forward(self, input_dict, state, seq_lens):
        return self.layer(torch.cat([input_dict["obs"], input_dict["before"]], 1)), state


class CountsInMemory(TorchModelV2):
    """Has the number of steps as its memory."""

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.layer = torch.nn.Linear(2, self.num_outputs)

    def get_initial_state(self):
        return [torch.zeros(1)]

    def forward(self, input_dict, state, seq_lens):
        return self.layer(input_dict["obs"]) + state[0], [state[0] + 1]


def build_policy(**config):
    return rlcatalog.build(TWO_FEATURES, THREE_ACTIONS, config, "torch")


arrays_and_tensors = pytest.mark.parametrize(
    "convert", [np.asarray, torch.from_numpy], ids=["array", "tensor"]
)


# --- states ---------------------------------------------------------------------------------------


@arrays_and_tensors
def test_step_passes_the_memory_on(convert):
    policy = build_policy(custom_model=CountsInMemory)

    first = policy.act_encoded(convert(TWO_OBS))
    second = policy.act_encoded(convert(TWO_OBS), first.state)

    assert first.state.memory[0].tolist() == [[1], [1]]
    assert second.state.memory[0].tolist() == [[2], [2]]


@arrays_and_tensors
def test_step_passes_the_history_on(convert):
    policy = build_policy(custom_model=ReadsPreviousObservation)

    first = policy.act_encoded(convert(TWO_OBS))
    second = policy.act_encoded(convert(TWO_OBS), first.state)

    window = first.state.history.windows["obs"]
    assert isinstance(window, np.ndarray)
    np.testing.assert_array_equal(window[:, 0], TWO_OBS)
    np.testing.assert_array_equal(second.state.views["before"], TWO_OBS)


@arrays_and_tensors
def test_step_without_memory_and_views_has_no_state(convert):
    assert build_policy(fcnet_hiddens=[2]).act_encoded(convert(TWO_OBS)).state is None


# --- NaN in observations --------------------------------------------------------------------------


@arrays_and_tensors
@pytest.mark.parametrize(
    ("config", "advice"),
    [
        pytest.param({"fcnet_hiddens": [2]}, "fix it in the environment.", id="no-state"),
        pytest.param({"custom_model": CountsInMemory}, "fix it in the environment.", id="memory"),
        pytest.param(
            {"custom_model": ReadsPreviousObservation},
            "fix it in the environment (after 2 steps of its episode).",
            id="history",
        ),
    ],
)
def test_act_encoded_error_for_nan_names_row_and_step(convert, config, advice):
    policy = build_policy(**config)
    state = policy.act_encoded(convert(TWO_OBS)).state
    state = policy.act_encoded(convert(TWO_OBS), state).state

    with pytest.raises(NonFiniteError, match=r"^row 1 of 2: .* NaN at obs\[0\]") as caught:
        policy.act_encoded(convert(NAN_IN_ROW_1), state)

    assert str(caught.value).endswith(advice)


# --- wrong actions --------------------------------------------------------------------------------


@arrays_and_tensors
def test_action_outside_of_the_space_is_an_error(convert):
    class ShiftedCategorical(Categorical):
        shift = 0

        def sample(self):
            self.last_sample = super().sample() + self.shift
            return self.last_sample

    policy = build_policy(fcnet_hiddens=[2], custom_action_dist=ShiftedCategorical)
    policy.act_encoded(convert(TWO_OBS))  # raises nothing without a shift

    ShiftedCategorical.shift = 3  # the action space has the actions 0, 1 and 2
    with pytest.raises(ModelContractError, match=r"^ShiftedCategorical drew an action"):
        policy.act_encoded(convert(TWO_OBS))


@arrays_and_tensors
def test_masked_action_is_an_error(convert):
    class TakesAction0(Categorical):
        def deterministic_sample(self):
            return torch.zeros(len(self.inputs), dtype=torch.int64)

    policy = build_policy(fcnet_hiddens=[2], custom_action_dist=TakesAction0)
    forbids_action_0_in_row_1 = np.array([[True, False, True], [False, True, True]])

    with pytest.raises(ActionMaskError, match=r"^mask: row 1: the raw action \[0\]"):
        policy.act_encoded(convert(TWO_OBS), mask=convert(forbids_action_0_in_row_1), explore=False)
