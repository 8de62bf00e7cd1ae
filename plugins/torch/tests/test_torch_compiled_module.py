"""`torch.compile(policy.as_module(), fullgraph=True)`; the module itself is the truth."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Tuple

import rlcatalog
from rlcatalog.errors import ActionMaskError, ObservationError
from rlcatalog.spaces import Simplex

pytestmark = [
    pytest.mark.usefixtures("one_thread", "seeded", "forgotten"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),  # PyTorch's compiler uses TorchScript
]

OBS = Box(-1, 1, (3,), np.float32)
ARM = Box(-2, 3, (2,), np.float32)
NESTED = Dict({"go": Discrete(4), "arms": Tuple([MultiDiscrete([2, 3]), ARM, Discrete(2)])})
ACTIONS = {
    "discrete": (Discrete(4), {}),
    "choices": (MultiDiscrete([2, 3]), {}),
    "bits": (MultiBinary(3), {}),
    "gaussian": (ARM, {}),
    "squashed": (ARM, {"custom_action_dist": "squashed_gaussian"}),
    "beta": (ARM, {"custom_action_dist": "beta"}),
    "shares": (Simplex((3,)), {}),
    "laplace": (ARM, {"custom_action_dist": torch.distributions.Laplace}),
    "nested": (NESTED, {}),
    "dependent": (Tuple([Discrete(3), ARM]), {"custom_action_dist": "autoregressive"}),
}
LSTM = {"use_lstm": True, "lstm_cell_size": 5}
ATTENTION = {"use_attention": True, "attention_dim": 8, "attention_memory_inference": 4}


@pytest.fixture
def forgotten():
    """Forget what was compiled, so that each test starts anew."""
    torch.compiler.reset()
    yield
    torch.compiler.reset()


def policy_of(action, config, obs=OBS):
    return rlcatalog.build(obs, action, config, "torch")


def observations(rows):
    return torch.from_numpy(np.random.default_rng(0).uniform(-1, 1, (rows, 3)).astype(np.float32))


def check_compiled(module, *given, backend="eager", **others):
    """Assert that the compiled module returns what the module returns, without a warning that a
    user could see.
    """
    compiled = torch.compile(module, fullgraph=True, backend=backend)
    found, value, *state = compiled(*given, **others)
    expected, expected_value, *expected_state = module(*given, **others)
    raw = expected.sample()
    torch.testing.assert_close(found.inputs, expected.inputs)
    torch.testing.assert_close(found.logp(raw), expected.logp(raw))
    torch.testing.assert_close(value, expected_value)
    torch.testing.assert_close(state, expected_state)


@pytest.mark.parametrize("name", ACTIONS)
def test_compiled_module_has_no_break(name):
    action, config = ACTIONS[name]
    check_compiled(policy_of(action, config).as_module(), observations(5))


@pytest.mark.parametrize("name", ["discrete", "choices", "bits", "nested"])
def test_compiled_module_masks(name):
    action, config = ACTIONS[name]
    policy = policy_of(action, config)
    mask = torch.ones(5, policy.masks.size, dtype=torch.bool)
    mask[1:, 0] = False
    check_compiled(policy.as_module(), observations(5), mask)


@pytest.mark.parametrize("config", [LSTM, ATTENTION], ids=["lstm", "attention"])
def test_compiled_module_steps_a_memory(config):
    module = policy_of(Discrete(4), config).as_module()
    state = tuple(part + 0.3 for part in module.initial_state(5))
    check_compiled(module, observations(5), torch.ones(5, 4, dtype=torch.bool), state=state)


@pytest.mark.parametrize("config", [LSTM, ATTENTION], ids=["lstm", "attention"])
def test_compiled_module_reads_sequences(config):
    module = policy_of(Discrete(4), config).as_module()
    state = tuple(part + 0.3 for part in module.initial_state(2))
    check_compiled(module, observations(6), state=state, seq_lens=[3, 3])


@pytest.mark.parametrize("config", [{}, LSTM], ids=["fcnet", "lstm"])
def test_compiled_module_runs_in_machine_code(config):
    """PyTorch's default compiler, with gradients."""
    policy = policy_of(NESTED, config)
    module, mask = policy.as_module(), torch.ones(4, policy.masks.size, dtype=torch.bool)
    check_compiled(module, observations(4), mask, backend="inductor")
    compiled, gradients = torch.compile(module, fullgraph=True), []
    for forward in (compiled, module):
        module.zero_grad()
        dist, value, *_ = forward(observations(4), mask)
        (dist.inputs.square().mean() + value.mean()).backward()
        gradients.append([weight.grad for weight in module.parameters()])
    torch.testing.assert_close(*gradients, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    ("observation_space", "action"),
    [
        (Box(0, 255, (10, 10, 3), np.uint8), Discrete(4)),
        (Box(0, 255, (6,), np.uint8), Discrete(4)),
        (Dict({"eye": Box(0, 255, (10, 10, 3), np.uint8), "item": Discrete(3)}), ARM),
    ],
    ids=["image", "bytes", "dict"],
)
def test_compiled_module_reads_observations(observation_space, action):
    policy = policy_of(action, {}, observation_space)
    encoded = policy.preprocess([observation_space.sample() for _ in range(3)])
    check_compiled(policy.as_module(), torch.from_numpy(encoded))


def test_compiled_module_follows_the_precision_of_its_weights():
    module = policy_of(Discrete(4), {}).as_module()
    check_compiled(module, observations(3))
    check_compiled(module.double(), observations(3))


def test_compiled_module_is_compiled_once():
    """What a model keeps of its last pass must not count as an input of the next one."""
    graphs = []

    def backend(graph, inputs):
        graphs.append(graph)
        return graph.forward

    module = policy_of(Discrete(4), {}).as_module()
    compiled = torch.compile(module, fullgraph=True, backend=backend)
    for _ in range(3):
        compiled(observations(3))
    assert len(graphs) == 1


def test_compiled_module_refuses_wrong_shapes():
    masked = policy_of(Discrete(4), {}, Dict({"obs": OBS, "action_mask": MultiBinary(4)}))
    module = torch.compile(masked.as_module(), backend="eager")
    with pytest.raises(ActionMaskError, match="none is given"):
        module(observations(2))
    with pytest.raises(ActionMaskError, match=r"expected shape \(2, 4\)"):
        module(observations(2), torch.ones(2, 3))
    with pytest.raises(ActionMaskError, match=r"expected shape \(2, 4\)"):
        module(observations(2), torch.ones(1, 4))
    with pytest.raises(ObservationError, match=r"\[B, 3\]"):
        module(observations(2)[:, :2], None)
