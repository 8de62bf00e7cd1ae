"""The contract of a distribution: its methods return tensors of the policy's framework."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from gymnasium import spaces

import rlcatalog
from rlcatalog import ActionDistribution
from rlcatalog.errors import ModelContractError
from rlcatalog_tf import tf

TWO_OBSERVATIONS = np.zeros((2, 3), np.float32)
TENSORS = {"torch": torch.zeros(2), "tf": tf.zeros(2)}
both_frameworks = pytest.mark.parametrize("framework", ["torch", "tf"])


def build_policy(framework, **results):
    """Build a policy with a distribution whose methods return these results, and otherwise tensors
    of the framework.
    """
    tensor = TENSORS[framework]

    class MyActionDist(ActionDistribution):
        """A distribution as in RLlib's documentation."""

        @staticmethod
        def required_model_output_shape(action_space, model_config):
            return 7

        def sample(self):
            return results.get("sample", tensor)

        def deterministic_sample(self):
            return results.get("deterministic_sample", tensor)

        def logp(self, actions):
            return results.get("logp", tensor)

        def entropy(self):
            return results.get("entropy", tensor)

        def kl(self, other):
            return results.get("kl", tensor)

    config = {"custom_action_dist": MyActionDist, "fcnet_hiddens": [4]}
    obs_space = spaces.Box(-1, 1, (3,), np.float32)
    return rlcatalog.build(obs_space, spaces.Discrete(4), config, framework)


@both_frameworks
@pytest.mark.parametrize(("method", "explore"), [("sample", True), ("deterministic_sample", False)])
def test_sample_without_tensors_is_an_error(framework, method, explore):
    policy = build_policy(framework, **{method: np.zeros(2, np.float32)})

    with pytest.raises(ModelContractError, match=rf"\.{method}\(\) must return tensors") as caught:
        policy.act(TWO_OBSERVATIONS, explore=explore)

    assert "found ndarray" in str(caught.value)


@pytest.mark.parametrize(
    ("framework", "other", "tensor_type"),
    [("torch", "tf", "EagerTensor"), ("tf", "torch", "Tensor")],
)
def test_sample_of_another_framework_error_names_that_one(framework, other, tensor_type):
    policy = build_policy(framework, sample=TENSORS[other])

    with pytest.raises(ModelContractError, match=f"'{framework}'; found {tensor_type} ") as caught:
        policy.act(TWO_OBSERVATIONS)

    advice = f"name the framework that the class is written for: framework='{other}'."
    assert str(caught.value).endswith(advice)


@both_frameworks
def test_exploring_does_not_need_deterministic_sample(framework):
    policy = build_policy(framework, deterministic_sample="wrong")

    policy.act(TWO_OBSERVATIONS)  # no error


@both_frameworks
def test_logp_without_tensors_is_an_error_in_act(framework):
    policy = build_policy(framework, logp=np.zeros(2, np.float32))

    with pytest.raises(ModelContractError, match=r"logp\(\) must return tensors") as caught:
        policy.act(TWO_OBSERVATIONS)

    assert str(caught.value).startswith("MyActionDist.logp()")
    assert "found ndarray" in str(caught.value)


#: Two rows for `evaluate`; the distribution has 7 inputs.
BATCH = {
    "obs": TWO_OBSERVATIONS,
    "raw_action": np.zeros((2, 1), np.int64),
    "dist_inputs": np.zeros((2, 7), np.float32),
}


@both_frameworks
def test_evaluate_accepts_tensors_of_the_framework(framework):
    build_policy(framework).evaluate(BATCH)  # no error


@both_frameworks
@pytest.mark.parametrize("method", ["logp", "entropy", "kl"])
def test_method_without_tensors_is_an_error_in_evaluate(framework, method):
    policy = build_policy(framework, **{method: np.zeros(2, np.float32)})

    with pytest.raises(ModelContractError, match=rf"{method}\(\) must return tensors") as caught:
        policy.evaluate(BATCH)

    assert str(caught.value).startswith(f"MyActionDist.{method}()")
    assert "found ndarray" in str(caught.value)
