"""Built-in models under `torch.func`, per-sample gradients and ensembles, against loops."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Dict, Discrete, MultiDiscrete, Tuple
from torch import nn
from torch.func import functional_call, grad, vmap

import rlcatalog
from rlcatalog.spaces import Repeated

pytestmark = [
    pytest.mark.usefixtures("one_thread"),
    # One config serves models of every kind here.
    pytest.mark.filterwarnings("ignore::rlcatalog.errors.UnreadKeysWarning"),
]

THREE_FEATURES = Box(-1, 1, (3,), np.float32)
IMAGE = Box(0, 255, (10, 10, 2), np.uint8)
ATTENTION = {
    "use_attention": True,
    "attention_dim": 8,
    "attention_head_dim": 4,
    "attention_memory_inference": 5,
    "attention_memory_training": 5,
    "attention_position_wise_mlp_dim": 8,
}
#: Name → observation space and config.
MODELS = {
    "fcnet": (THREE_FEATURES, {}),
    "visionnet": (IMAGE, {}),
    "visionnet, floats": (Box(-1, 1, (10, 10, 2), np.float32), {}),
    "visionnet, one channel": (Box(0, 255, (10, 10, 1), np.uint8), {"vf_share_layers": False}),
    "visionnet, impala": (Box(0, 255, (16, 16, 3), np.uint8), {"conv_filters": "impala"}),
    "complex_input": (Dict({"eye": IMAGE, "self": Tuple([Discrete(3), THREE_FEATURES])}), {}),
    "complex_input, lists": (
        Dict({"seen": Repeated(Box(-1, 1, (2,), np.float32), 3), "own": THREE_FEATURES}),
        {"custom_model": "complex_input"},
    ),
    "parametric": (
        Dict({"action_mask": Box(0, 1, (3,), np.int8), "seen": THREE_FEATURES}),
        {"use_parametric": True},
    ),
    "lstm": (THREE_FEATURES, {"use_lstm": True, "lstm_cell_size": 6}),
    "attention": (THREE_FEATURES, ATTENTION),
}
#: Model and number of time steps.
each_run = pytest.mark.parametrize(
    ("model", "steps"), [*[(model, 1) for model in MODELS], ("lstm", 2), ("attention", 2)]
)


class LossOfOneSample(nn.Module):
    """A number that depends on all weights of a policy's model, for one observation.

    With more than one step the observation becomes two sequences, of which the second is a step
    shorter: the padding after it must not count.
    """

    def __init__(self, policy, steps):
        super().__init__()
        self.model = policy.model
        self.steps = steps
        self.state = [torch.from_numpy(part) for part in policy.memory.start(1)]
        self.seq_lens = None
        if steps > 1:
            self.state = [torch.cat([part, part]) for part in self.state]
            self.seq_lens = torch.tensor([steps, steps - 1], dtype=torch.int32)

    def forward(self, x):
        rows = x[None]
        if self.steps > 1:
            rows = torch.stack([x * (0.5**t) for t in range(2 * self.steps)])
        output, _ = self.model({"obs": rows, "is_training": True}, self.state, self.seq_lens)
        loss_of_rows = output[:, :2].square().sum(1) + self.model.value_function()
        if self.steps > 1:
            loss_of_rows = loss_of_rows[:-1]  # without the padding
        return loss_of_rows.sum()


def make_loss(model, steps, action_space=None, **options):
    """Return a loss function (weights, observation), the weights, and three observations."""
    obs_space, config = MODELS[model]
    torch.manual_seed(0)
    policy = rlcatalog.build(
        obs_space,
        action_space or Discrete(3),
        {"fcnet_hiddens": [8], "fcnet_activation": "tanh", **config, **options},
        "torch",
    )
    obs_space.seed(0)
    observations = [obs_space.sample() for _ in range(3)]
    if model == "parametric":
        for obs in observations:
            obs["action_mask"] = np.array([1, 1, 0], np.int8)
    loss = LossOfOneSample(policy, steps)
    weights = {name: parameter.detach() for name, parameter in loss.named_parameters()}

    def compute(weights, x):
        return functional_call(loss, weights, (x,))

    return compute, weights, torch.from_numpy(policy.preprocess(observations))


def compute_gradients(compute_loss, weights, x):
    """Return weight → gradient by PyTorch's autograd; 0 where the loss does not depend on it."""
    leaves = {name: weight.clone().requires_grad_() for name, weight in weights.items()}
    compute_loss(leaves, x).backward()
    gradients = {}
    for name, leaf in leaves.items():
        gradients[name] = torch.zeros_like(leaf) if leaf.grad is None else leaf.grad
    return gradients


@each_run
def test_per_sample_gradients_match_a_loop(model, steps):
    compute_loss, weights, observations = make_loss(model, steps)

    gradients = vmap(grad(compute_loss), in_dims=(None, 0))(weights, observations)

    for i in range(3):
        for name, expected in compute_gradients(compute_loss, weights, observations[i]).items():
            torch.testing.assert_close(gradients[name][i], expected, rtol=1e-4, atol=1e-6)


def test_per_sample_gradients_of_autoregressive_match_a_loop():
    compute_loss, weights, observations = make_loss(
        "visionnet",
        steps=1,
        action_space=Tuple([Discrete(3), MultiDiscrete([2, 3])]),
        use_autoregressive=True,
        autoregressive_hiddens=[4],
    )

    gradients = vmap(grad(compute_loss), in_dims=(None, 0))(weights, observations)

    for i in range(3):  # there are three observations
        expected = compute_gradients(compute_loss, weights, observations[i])
        name = "model.to_context.weight"  # a layer that only autoregressive models have
        torch.testing.assert_close(gradients[name][i], expected[name], rtol=1e-4, atol=1e-6)
