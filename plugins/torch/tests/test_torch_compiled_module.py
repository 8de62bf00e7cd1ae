"""`torch.compile(policy.as_module(), fullgraph=True)`, against the module that is not compiled."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Tuple

import rlcatalog
from rlcatalog.errors import ActionMaskError, ObservationError
from rlcatalog.spaces import Simplex

pytestmark = [
    pytest.mark.usefixtures("one_thread", "seeded", "_forget_compiled"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),  # PyTorch's compiler uses TorchScript
]

THREE_FEATURES = Box(-1, 1, (3,), np.float32)
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
def _forget_compiled():
    """Let each test start without compiled code."""
    torch.compiler.reset()
    yield
    torch.compiler.reset()


def build_policy(action_space, obs_space=THREE_FEATURES, **config):
    return rlcatalog.build(obs_space, action_space, config, "torch")


def random_observations(rows):
    obs = np.random.default_rng(0).uniform(-1, 1, (rows, 3))
    return torch.from_numpy(obs.astype(np.float32))


def assert_same_if_compiled(module, *arguments, **options):
    """Check that a compiled module returns what the module returns, without a warning."""
    compiled = torch.compile(module, fullgraph=True, backend="eager")
    dist, value, *state = compiled(*arguments, **options)
    expected_dist, expected_value, *expected_state = module(*arguments, **options)
    sample = expected_dist.sample()
    torch.testing.assert_close(dist.inputs, expected_dist.inputs)
    torch.testing.assert_close(dist.logp(sample), expected_dist.logp(sample))
    torch.testing.assert_close(value, expected_value)
    torch.testing.assert_close(state, expected_state)


@pytest.mark.parametrize("name", ACTIONS)
def test_compiled_module_returns_any_distribution(name):
    action_space, config = ACTIONS[name]
    module = build_policy(action_space, **config).as_module()

    assert_same_if_compiled(module, random_observations(5))


@pytest.mark.parametrize("name", ["discrete", "choices", "bits", "nested"])
def test_compiled_module_applies_masks(name):
    action_space, config = ACTIONS[name]
    policy = build_policy(action_space, **config)
    mask = torch.ones(5, policy.masks.size, dtype=torch.bool)
    mask[1:, 0] = False  # the first value, in all rows but one

    assert_same_if_compiled(policy.as_module(), random_observations(5), mask)


each_memory = pytest.mark.parametrize("config", [LSTM, ATTENTION], ids=["lstm", "attention"])


@each_memory
def test_compiled_module_updates_its_state(config):
    module = build_policy(Discrete(4), **config).as_module()
    state = tuple(part + 0.3 for part in module.initial_state(5))
    allow_all = torch.ones(5, 4, dtype=torch.bool)

    assert_same_if_compiled(module, random_observations(5), allow_all, state=state)


@each_memory
def test_compiled_module_reads_sequences(config):
    module = build_policy(Discrete(4), **config).as_module()
    state = tuple(part + 0.3 for part in module.initial_state(2))

    assert_same_if_compiled(module, random_observations(6), state=state, seq_lens=[3, 3])


def compute_gradients(module, mask):
    module.zero_grad()
    dist, value, *_ = module(random_observations(4), mask)
    # Squares, so that the gradients depend on what the module returned.
    loss = dist.inputs.square().mean() + value.square().mean()
    loss.backward()
    return [weight.grad for weight in module.parameters()]


@pytest.mark.parametrize(
    "backend",
    [
        # The graphs of both passes, as the default compiler gets them.
        "aot_eager_decomp_partition",
        # The default compiler makes machine code of them, by a C++ compiler that takes half a
        # minute.
        pytest.param("inductor", marks=pytest.mark.slow),
    ],
)
@pytest.mark.parametrize("config", [{}, LSTM], ids=["fcnet", "lstm"])
def test_compiled_module_has_the_same_gradients(config, backend):
    policy = build_policy(NESTED, **config)
    module = policy.as_module()
    allow_all = torch.ones(4, policy.masks.size, dtype=torch.bool)

    compiled = torch.compile(module, fullgraph=True, backend=backend)
    gradients_of_compiled = compute_gradients(compiled, allow_all)

    gradients = compute_gradients(module, allow_all)
    torch.testing.assert_close(gradients_of_compiled, gradients, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    ("obs_space", "action_space"),
    [
        (Box(0, 255, (10, 10, 3), np.uint8), Discrete(4)),
        (Box(0, 255, (6,), np.uint8), Discrete(4)),
        (Dict({"eye": Box(0, 255, (10, 10, 3), np.uint8), "item": Discrete(3)}), ARM),
    ],
    ids=["image", "bytes", "dict"],
)
def test_compiled_module_reads_any_observations(obs_space, action_space):
    policy = build_policy(action_space, obs_space)
    encoded = policy.preprocess([obs_space.sample() for _ in range(3)])

    assert_same_if_compiled(policy.as_module(), torch.from_numpy(encoded))


def test_compiled_module_follows_a_change_of_precision():
    module = build_policy(Discrete(4)).as_module()

    assert_same_if_compiled(module, random_observations(3))
    assert_same_if_compiled(module.double(), random_observations(3))


def test_module_is_compiled_once_for_several_calls():
    # What a model keeps of its last pass must not count as an input of the next one, because
    # PyTorch compiles again if an input has changed.
    graphs = []

    def record_graph(graph, inputs):
        graphs.append(graph)
        return graph.forward

    module = build_policy(Discrete(4)).as_module()
    compiled = torch.compile(module, fullgraph=True, backend=record_graph)
    for _ in range(3):
        compiled(random_observations(3))

    assert len(graphs) == 1


@pytest.fixture
def masked_module():
    """A compiled module that needs a mask of four actions."""
    obs_space = Dict({"obs": THREE_FEATURES, "action_mask": MultiBinary(4)})
    return torch.compile(build_policy(Discrete(4), obs_space).as_module(), backend="eager")


def test_compiled_module_without_mask_is_an_error(masked_module):
    with pytest.raises(ActionMaskError, match="none is given"):
        masked_module(random_observations(2))


@pytest.mark.parametrize("shape", [(2, 3), (1, 4)], ids=str)
def test_compiled_module_with_mask_of_wrong_shape_is_an_error(masked_module, shape):
    with pytest.raises(ActionMaskError, match=r"expected shape \(2, 4\)"):
        masked_module(random_observations(2), torch.ones(shape))


def test_compiled_module_with_narrow_observations_is_an_error(masked_module):
    with pytest.raises(ObservationError, match=r"\[B, 3\]"):
        masked_module(random_observations(2)[:, :2], None)
