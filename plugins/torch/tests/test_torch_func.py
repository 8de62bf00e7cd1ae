"""Built-in models under torch.func: gradients of single samples, and ensembles; a loop over them is
the truth.
"""

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
    # One config serves parts of every kind here.
    pytest.mark.filterwarnings("ignore::rlcatalog.errors.UnreadKeysWarning"),
]

VECTOR, IMAGE = Box(-1, 1, (3,), np.float32), Box(0, 255, (10, 10, 2), np.uint8)
ATTENTION = {
    "use_attention": True,
    "attention_dim": 8,
    "attention_head_dim": 4,
    "attention_memory_inference": 5,
    "attention_memory_training": 5,
    "attention_position_wise_mlp_dim": 8,
}
SHOWN = Dict({"action_mask": Box(0, 1, (3,), np.int8), "seen": VECTOR})
LISTS = Dict({"seen": Repeated(Box(-1, 1, (2,), np.float32), 3), "own": VECTOR})
MODELS = {
    "fcnet": (VECTOR, {}),
    "visionnet": (IMAGE, {}),
    "visionnet, floats": (Box(-1, 1, (10, 10, 2), np.float32), {}),
    "visionnet, one channel": (Box(0, 255, (10, 10, 1), np.uint8), {"vf_share_layers": False}),
    "visionnet, impala": (Box(0, 255, (16, 16, 3), np.uint8), {"conv_filters": "impala"}),
    "complex_input": (Dict({"eye": IMAGE, "self": Tuple([Discrete(3), VECTOR])}), {}),
    "complex_input, lists": (LISTS, {"custom_model": "complex_input"}),
    "parametric": (SHOWN, {"use_parametric": True}),
    "lstm": (VECTOR, {"use_lstm": True, "lstm_cell_size": 6}),
    "attention": (VECTOR, ATTENTION),
}
SMALL = {"fcnet_hiddens": [8], "fcnet_activation": "tanh"}
PARTS = Tuple([Discrete(3), MultiDiscrete([2, 3])])


class Loss(nn.Module):
    """A number that depends on all weights of a model but those of the conditionals, for one
    observation.
    """

    def __init__(self, policy, steps):
        super().__init__()
        self.model = policy.model
        self.state = [torch.from_numpy(part) for part in policy.memory.start(1)]
        self.steps, self.seq_lens = (
            steps,
            None if steps == 1 else torch.tensor([steps, steps - 1], dtype=torch.int32),
        )
        if steps > 1:
            self.state = [torch.cat([part, part]) for part in self.state]

    def forward(self, x):
        rows = x[None]
        # Two sequences, the second one a step shorter: what stands behind it counts for nothing.
        if self.steps > 1:
            rows = torch.stack([x * (0.5**t) for t in range(2 * self.steps)])
        output, _ = self.model({"obs": rows, "is_training": True}, self.state, self.seq_lens)
        found = output[:, :2].square().sum(1) + self.model.value_function()
        return found[: 2 * self.steps - 1].sum()


def setting(kind, steps, dependent=False):
    space, config = MODELS[kind]
    action, extra = (
        (PARTS, {"use_autoregressive": True, "autoregressive_hiddens": [4]})
        if dependent
        else (Discrete(3), {})
    )
    torch.manual_seed(0)
    policy = rlcatalog.build(space, action, {**SMALL, **config, **extra}, "torch")
    space.seed(0)
    observed = [space.sample() for _ in range(3)]
    if kind == "parametric":
        observed = [{**obs, "action_mask": np.array([1, 1, 0], np.int8)} for obs in observed]
    loss = Loss(policy, steps)
    weights = {name: p.detach() for name, p in loss.named_parameters()}
    run = lambda weights, x: functional_call(loss, weights, (x,))  # noqa: E731
    return run, weights, torch.from_numpy(policy.preprocess(observed))


RUNS = [(kind, 1) for kind in MODELS] + [("lstm", 2), ("attention", 2)]


@pytest.mark.parametrize(("kind", "steps"), RUNS)
def test_gradients_of_single_samples(kind, steps):
    run, weights, observed = setting(kind, steps)
    expected = []
    for x in observed:
        leaves = {name: w.clone().requires_grad_() for name, w in weights.items()}
        run(leaves, x).backward()
        expected.append({name: leaf.grad for name, leaf in leaves.items() if leaf.grad is not None})
    found = vmap(grad(run), in_dims=(None, 0))(weights, observed)
    assert expected[0]
    for name, gradient in found.items():
        single = torch.stack([one.get(name, torch.zeros_like(weights[name])) for one in expected])
        torch.testing.assert_close(gradient, single, rtol=1e-4, atol=1e-6)


def test_gradients_of_single_samples_before_dependent_actions():
    run, weights, observed = setting("visionnet", 1, dependent=True)
    expected = torch.stack([grad(run)(weights, x)["model.to_context.weight"] for x in observed])
    found = vmap(grad(run), in_dims=(None, 0))(weights, observed)["model.to_context.weight"]
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(("kind", "steps"), RUNS)
def test_ensembles(kind, steps):
    run, weights, observed = setting(kind, steps)
    members = [weights, {name: -0.5 * w for name, w in weights.items()}]
    stacked = {name: torch.stack([member[name] for member in members]) for name in weights}
    both = vmap(vmap(run, in_dims=(None, 0)), in_dims=(0, None))
    expected = torch.stack([torch.stack([run(member, x) for x in observed]) for member in members])
    torch.testing.assert_close(both(stacked, observed), expected.detach(), rtol=1e-4, atol=1e-5)
