"""Frozen policies: what their backend does, what the policy does, and how they describe themselves.

A recording backend stands for that of a framework.
"""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest
import torch
from faulty_functions import function_that_raises
from gymnasium import spaces

import rlcatalog
from rlcatalog import Policy
from rlcatalog.errors import MissingPluginError, NotServedError
from rlcatalog_policy import frozen_wrapper

TWO_OBS = np.float32([[0.5, -0.5], [1, 0]])


@pytest.fixture
def policy():
    obs_space = spaces.Box(-1, 1, (2,), np.float32)
    return rlcatalog.build(obs_space, spaces.Discrete(3), {"fcnet_hiddens": [2]}, "torch")


class RecordingBackend:
    """A frozen backend that acts as the policy does.

    Attributes:
        rows: The number of rows that the policy was frozen for.
        seed: The seed that it was frozen with.
        calls: The names of the methods that were called.
        restored_state: The argument of `set_random_state`.
    """

    def __init__(self, policy, rows, seed):
        self.policy = policy
        self.rows = rows
        self.seed = seed
        self.reason = None
        self.calls = []
        self.restored_state = None

    def act(self, *arguments, policy_only=False):
        self.calls.append("act without a critic" if policy_only else "act")
        if policy_only:
            return self.policy.backend.act(*arguments, policy_only=True)
        return self.policy.backend.act(*arguments)

    def update(self):
        self.calls.append("update")

    def random_state(self):
        return {"recorded": np.array([7])}

    def set_random_state(self, state):
        self.restored_state = state


@pytest.fixture
def backends(monkeypatch):
    """A list of the recording backends with which policies were frozen."""
    backends = []

    def freeze(policy, rows, seed):
        backends.append(RecordingBackend(policy, rows, seed))
        return backends[-1]

    def load_extension(framework, name):
        assert name == "freeze"
        return freeze

    monkeypatch.setattr(frozen_wrapper, "load_extension", load_extension)
    return backends


@pytest.fixture
def frozen(policy, backends):
    return policy.freeze()


# --- freezing -------------------------------------------------------------------------------------


def test_policy_is_frozen_for_one_row_by_default(policy, backends):
    policy.freeze()

    assert backends[-1].rows == 1
    assert backends[-1].seed is None


def test_policy_is_frozen_for_given_rows_and_seed(policy, backends):
    policy.freeze(3, seed=5)

    assert backends[-1].rows == 3
    assert backends[-1].seed == 5


def test_frozen_policy_can_be_frozen_again(frozen, policy, backends):
    again = frozen.freeze(4, seed=6)

    assert again.policy is policy
    assert backends[-1].rows == 4
    assert backends[-1].seed == 6


def test_frozen_policy_is_frozen_again_for_one_row_by_default(policy, backends):
    policy.freeze(3, seed=5).freeze()

    assert backends[-1].rows == 1
    assert backends[-1].seed is None


@pytest.fixture(
    params=[
        pytest.param((MissingPluginError("install it"), "install it"), id="missing-plugin"),
        pytest.param((NotServedError("not this"), "NotServedError: not this"), id="not-served"),
    ]
)
def failed_freeze(request, policy, monkeypatch):
    """A policy that could not be frozen, and the reason for this."""
    error, reason = request.param

    monkeypatch.setattr(frozen_wrapper, "load_extension", function_that_raises(error))
    return policy.freeze(), reason


def test_failed_freeze_says_why(failed_freeze):
    frozen, reason = failed_freeze

    assert frozen.reason == reason
    assert repr(frozen).startswith(f"Frozen: no faster: {reason}\n")


def test_failed_freeze_acts_as_the_policy(failed_freeze, policy):
    frozen, _ = failed_freeze

    np.testing.assert_array_equal(frozen.act(TWO_OBS).dist_inputs, policy.act(TWO_OBS).dist_inputs)
    frozen.update()  # no error


def test_failed_freeze_keeps_the_policys_random_state(failed_freeze, policy):
    frozen, _ = failed_freeze

    assert set(frozen.random_state()) == set(policy.random_state())
    frozen.set_random_state(policy.random_state())  # no error


# --- acting ---------------------------------------------------------------------------------------


both_methods = pytest.mark.parametrize("method", ["act", "act_encoded"])


@both_methods
def test_frozen_policy_acts_with_its_backend(frozen, policy, backends, method):
    step = getattr(frozen, method)(TWO_OBS, explore=False)

    expected = policy.act(TWO_OBS, explore=False)
    np.testing.assert_array_equal(step.dist_inputs, expected.dist_inputs)
    assert backends[0].calls == ["act"]


