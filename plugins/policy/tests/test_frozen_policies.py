"""Frozen policies: what they pass on to their backend, what to the policy, and what they say of
themselves.
"""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest
import torch
from gymnasium import spaces

import rlcatalog
from rlcatalog import Policy
from rlcatalog.errors import MissingPluginError, NotServedError
from rlcatalog_policy import frozen as frozen_module

OBS, THREE = spaces.Box(-1, 1, (2,), np.float32), spaces.Discrete(3)
ROWS = np.float32([[0.5, -0.5], [1, 0]])


@pytest.fixture
def policy():
    return rlcatalog.build(OBS, THREE, {"fcnet_hiddens": [2]}, "torch")


class Recorded:
    """A frozen backend that notes what it is asked, and acts as the policy does."""

    def __init__(self, policy, rows, seed):
        self.policy, self.arguments, self.reason, self.calls = policy, (rows, seed), None, []

    def act(self, *arguments):
        self.calls.append("act")
        return self.policy.backend.act(*arguments)

    def update(self):
        self.calls.append("update")

    def random_state(self):
        return {"recorded": np.array([7])}

    def set_random_state(self, state):
        self.calls.append(sorted(state))


@pytest.fixture
def backends(monkeypatch):
    """Let policies be frozen with these backends, in the order in which they were frozen."""
    backends = []

    def freeze(*arguments):
        backends.append(Recorded(*arguments))
        return backends[-1]

    monkeypatch.setattr(
        frozen_module, "load_extension", lambda framework, what: {"freeze": freeze}[what]
    )
    return backends


@pytest.fixture
def frozen(policy, backends):
    return policy.freeze()


def test_policy_is_frozen_for_one_row_unless_told_otherwise(frozen, policy, backends):
    policy.freeze(3, seed=5)
    frozen.freeze(4, seed=6)
    frozen.freeze()
    assert [backend.arguments for backend in backends] == [(1, None), (3, 5), (4, 6), (1, None)]


def test_frozen_policy_acts_by_its_backend(frozen, policy, backends):
    (backend,) = backends
    for call in (frozen.act, frozen.act_encoded):
        np.testing.assert_array_equal(
            call(ROWS, explore=False).dist_inputs, policy.act(ROWS, explore=False).dist_inputs
        )
    mask = np.array([[0, 0, 1], [0, 1, 0]])
    for call in (frozen.act, frozen.act_encoded):
        assert call(ROWS, mask=mask).raw_action[:, 0].tolist() == [2, 1]
    assert isinstance(frozen.act_encoded(torch.from_numpy(ROWS)).logp, np.ndarray)
    assert backend.calls == ["act"] * 5
    frozen.update()
    assert backend.calls[5:] == ["update"]
    state = frozen.random_state()
    assert state["recorded"].tolist() == [7]
    assert set(state) == {"recorded", *policy.random_state()}
    frozen.set_random_state(state)
    assert backend.calls[6:] == [sorted(state)]
    drawn = frozen.act(np.zeros((64, 2))).raw_action
    frozen.set_random_state(state)  # the policy's generators, too
    np.testing.assert_array_equal(frozen.act(np.zeros((64, 2))).raw_action, drawn)


def test_frozen_policy_says_whether_it_is_faster(frozen, policy, backends):
    assert frozen.reason is None
    assert repr(frozen) == f"Frozen: acts from a recorded graph\n{policy!r}"
    assert "acts from a recorded graph" in str(frozen.explain())
    backends[0].reason = "its results differ"
    assert frozen.reason == "its results differ"
    assert repr(frozen).startswith("Frozen: no faster: its results differ\n")


def test_frozen_policy_stays_where_it_is(frozen, policy):
    assert frozen.to("cpu") is frozen
    with pytest.raises(
        NotServedError,
        match="a frozen policy cannot be moved: move the policy, and freeze it again",
    ):
        frozen.to("cuda")
    assert frozen.model is policy.model
    for copied in (copy.deepcopy(frozen), pickle.loads(pickle.dumps(frozen))):
        assert type(copied) is Policy
        np.testing.assert_array_equal(copied.act(ROWS).dist_inputs, policy.act(ROWS).dist_inputs)


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (MissingPluginError("install it"), "install it"),
        (NotServedError("not this"), "NotServedError: not this"),
    ],
)
def test_policy_that_cannot_be_frozen_acts_as_it_is(policy, monkeypatch, error, reason):
    def fail(*arguments):
        raise error

    monkeypatch.setattr(frozen_module, "load_extension", fail)
    frozen = policy.freeze()
    assert frozen.reason == reason
    assert repr(frozen).startswith(f"Frozen: no faster: {reason}\n")
    np.testing.assert_array_equal(frozen.act(ROWS).dist_inputs, policy.act(ROWS).dist_inputs)
    frozen.update()
    assert set(frozen.random_state()) == set(policy.random_state())
    frozen.set_random_state(policy.random_state())
