"""Acting with the current weights: the transformer keeps nothing computed with earlier ones."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from gymnasium import spaces

import rlcatalog

CONFIG = {
    "use_attention": True,
    "fcnet_hiddens": [8],
    "attention_num_transformer_units": 2,
    "attention_dim": 6,
    "attention_memory_inference": 4,
    "attention_memory_training": 4,
}
#: Nine steps of three environments.
OBS = np.random.default_rng(0).uniform(-1, 1, (9, 3, 3)).astype(np.float32)


@pytest.fixture(params=[1, 2], ids=["one head", "two heads"])
def build_policy(request, set_random_weights):
    """Build a policy with a transformer of random weights."""

    def build(seed):
        obs = spaces.Box(-1, 1, (3,), np.float32)
        config = {**CONFIG, "attention_num_heads": request.param}
        policy = rlcatalog.build(obs, spaces.Discrete(2), config, "torch")
        set_random_weights(policy.model, seed)
        return policy

    return build


@pytest.fixture
def policy(build_policy):
    return build_policy(seed=0)


@pytest.fixture
def other_policy(build_policy):
    """A policy of the same structure with other weights."""
    return build_policy(seed=5)


def act_five_steps(policy):
    """Act for five steps, and return the last one."""
    state = None
    for obs in OBS[:5]:
        step = policy.act(obs, state, explore=False)
        state = step.state
    return step


def act_sixth_step(policy, state):
    """Return the outputs of the step after `act_five_steps`."""
    return policy.act(OBS[5], state, explore=False).dist_inputs


@pytest.fixture
def act_with_unused_model(build_policy):
    """Act with a policy's weights in a model that never ran, on a copy of the state."""

    def act(policy, state):
        unused = build_policy(seed=0)
        unused.model.set_weights(policy.model.get_weights())
        memory = tuple(part.copy() for part in state.memory)
        return act_sixth_step(unused, state._replace(memory=memory))

    return act


def assert_close(outputs, expected):
    np.testing.assert_allclose(outputs, expected, rtol=1e-5, atol=1e-6)


# --- changed weights ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "make_optimizer",
    [
        pytest.param(lambda weights: torch.optim.SGD(weights, lr=0.1), id="sgd"),
        pytest.param(
            lambda weights: torch.optim.SGD(weights, lr=0.1, foreach=True), id="sgd-foreach"
        ),
        pytest.param(lambda weights: torch.optim.Adam(weights, lr=0.1, foreach=False), id="adam"),
        pytest.param(
            lambda weights: torch.optim.Adam(weights, lr=0.1, foreach=True), id="adam-foreach"
        ),
        pytest.param(
            lambda weights: torch.optim.Adam(weights, lr=0.1, fused=True), id="adam-fused"
        ),
    ],
)
def test_next_step_uses_weights_of_the_optimizer(policy, act_with_unused_model, make_optimizer):
    state = act_five_steps(policy).state
    before = act_sixth_step(policy, state)
    named_weights = policy.model.named_parameters()
    optimizer = make_optimizer([weight for name, weight in named_weights if ".attention." in name])

    batch = {
        "obs": OBS[:, 0],
        "raw_action": np.zeros((9, 1)),
        "seq_lens": [9],
        "state": policy.initial_state(1),
    }
    policy.evaluate(batch).logp.sum().backward()
    optimizer.step()

    after = act_sixth_step(policy, state)
    assert_close(after, act_with_unused_model(policy, state))
    assert not np.allclose(after, before, atol=1e-4)


def load_state_dict(model, other):
    model.load_state_dict(other.state_dict())


def assign_state_dict(model, other):
    model.load_state_dict(copy.deepcopy(other.state_dict()), assign=True)


def set_weights(model, other):
    model.set_weights(other.get_weights())


def average_data(model, other):
    # Polyak averages are often written like this; PyTorch's version counters do not see it.
    for weight, other_weight in zip(model.parameters(), other.parameters(), strict=True):
        weight.data.mul_(0.5).add_(0.5 * other_weight.data)


def write_shared_memory(model, other):
    # As another process would do that trains the same weights.
    for weight, other_weight in zip(model.parameters(), other.parameters(), strict=True):
        weight.detach().numpy()[:] = other_weight.detach().numpy()


