"""User-written loops for random spaces, with masks and memories: preprocess, module, sample,
adapt, step, evaluate, backward.

Crosses: policy, preprocessors, torch, tf.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import tensorflow as tf
import torch
from builders import to_tensor
from gymnasium import spaces
from gymnasium.vector.utils import batch_space, iterate
from hypothesis import given, strategies as st
from masked_env import allowed, random_mask
from properties import max_examples
from random_actions import contains, flat, nested as action_spaces

import rlcatalog
from rlcatalog.actions import ActionMasks

EPISODES, STEPS = 3, 2
MEMORIES: dict[str, dict[str, Any]] = {
    "none": {},
    "lstm": {"use_lstm": True, "lstm_cell_size": 4},
    "attention": {
        "use_attention": True,
        "attention_dim": 4,
        "attention_head_dim": 4,
        "attention_memory_inference": 3,
        "attention_memory_training": 3,
    },
}
pytestmark = [
    pytest.mark.usefixtures("one_thread", "seeded"),
    # A random space may lack what an option is for, or hardly reach its bounds.
    pytest.mark.filterwarnings("ignore::rlcatalog.errors.CatalogWarning"),
]


leaves = st.sampled_from(
    [
        spaces.Box(-1, 1, (3,), np.float32),
        spaces.Box(-np.inf, np.inf, (2, 2), np.float64),
        spaces.Box(0, 255, (12, 12, 3), np.uint8),
        spaces.Box(0, 9, (2,), np.int64),
        spaces.Discrete(4, start=2),
        spaces.MultiDiscrete([3, 2]),
        spaces.MultiBinary(3),
        spaces.Text(4, charset="abc"),
    ]
)
observation_spaces = st.recursive(
    leaves,
    lambda inner: (
        st.lists(inner, min_size=1, max_size=3).map(spaces.Tuple)
        | st.dictionaries(st.sampled_from("xyz"), inner, min_size=1).map(spaces.Dict)
    ),
    max_leaves=5,
)


class ChecksActions(gym.Env[Any, Any]):
    """Environment that checks each action against its space and the mask that it showed."""

    def __init__(self, observation_space: Any, action_space: Any) -> None:
        self.observation_space = observation_space
        self.action_space = action_space

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, Any]:
        super().reset(seed=seed)
        self.observation_space.seed(seed)
        return self._look()

    def step(self, action: Any) -> Any:
        assert contains(self.action_space, action), action
        assert allowed(self.action_space, action, self.mask), (action, self.mask)
        observation, info = self._look()
        return observation, 1.0, False, False, info

    def _look(self) -> tuple[Any, Any]:
        self.mask = random_mask(self.action_space, self.np_random)
        return self.observation_space.sample(), {"action_mask": self.mask}


@dataclass
class Rollout:
    """What a loop stored, `[episodes, steps, ...]`."""

    obs: Any
    raw_action: Any
    logp: Any
    mask: Any


def collect_rollout(policy: Any, module: Any, seed: int) -> Rollout:
    """Act with the module, as a user's loop does."""
    masks = ActionMasks(policy.resolution.action)
    action_space = policy.action_space
    environments = [ChecksActions(policy.observation_space, action_space) for _ in range(EPISODES)]
    begins = [env.reset(seed=seed + row) for row, env in enumerate(environments)]
    observations, infos = zip(*begins, strict=True)
    state = None
    steps = []
    for _ in range(STEPS):
        encoded = policy.preprocess(list(observations))
        inputs = [to_tensor(policy.framework, encoded)]
        mask = None
        if masks.size:
            mask = masks.matrix([info["action_mask"] for info in infos], EPISODES)
            inputs.append(to_tensor(policy.framework, mask))
        if policy.memory:
            dist, _, state = module(*inputs, state=state)
        else:
            dist, _ = module(*inputs)
        raw = dist.sample()
        logp = np.asarray(dist.logp(raw))
        steps.append((encoded, flat(raw).astype(np.float32), logp, mask))
        actions = iterate(batch_space(action_space, EPISODES), policy.adapt(raw))
        results = [env.step(action) for env, action in zip(environments, actions, strict=True)]
        observations = [obs for obs, *_ in results]
        infos = [info for *_, info in results]
    columns = []
    for column in zip(*steps, strict=True):
        has_values = column[0] is not None  # there may be no mask
        columns.append(np.stack(column, axis=1) if has_values else None)
    return Rollout(*columns)