@both_methods
def test_frozen_policy_obeys_masks(frozen, method):
    mask = np.array([[0, 0, 1], [0, 1, 0]])

    step = getattr(frozen, method)(TWO_OBS, mask=mask)

    assert step.raw_action[:, 0].tolist() == [2, 1]  # the only actions that the mask allows


def test_frozen_policy_returns_arrays_for_tensors(frozen, backends):
    step = frozen.act_encoded(torch.from_numpy(TWO_OBS))

    assert isinstance(step.logp, np.ndarray)
    assert backends[0].calls == ["act"]


@pytest.fixture
def policy_with_critic():
    """A policy that does not see the secret, which its critic sees."""
    obs_space = spaces.Dict({"x": spaces.Box(-1, 1, (2,)), "secret": spaces.Box(-1, 1, (2,))})
    config = {"fcnet_hiddens": [2], "critic": {}, "obs_groups": {"policy": ["x"]}}
    return rlcatalog.build(obs_space, spaces.Discrete(3), config, "torch")


def test_backend_acts_without_what_only_the_critic_sees(policy_with_critic, backends):
    frozen = policy_with_critic.freeze()

    step = frozen.act({"x": TWO_OBS}, explore=False)

    assert step.value is None
    assert backends[0].calls == ["act without a critic"]


def test_backend_may_leave_the_critic_out(policy_with_critic, backends):
    frozen = policy_with_critic.freeze()

    step = frozen.act_encoded(np.zeros((2, 4), np.float32), policy_only=True)

    assert step.value is None
    assert backends[0].calls == ["act without a critic"]


def test_frozen_policy_without_a_critic_cannot_leave_it_out(frozen):
    with pytest.raises(NotServedError, match="only a critic of its own"):
        frozen.act_encoded(TWO_OBS, policy_only=True)


def test_update_updates_the_backend(frozen, backends):
    frozen.update()

    assert backends[0].calls == ["update"]


def test_random_state_is_that_of_policy_and_backend(frozen, policy):
    state = frozen.random_state()

    assert set(state) == {"recorded", *policy.random_state()}
    assert state["recorded"].tolist() == [7]  # from RecordingBackend.random_state


def test_set_random_state_restores_the_backend(frozen, backends):
    state = frozen.random_state()

    frozen.set_random_state(state)

    assert set(backends[0].restored_state) == set(state)


def test_set_random_state_restores_the_policy(frozen):
    # The recording backend samples with the policy's generator.
    state = frozen.random_state()
    sampled = frozen.act(np.zeros((64, 2))).raw_action

    frozen.set_random_state(state)

    np.testing.assert_array_equal(frozen.act(np.zeros((64, 2))).raw_action, sampled)


# --- descriptions ---------------------------------------------------------------------------------


def test_frozen_policy_describes_that_it_is_faster(frozen, policy):
    assert frozen.reason is None
    assert repr(frozen) == f"Frozen: acts faster than the policy\n{policy!r}"
    assert "acts faster than the policy" in str(frozen.explain())


def test_frozen_policy_describes_why_it_is_not_faster(frozen, backends):
    backends[0].reason = "its results differ"

    assert frozen.reason == "its results differ"
    assert repr(frozen).startswith("Frozen: no faster: its results differ\n")


# --- moving and copying ---------------------------------------------------------------------------


def test_frozen_policy_may_stay_on_its_device(frozen):
    assert frozen.to("cpu") is frozen


def test_frozen_policy_cannot_move(frozen):
    with pytest.raises(NotServedError, match="a frozen policy cannot be moved") as caught:
        frozen.to("cuda")

    assert "move the policy, and freeze it again" in str(caught.value)


def test_frozen_policy_has_the_model_of_the_policy(frozen, policy):
    assert frozen.model is policy.model


def pickle_and_unpickle(value):
    return pickle.loads(pickle.dumps(value))


@pytest.mark.parametrize("make_copy", [copy.deepcopy, pickle_and_unpickle])
def test_copy_of_a_frozen_policy_is_not_frozen(frozen, policy, make_copy):
    copied = make_copy(frozen)

    assert type(copied) is Policy
    np.testing.assert_array_equal(copied.act(TWO_OBS).dist_inputs, policy.act(TWO_OBS).dist_inputs)
