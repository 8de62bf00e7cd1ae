"""What tests of all packages build: tensors, observations, and models with random weights."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium.vector.utils import batch_space, iterate


def to_tensor(framework: str, values: Any) -> Any:
    """Return a tensor of the framework, with the dtype of the values."""
    if framework == "torch":
        import torch

        return torch.as_tensor(values)
    import tensorflow as tf

    return tf.convert_to_tensor(values)


def to_array(tensor: Any) -> Any:
    """Return a tensor of either framework, or an array, as an array."""
    if hasattr(tensor, "detach"):  # PyTorch's
        tensor = tensor.detach()
    return np.asarray(tensor)


def sample_observations(space: Any, rows: int, seed: int = 0) -> list[Any]:
    """Return observations of a space, the same ones in each call."""
    space.seed(seed)
    return [space.sample() for _ in range(rows)]


def split_rows(space: Any, batch: Any, rows: int) -> list[Any]:
    """Return the single actions or observations of a batch."""
    return list(iterate(batch_space(space, rows), batch))


def randomize_weights(model: Any, deviation: float = 0.3) -> None:
    """Add random numbers to the weights, so that outputs are far from zero and differ by row."""
    rng = np.random.default_rng(0)
    weights = {}
    for name, array in model.get_weights().items():
        noise = rng.normal(0, deviation, array.shape)
        weights[name] = array + noise.astype(array.dtype)
    model.set_weights(weights)


def assert_every_weight_changed(before: dict[str, Any], after: dict[str, Any]) -> None:
    """Assert that each array of weights has changed, and is finite."""
    unchanged = [name for name in before if np.array_equal(before[name], after[name])]
    assert unchanged == []
    assert all(np.isfinite(array).all() for array in after.values())


def assert_ppo_trains_every_weight(env: Any, **config: Any) -> None:
    """Train PPO for one small rollout; each weight must change and be finite.

    Args:
        env: The environment's id, or a function that makes it.
        config: Keys of PPO's config, beside those of a small rollout.
    """
    from rlcatalog_ppo import PPO

    small = {"num_envs": 2, "rollout_length": 16, "minibatch_size": 32, "num_epochs": 1, "seed": 0}
    algo = PPO(env, {**small, **config})
    before = algo.policy.model.get_weights()

    algo.train()

    assert_every_weight_changed(before, algo.policy.model.get_weights())
    algo.stop()


def record_model_inputs(policy: Any, batch: dict[str, Any]) -> dict[str, Any]:
    """Evaluate a batch, and return the input dict that the model receives."""
    inputs: dict[str, Any] = {}
    forward = policy.model.forward

    def record(input_dict: Any, state: Any, seq_lens: Any) -> Any:
        inputs.update(input_dict)
        return forward(input_dict, state, seq_lens)

    policy.model.forward = record
    policy.evaluate(batch)
    return inputs


def assert_same_weights(algorithm: Any, other: Any) -> None:
    """Assert that the policies of two training algorithms have equal weights."""
    others = other.policy.model.get_weights()
    for name, array in algorithm.policy.model.get_weights().items():
        np.testing.assert_array_equal(array, others[name], err_msg=name)
