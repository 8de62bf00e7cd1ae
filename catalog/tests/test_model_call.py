"""The contract on paper: what ModelV2.__call__ does around forward()."""

from __future__ import annotations

import contextlib

import numpy as np
import pytest
import torch
from gymnasium import spaces
from gymnasium.spaces import Discrete
from torch import nn

import rlcatalog
from rlcatalog.errors import ModelContractError, StaleOutputError
from rlcatalog_torch import TorchModelV2

pytestmark = pytest.mark.usefixtures("one_thread", "seeded")

BOX, TWO = spaces.Box(-1, 1, (4,), np.float32), Discrete(2)


def observations(space=BOX, n=6, seed=0):
    space.seed(seed)
    return [space.sample() for _ in range(n)]


class Recording(TorchModelV2):
    """Returns what it is told to, and keeps what it was given."""

    answer = None

    def forward(self, input_dict, state, seq_lens):
        self.given = input_dict, state, seq_lens
        input_dict["mine"] = 1
        return (torch.zeros(2, 1), []) if self.answer is None else self.answer


def recording(space=BOX, answer=None):
    model = Recording(space, TWO, 1, {}, "recording")
    model.answer = answer
    return model


def test_state_and_lengths_may_stand_in_the_input():
    model, obs = recording(), torch.zeros(2, 4)
    h, c, lengths = torch.ones(2, 3), torch.ones(2, 5), torch.tensor([1, 1])
    _, state = model({"obs": obs, "state_in_0": h, "state_in_1": c, "seq_lens": lengths})
    assert model.given[1][0] is h
    assert model.given[1][1] is c
    assert model.given[2] is lengths
    assert state == [h, c]  # forward() returned none: the given one
    model({"obs": obs, "state_in_0": h}, [c], torch.tensor([2]))
    assert model.given[1] == [c]
    assert model.given[2].tolist() == [2]


def test_forward_cannot_change_the_callers_input():
    model, given = recording(), {"obs": torch.zeros(2, 4)}
    model(given)
    assert list(given) == ["obs"]


@pytest.mark.parametrize("shape", [(), (4,), (2, 3), (2, 3, 1)])
def test_obs_flat_is_the_observation_in_one_row(shape):
    model, obs = recording(spaces.Box(-1, 1, shape)), torch.rand(5, *shape)
    model({"obs": obs})
    torch.testing.assert_close(model.given[0]["obs_flat"], obs.reshape(5, -1), rtol=0, atol=0)
    assert model.given[0]["obs"] is obs


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (torch.zeros(2, 1), r"must return a tuple \(output, state\), found Tensor"),
        ((torch.zeros(2, 1),), r"must return a tuple \(output, state\), found tuple"),
        ((torch.zeros(2, 1), ()), "must return its state as a list, found tuple"),
        ((torch.zeros(2, 1), None), "must return its state as a list, found NoneType"),
    ],
)
def test_what_forward_returns_is_checked(answer, said):
    with pytest.raises(ModelContractError, match=rf"Recording\.forward\(\) {said}"):
        recording(answer=answer)({"obs": torch.zeros(2, 4)})


def test_forward_runs_in_its_context():
    entered = []

    class InContext(Recording):
        @contextlib.contextmanager
        def context(self):
            entered.append("in")
            yield
            entered.append("out")

        def forward(self, input_dict, state, seq_lens):
            assert entered == ["in"]
            return torch.zeros(2, 1), state

    InContext(BOX, TWO, 1, {}, "n")({"obs": torch.zeros(2, 4)})
    assert entered == ["in", "out"]


def test_what_a_model_need_not_implement():
    model = recording()
    assert model.get_initial_state() == []
    assert model.metrics() == {}
    losses = [torch.tensor(1.0)]
    assert model.custom_loss(losses, {}) is losses
    assert not model.is_time_major()
    with pytest.raises(NotImplementedError, match=r"Recording must implement value_function\(\)"):
        model.value_function()
    with pytest.raises(
        NotImplementedError, match=r"must implement forward\(input_dict, state, seq_lens\)"
    ):
        TorchModelV2(BOX, TWO, 1, {}, "n")({"obs": torch.zeros(2, 4)})
    with pytest.raises(StaleOutputError, match=r"call the model before last_output\(\)"):
        recording().last_output()


def test_a_policy_over_a_model_without_a_value(catalog):
    class NoValue(TorchModelV2):
        def __init__(self, *args):
            super().__init__(*args)
            self.layer = nn.Linear(4, self.num_outputs)

        def forward(self, input_dict, state, seq_lens):
            return self.layer(input_dict["obs"]), state

    policy = rlcatalog.build(BOX, TWO, {"custom_model": NoValue}, catalog=catalog)
    step = policy.act(observations())
    assert step.value is None
    assert (
        policy.evaluate({"obs": np.zeros((6, 4), np.float32), "raw_action": step.raw_action}).value
        is None
    )