def evaluate(policy: Any, rollout: Rollout) -> Any:
    """Score the stored steps, each episode as one sequence."""
    batch: dict[str, Any] = {}
    for name, value in vars(rollout).items():
        if name != "logp" and value is not None:
            batch[name] = to_tensor(policy.framework, value.reshape(-1, *value.shape[2:]))
    if policy.memory:
        batch["seq_lens"] = np.full(EPISODES, STEPS, np.int32)
    return policy.evaluate(batch)


def compute_logp_and_gradients(policy: Any, rollout: Rollout) -> tuple[Any, list[Any]]:
    """Return the log probabilities of the stored actions, and the gradients of a loss."""
    if policy.framework == "torch":
        evaluation = evaluate(policy, rollout)
        (evaluation.value.mean() - evaluation.logp.mean()).backward()
        gradients = [weight.grad for weight in policy.model.parameters()]
        return evaluation.logp.detach().numpy(), gradients
    with tf.GradientTape() as tape:
        evaluation = evaluate(policy, rollout)
        loss = tf.reduce_mean(evaluation.value) - tf.reduce_mean(evaluation.logp)
    return evaluation.logp.numpy(), tape.gradient(loss, policy.model.trainable_variables())


def assert_same_logp(logp: Any, rollout: Rollout) -> None:
    """Assert that training scores actions as the loop did."""
    expected = rollout.logp.reshape(-1)
    # The sum over an action's parts rounds in proportion to its size.
    tolerance = 1e-5 * max(1, np.abs(expected).max())
    np.testing.assert_allclose(np.exp(logp - expected), 1, atol=tolerance)


@pytest.mark.parametrize(
    ("framework", "memory"),
    [
        ("torch", "none"),
        ("torch", "lstm"),
        ("torch", "attention"),
        # TensorFlow takes five times as long.
        ("tf", "lstm"),
        pytest.param("tf", "none", marks=pytest.mark.slow),
        pytest.param("tf", "attention", marks=pytest.mark.slow),
    ],
)
@max_examples(200)
@given(observation_spaces, action_spaces, st.integers(0, 2**16))
def test_own_loop_serves_any_spaces(framework, memory, observation_space, action_space, seed):
    config = {"fcnet_hiddens": [8], **MEMORIES[memory]}
    policy = rlcatalog.build(observation_space, action_space, config, framework)

    with torch.no_grad():
        rollout = collect_rollout(policy, policy.as_module(), seed)
    logp, gradients = compute_logp_and_gradients(policy, rollout)

    assert_same_logp(logp, rollout)
    assert gradients
    for gradient in gradients:
        if gradient is not None:  # it is None for a weight without influence
            assert np.isfinite(np.asarray(gradient)).all()


@pytest.mark.parametrize(
    "memory",
    [
        "lstm",
        # `plugins/torch/tests/test_torch_compiled_module.py` compiles modules of both kinds.
        pytest.param("none", marks=pytest.mark.slow),
        pytest.param("attention", marks=pytest.mark.slow),
    ],
)
@max_examples(20)
@given(observation_spaces, action_spaces, st.integers(0, 2**16))
def test_own_loop_compiles_for_any_spaces(memory, observation_space, action_space, seed):
    config = {"fcnet_hiddens": [8], **MEMORIES[memory]}
    policy = rlcatalog.build(observation_space, action_space, config, "torch")
    torch.compiler.reset()
    # The backend "eager" traces the module, and compiles no machine code.
    module = torch.compile(policy.as_module(), fullgraph=True, backend="eager")

    with torch.no_grad():
        rollout = collect_rollout(policy, module, seed)
    logp, _ = compute_logp_and_gradients(policy, rollout)

    assert_same_logp(logp, rollout)
