"""Checks for the conformance kit: PPO's requirements for parts."""

from __future__ import annotations

from rlcatalog.errors import NotServedError
from rlcatalog_ppo.algorithms import PPO
from rlcatalog_testing import (
    ExampleEnv,
    Subject,
    check,
    every_weight_moved,
    refusing,
    trained_weights,
    update_example,
)

#: One small update. TensorFlow runs it eagerly, because tracing would take longer than the update.
_CONFIG = {
    "seed": 0, "num_envs": 2, "rollout_length": 12, "num_epochs": 1, "minibatch_size": 24,
    "lr": 1e-2, "vf_loss_coeff": 0.5, "entropy_coeff": 0.01, "eager_tracing": False,
}  # fmt: skip


@check(
    "trunk",
    "memory",
    "head",
    "action_dist",
    hint="use every weight in the outputs or the value, and store it where the model finds it",
)
def ppo_moves_every_weight(subject: Subject) -> None:
    """A single PPO update changes every weight and keeps all weights finite."""
    example = update_example(subject)
    config = {**_CONFIG, "framework": subject.framework, "model": dict(example.config)}
    with refusing(NotServedError):  # then the check does not apply
        algo = PPO(lambda: ExampleEnv(example), config, catalog=subject.catalog)
    try:
        before = trained_weights(algo.policy.model)
        algo.train()
        every_weight_moved(before, trained_weights(algo.policy.model))
    finally:
        algo.stop()
