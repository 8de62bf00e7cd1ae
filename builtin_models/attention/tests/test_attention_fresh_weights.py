"""Acting goes on with the weights of now: nothing computed with earlier ones is kept from step to
step.
"""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from gymnasium import spaces

import rlcatalog

BOX, TWO = spaces.Box(-1, 1, (3,), np.float32), spaces.Discrete(2)
CONFIG = {
    "use_attention": True,
    "fcnet_hiddens": [8],
    "attention_num_transformer_units": 2,
    "attention_dim": 6,
    "attention_memory_inference": 4,
    "attention_memory_training": 4,
}
OBS = np.random.default_rng(0).uniform(-1, 1, (9, 3, 3)).astype(np.float32)


@pytest.fixture(params=[1, 2], ids=["one head", "two heads"])
def policy(request, scramble):
    """A policy with a transformer of random weights."""
    made = rlcatalog.build(BOX, TWO, {**CONFIG, "attention_num_heads": request.param}, "torch")
    scramble(made.model)
    return made


def another(policy):
    """Return a policy of the same structure."""
    return rlcatalog.build(
        BOX, TWO, {k: policy.config[k] for k in (*CONFIG, "attention_num_heads")}, "torch"
    )


def acted(policy, steps, state=None):
    """Act for some steps; return the last one."""
    for obs in OBS[:steps]:
        step = policy.act(obs, state, explore=False)
        state = step.state
    return step


def recomputed(policy, state):
    """The next step under the weights of now, by a model that never ran before and a state it never
    saw.
    """
    other = another(policy)
    other.model.set_weights(policy.model.get_weights())
    fresh = state._replace(memory=tuple(part.copy() for part in state.memory))
    return other.act(OBS[5], fresh, explore=False).dist_inputs


def assert_new_weights_count(policy, change, changes=True):
    state = acted(policy, 5).state
    old = policy.act(OBS[5], state, explore=False).dist_inputs
    change()
    found = policy.act(OBS[5], state, explore=False).dist_inputs
    np.testing.assert_allclose(found, recomputed(policy, state), rtol=1e-5, atol=1e-6)
    assert changes != np.allclose(found, old, atol=1e-4)


OPTIMISERS = {
    "sgd": lambda parameters: torch.optim.SGD(parameters, lr=0.1),
    "sgd, foreach": lambda parameters: torch.optim.SGD(parameters, lr=0.1, foreach=True),
    "adam": lambda parameters: torch.optim.Adam(parameters, lr=0.1, foreach=False),
    "adam, foreach": lambda parameters: torch.optim.Adam(parameters, lr=0.1, foreach=True),
    "adam, fused": lambda parameters: torch.optim.Adam(parameters, lr=0.1, fused=True),
}


@pytest.mark.parametrize("make", OPTIMISERS.values(), ids=OPTIMISERS)
def test_after_an_optimiser_s_step(policy, make):
    attention = [p for name, p in policy.model.named_parameters() if ".attention." in name]
    optimiser = make(attention)

    def change():
        state = policy.initial_state(1)
        batch = {"obs": OBS[:, 0], "raw_action": np.zeros((9, 1)), "seq_lens": [9], "state": state}
        policy.evaluate(batch).logp.sum().backward()
        optimiser.step()

    assert_new_weights_count(policy, change)


def by_data(policy, other):
    # Polyak averages are often written so; PyTorch's version counters do not see it.
    for p, o in zip(policy.model.parameters(), other.model.parameters(), strict=True):
        p.data.mul_(0.5).add_(0.5 * o.data)


def by_shared_memory(policy, other):
    # As another process would, which trains the same weights.
    for p, o in zip(policy.model.parameters(), other.model.parameters(), strict=True):
        p.detach().numpy()[:] = o.detach().numpy()


CHANGES = {
    "load_state_dict": lambda p, o: p.model.load_state_dict(o.model.state_dict()),
    "load_state_dict, assigned": lambda p, o: p.model.load_state_dict(
        copy.deepcopy(o.model.state_dict()), assign=True
    ),
    "set_weights": lambda p, o: p.model.set_weights(o.model.get_weights()),
    "data": by_data,
    "shared memory": by_shared_memory,
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_after_weights_are_set(policy, change, scramble):
    other = another(policy)
    scramble(other.model, seed=5)
    assert_new_weights_count(policy, lambda: change(policy, other))


def test_a_move_to_a_device_and_a_copy_change_nothing(policy):
    assert_new_weights_count(policy, lambda: policy.to("cpu"), changes=False)
    state = acted(policy, 5).state
    expected = policy.act(OBS[5], state, explore=False).dist_inputs
    model = copy.deepcopy(policy.model)
    with torch.no_grad():
        for parameter in policy.model.parameters():
            parameter.add_(0.5)
    output, _ = model(
        {"obs": torch.from_numpy(OBS[5])}, [torch.from_numpy(part) for part in state.memory]
    )
    np.testing.assert_allclose(output.detach(), expected, rtol=1e-5, atol=1e-6)
    found = policy.act(OBS[5], state, explore=False).dist_inputs
    np.testing.assert_allclose(found, recomputed(policy, state), rtol=1e-5, atol=1e-6)
    assert not np.allclose(found, expected, atol=1e-3)


def test_a_functional_call_with_other_weights(policy, scramble):
    other = another(policy)
    scramble(other.model, seed=5)
    state = acted(policy, 5).state
    obs, memory = torch.from_numpy(OBS[5]), [torch.from_numpy(part.copy()) for part in state.memory]
    weights = dict(other.model.named_parameters())
    for _ in range(2):
        output, _ = torch.func.functional_call(policy.model, weights, ({"obs": obs}, memory))
        np.testing.assert_allclose(output.detach(), recomputed(other, state), rtol=1e-5, atol=1e-6)
        own = policy.act(OBS[5], state, explore=False).dist_inputs
        np.testing.assert_allclose(own, recomputed(policy, state), rtol=1e-5, atol=1e-6)


def test_rows_that_restart_and_steppers_in_turns(policy):
    first, second = policy.stepper(3), policy.stepper(3)
    apart = [acted(policy, 5).dist_inputs]
    for t in range(5):
        one = first.step(OBS[t], done=np.array([False, t == 3, False]), explore=False)
        two = second.step(OBS[8 - t], explore=False)
    np.testing.assert_array_equal(one.dist_inputs[[0, 2]], apart[0][[0, 2]])
    state = None
    for t in range(5):
        alone = policy.act(OBS[8 - t], state, explore=False)
        state = alone.state
    np.testing.assert_array_equal(two.dist_inputs, alone.dist_inputs)
    state = policy.act(OBS[3], explore=False).state
    late = policy.act(OBS[4], state, explore=False)
    np.testing.assert_allclose(one.dist_inputs[1], late.dist_inputs[1], rtol=1e-5, atol=1e-6)
    assert not np.allclose(one.dist_inputs[1], apart[0][1], atol=1e-4)
    np.testing.assert_array_equal(one.state.memory[1], [4, 2, 4])


def test_a_state_taken_up_again(policy):
    step = acted(policy, 5)
    expected = policy.act(OBS[5], step.state, explore=False).dist_inputs
    acted(policy, 3)
    policy.act(OBS[0][:1])
    np.testing.assert_array_equal(
        policy.act(OBS[5], step.state, explore=False).dist_inputs, expected
    )
    before = [part.copy() for part in step.state.memory]
    policy.act(OBS[6], step.state)
    for part, was in zip(step.state.memory, before, strict=True):  # acting writes into no state
        np.testing.assert_array_equal(part, was)