@pytest.mark.parametrize(
    "change_weights",
    [load_state_dict, assign_state_dict, set_weights, average_data, write_shared_memory],
)
def test_next_step_uses_weights_that_were_set(
    policy, other_policy, act_with_unused_model, change_weights
):
    state = act_five_steps(policy).state
    before = act_sixth_step(policy, state)

    change_weights(policy.model, other_policy.model)

    after = act_sixth_step(policy, state)
    assert_close(after, act_with_unused_model(policy, state))
    assert not np.allclose(after, before, atol=1e-4)


def test_next_step_after_a_move_to_the_same_device(policy, act_with_unused_model):
    state = act_five_steps(policy).state
    before = act_sixth_step(policy, state)

    policy.to("cpu")

    after = act_sixth_step(policy, state)
    assert_close(after, act_with_unused_model(policy, state))
    assert np.allclose(after, before, atol=1e-4)


def test_deepcopy_keeps_the_weights_it_was_made_with(policy, act_with_unused_model):
    state = act_five_steps(policy).state
    before = act_sixth_step(policy, state)

    copied = copy.deepcopy(policy.model)
    with torch.no_grad():
        for parameter in policy.model.parameters():
            parameter.add_(0.5)

    memory = [torch.from_numpy(part) for part in state.memory]
    output, _ = copied({"obs": torch.from_numpy(OBS[5])}, memory)
    after = act_sixth_step(policy, state)
    assert_close(output.detach(), before)
    assert_close(after, act_with_unused_model(policy, state))
    assert not np.allclose(after, before, atol=1e-3)


def test_functional_call_and_acting_each_use_their_weights(
    policy, other_policy, act_with_unused_model
):
    state = act_five_steps(policy).state
    obs = torch.from_numpy(OBS[5])
    memory = [torch.from_numpy(part.copy()) for part in state.memory]
    other_weights = dict(other_policy.model.named_parameters())

    # In turns, so that each would see what the other left behind.
    for _ in range(2):
        inputs = ({"obs": obs}, memory)
        output, _ = torch.func.functional_call(policy.model, other_weights, inputs)
        assert_close(output.detach(), act_with_unused_model(other_policy, state))
        assert_close(act_sixth_step(policy, state), act_with_unused_model(policy, state))


# --- several states of one policy -----------------------------------------------------------------


def test_steppers_in_turns_do_not_disturb_each_other(policy):
    first_stepper = policy.stepper(3)
    second_stepper = policy.stepper(3)

    for t in range(5):
        first = first_stepper.step(OBS[t], explore=False)
        second = second_stepper.step(OBS[8 - t], explore=False)

    np.testing.assert_array_equal(first.dist_inputs, act_five_steps(policy).dist_inputs)
    state = None
    for t in range(5):
        alone = policy.act(OBS[8 - t], state, explore=False)
        state = alone.state
    np.testing.assert_array_equal(second.dist_inputs, alone.dist_inputs)


def test_stepper_restarts_done_rows_only(policy):
    stepper = policy.stepper(3)
    other_stepper = policy.stepper(3)

    for t in range(5):
        done = np.array([False, t == 3, False])
        step = stepper.step(OBS[t], done=done, explore=False)
        other_stepper.step(OBS[8 - t], explore=False)  # another memory of the same policy

    without_restart = act_five_steps(policy)
    np.testing.assert_array_equal(step.dist_inputs[[0, 2]], without_restart.dist_inputs[[0, 2]])
    assert not np.allclose(step.dist_inputs[1], without_restart.dist_inputs[1], atol=1e-4)
    # Row 1 began an episode at step 3.
    first = policy.act(OBS[3], explore=False)
    second = policy.act(OBS[4], first.state, explore=False)
    assert_close(step.dist_inputs[1], second.dist_inputs[1])
    np.testing.assert_array_equal(step.state.memory[1], [4, 2, 4])


def test_earlier_state_gives_the_same_step_again(policy):
    state = act_five_steps(policy).state
    expected = act_sixth_step(policy, state)

    act_five_steps(policy)
    policy.act(OBS[0][:1])  # a batch of another size

    np.testing.assert_array_equal(act_sixth_step(policy, state), expected)


def test_act_does_not_write_into_its_state(policy):
    state = act_five_steps(policy).state
    before = [part.copy() for part in state.memory]

    policy.act(OBS[6], state)

    for part, expected in zip(state.memory, before, strict=True):
        np.testing.assert_array_equal(part, expected)
