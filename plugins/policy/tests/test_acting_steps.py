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

OBS = spaces.Box(-1, 1, (2,), np.float32)
THREE = spaces.Discrete(3)
#: Two observations.
ROWS = np.float32([[0.5, -0.5], [1, 0]])
NAN_IN_ROW_1 = np.float32([[0.5, -0.5], [np.nan, 0]])


class ReadsPreviousObservation(TorchModelV2):
    """Requests a view of the observation before, so that rlcatalog counts the steps."""

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.layer = torch.nn.Linear(4, self.num_outputs)
        self.view_requirements["before"] = ViewRequirement("obs", shift=-1, space=OBS)

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
    return rlcatalog.build(OBS, THREE, config, "torch")


arrays_and_tensors = pytest.mark.parametrize(
    "convert", [np.asarray, torch.from_numpy], ids=["array", "tensor"]
)


# --- states ---------------------------------------------------------------------------------------


@arrays_and_tensors
def test_step_passes_the_memory_on(convert):
    policy = build_policy(custom_model=CountsInMemory)

    first = policy.act_encoded(convert(ROWS))
    second = policy.act_encoded(convert(ROWS), first.state)

    assert first.state.memory[0].tolist() == [[1], [1]]
    assert second.state.memory[0].tolist() == [[2], [2]]


@arrays_and_tensors
def test_step_passes_the_history_on(convert):
    policy = build_policy(custom_model=ReadsPreviousObservation)

    first = policy.act_encoded(convert(ROWS))
    second = policy.act_encoded(convert(ROWS), first.state)

    window = first.state.history.windows["obs"]
    assert isinstance(window, np.ndarray)
    np.testing.assert_array_equal(window[:, 0], ROWS)
    np.testing.assert_array_equal(second.state.seen["before"], ROWS)


@arrays_and_tensors
def test_step_without_memory_and_views_has_no_state(convert):
    assert build_policy(fcnet_hiddens=[2]).act_encoded(convert(ROWS)).state is None


# --- NaN in observations --------------------------------------------------------------------------


models = pytest.mark.parametrize(
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


@arrays_and_tensors
@models
def test_act_encoded_error_for_nan_names_row_and_step(convert, config, advice):
    policy = build_policy(**config)
    state = policy.act_encoded(convert(ROWS)).state
    state = policy.act_encoded(convert(ROWS), state).state

    with pytest.raises(NonFiniteError, match=r"^row 1 of 2: .* NaN at obs\[0\]") as caught:
        policy.act_encoded(convert(NAN_IN_ROW_1), state)

    assert str(caught.value).endswith(advice)


@models
def test_act_error_for_nan_names_the_row(config, advice):
    policy = build_policy(**config)
    state = policy.act(ROWS).state

    with pytest.raises(NonFiniteError, match=r"^row 1 of 2: .* NaN at obs\[0\]"):
        policy.act(NAN_IN_ROW_1, state)


# --- wrong actions --------------------------------------------------------------------------------


class RepeatsLastNumber(TorchModelV2):
    """Returns 10,000 times the last number of the observation as each of its outputs."""

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.scale = torch.nn.Parameter(torch.ones(1))

    def forward(self, input_dict, state, seq_lens):
        last_number = input_dict["obs_flat"][:, -1:]
        return last_number.repeat(1, self.num_outputs) * 1e4 * self.scale, state


class DrawsOutside(Categorical):
    """Draws an action that does not exist if its first input exceeds 1,000."""

    def sample(self):
        is_large = self.inputs[:, 0] > 1e3
        self.last_sample = super().sample() + 3 * is_large.long()
        return self.last_sample


@arrays_and_tensors
def test_action_outside_of_the_space_is_an_error(convert):
    policy = build_policy(custom_model=RepeatsLastNumber, custom_action_dist=DrawsOutside)
    policy.act_encoded(convert(np.float32([[0, 0], [0, 0]])))  # no error: the inputs are 0

    # The inputs for the second row are 5,000.
    with pytest.raises(
        ModelContractError, match="drew an action outside the action space"
    ) as error:
        policy.act_encoded(convert(np.float32([[0, 0], [0, 0.5]])))

    message = str(error.value)
    assert message.startswith("DrawsOutside drew an action outside the action space: action: ")
    assert " in row 1" in message


class IgnoresMask(Categorical):
    """Leaves the inputs as they are. Of equal inputs, the first is the most likely action."""

    @classmethod
    def masked(cls, inputs, mask, **options):
        return inputs


@arrays_and_tensors
def test_masked_action_is_an_error(convert):
    policy = build_policy(custom_model=RepeatsLastNumber, custom_action_dist=IgnoresMask)
    allows_action_0 = np.array([[True, False, True], [True, False, True]])
    forbids_action_0_in_row_1 = np.array([[True, False, True], [False, True, True]])

    # The inputs are equal, so that the policy takes action 0.
    policy.act_encoded(convert(ROWS), mask=convert(allows_action_0), explore=False)
    with pytest.raises(ActionMaskError, match=r"row 1: the raw action \[0\] was drawn") as caught:
        policy.act_encoded(convert(ROWS), mask=convert(forbids_action_0_in_row_1), explore=False)

    assert str(caught.value).startswith("mask: row 1: the raw action [0] was drawn, but the mask")
