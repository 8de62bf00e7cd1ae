"""Steps of a policy: what is checked after each, and how far an episode had come."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from gymnasium import spaces

import rlcatalog
from rlcatalog import ViewRequirement
from rlcatalog.errors import ActionMaskError, ModelContractError, NonFiniteError
from rlcatalog_torch import Categorical, TorchModelV2

OBS, THREE = spaces.Box(-1, 1, (2,), np.float32), spaces.Discrete(3)
ROWS, WRONG = np.float32([[0.5, -0.5], [1, 0]]), np.float32([[0.5, -0.5], [np.nan, 0]])


class Looking(TorchModelV2):
    """Reads the observation before."""

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.layer = torch.nn.Linear(4, self.num_outputs)
        self.view_requirements["before"] = ViewRequirement("obs", shift=-1, space=OBS)

    def forward(self, input_dict, state, seq_lens):
        return self.layer(torch.cat([input_dict["obs"], input_dict["before"]], 1)), state


class Counting(TorchModelV2):
    """Counts its steps in a memory."""

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.layer = torch.nn.Linear(2, self.num_outputs)

    def get_initial_state(self):
        return [torch.zeros(1)]

    def forward(self, input_dict, state, seq_lens):
        return self.layer(input_dict["obs"]) + state[0], [state[0] + 1]


def policy_of(**config):
    return rlcatalog.build(OBS, THREE, config, "torch")


FORMS = pytest.mark.parametrize("form", [np.asarray, torch.from_numpy], ids=["array", "tensor"])


@FORMS
@pytest.mark.parametrize(
    ("config", "end"),
    [
        ({"fcnet_hiddens": [2]}, "fix it in the environment."),
        ({"custom_model": Counting}, "fix it in the environment."),
        ({"custom_model": Looking}, "fix it in the environment (after 2 steps of its episode)."),
    ],
    ids=str,
)
def test_a_wrong_observation_is_named_with_the_steps_that_were_counted(form, config, end):
    policy, state = policy_of(**config), None
    for _ in range(2):
        state = policy.act_encoded(form(ROWS), state).state
    with pytest.raises(NonFiniteError, match=r"^row 1 of 2: .* NaN at obs\[0\]") as caught:
        policy.act_encoded(form(WRONG), state)
    assert str(caught.value).endswith(end)
    with pytest.raises(NonFiniteError, match=r"^row 1 of 2: .* NaN at obs\[0\]"):
        policy.act(WRONG, state)


@FORMS
def test_step_passes_its_state_on(form):
    counting = policy_of(custom_model=Counting)
    step = counting.act_encoded(form(ROWS))
    assert step.state.memory[0].tolist() == [[1], [1]]
    assert counting.act_encoded(form(ROWS), step.state).state.memory[0].tolist() == [[2], [2]]
    looking = policy_of(custom_model=Looking)
    step = looking.act_encoded(form(ROWS))
    np.testing.assert_array_equal(step.state.history.windows["obs"][:, 0], ROWS)
    assert isinstance(step.state.history.windows["obs"], np.ndarray)
    np.testing.assert_array_equal(
        looking.act_encoded(form(ROWS), step.state).state.seen["before"], ROWS
    )
    assert policy_of(fcnet_hiddens=[2]).act_encoded(form(ROWS)).state is None


class Outside(Categorical):
    """Draws what is no action, where its first input is large."""

    def sample(self):
        self.last_sample = super().sample() + 3 * (self.inputs[:, 0] > 1e3).long()
        return self.last_sample


class Unmasked(Categorical):
    """Forbids nothing; of equal outputs, the first is the most likely action."""

    @classmethod
    def masked(cls, inputs, mask, **options):
        return inputs


class Large(TorchModelV2):
    """Its outputs are the first number of an observation."""

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.scale = torch.nn.Parameter(torch.ones(1))

    def forward(self, input_dict, state, seq_lens):
        return input_dict["obs_flat"][:, -1:].repeat(1, self.num_outputs) * 1e4 * self.scale, state


@FORMS
def test_actions_outside_the_space_are_refused(form):
    policy = policy_of(custom_model=Large, custom_action_dist=Outside)
    rows = np.float32([[0, 0], [0, 0.5]])
    policy.act_encoded(form(0 * rows))
    with pytest.raises(
        ModelContractError,
        match=r"Outside drew an action outside the action space: action: .* in row 1",
    ):
        policy.act_encoded(form(rows))


@FORMS
def test_forbidden_actions_are_refused(form):
    policy = policy_of(custom_model=Large, custom_action_dist=Unmasked)
    mask = np.array([[True, False, True], [False, True, True]])
    policy.act_encoded(form(ROWS), mask=form(mask[[0, 0]]), explore=False)
    with pytest.raises(
        ActionMaskError, match=r"mask: row 1: the raw action \[0\] was drawn, but the mask allows"
    ):
        policy.act_encoded(form(ROWS), mask=form(mask), explore=False)
