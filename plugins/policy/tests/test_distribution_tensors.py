"""The contract of a distribution: what it returns are tensors of the policy's framework."""

from __future__ import annotations

import re

import numpy as np
import pytest
import torch
from gymnasium import spaces

import rlcatalog
from rlcatalog import ActionDistribution
from rlcatalog.errors import ModelContractError
from rlcatalog.spaces import TupleActions
from rlcatalog_tf import tf

SPACE, ACTIONS = spaces.Box(-1, 1, (3,), np.float32), spaces.Discrete(4)
ROWS = 2
#: Who makes the values → two rows of zeros.
VALUES = {
    "torch": lambda: torch.zeros(ROWS),
    "tf": lambda: tf.zeros(ROWS),
    "numpy": lambda: np.zeros(ROWS, np.float32),
    "a list": lambda: [0.0] * ROWS,
    "None": lambda: None,
    "a tuple": lambda: (np.zeros(ROWS, np.float32),),
    "TupleActions": lambda: TupleActions([np.zeros(ROWS, np.float32)]),
    "nothing": lambda: (),
}
both = pytest.mark.parametrize("framework", ["torch", "tf"])


class MyActionDist(ActionDistribution):
    """As in RLlib's documentation; each method returns what the test says."""

    returned: dict[str, str]

    @staticmethod
    def required_model_output_shape(action_space, model_config):
        return 7

    def _of(self, method):
        return VALUES[self.returned.get(method, self.returned["others"])]()

    def sample(self):
        return self._of("sample")

    def deterministic_sample(self):
        return self._of("deterministic_sample")

    def logp(self, actions):
        return self._of("logp")

    def entropy(self):
        return self._of("entropy")

    def kl(self, other):
        return self._of("kl")


def policy_of(framework, **returned):
    cls = type("MyActionDist", (MyActionDist,), {"returned": {"others": framework, **returned}})
    return rlcatalog.build(
        SPACE, ACTIONS, {"custom_action_dist": cls, "fcnet_hiddens": [4]}, framework
    )


def obs():
    return np.zeros((ROWS, 3), np.float32)


def refused(method, framework, kind, way_out):
    """Return a pattern of the message: who, what was expected and found, and what to do."""
    return (
        rf"^MyActionDist\.{method}\(\) must return tensors of the policy's framework,"
        rf" '{framework}'; found {kind} .*\. Return such tensors, or name the framework that the"
        rf" class is written for: {re.escape(way_out)}\.$"
    )


FOREIGN = [
    (name, kind)
    for name, kind in (
        ("numpy", "ndarray"),
        ("a list", "float"),
        ("None", "NoneType"),
        ("a tuple", "ndarray"),
        ("TupleActions", "ndarray"),
        ("nothing", "tuple"),
    )
]


@both
@pytest.mark.parametrize(("values", "kind"), FOREIGN)
def test_a_sample_of_no_framework_is_refused(framework, values, kind):
    other = {"torch": "tf", "tf": "torch"}[framework]
    with pytest.raises(
        ModelContractError, match=refused("sample", framework, kind, f"framework='{other}'")
    ):
        policy_of(framework, sample=values).act(obs())


@pytest.mark.parametrize(
    ("framework", "other", "kind"), [("torch", "tf", "EagerTensor"), ("tf", "torch", "Tensor")]
)
def test_a_sample_of_another_framework_is_refused_naming_that_one(framework, other, kind):
    with pytest.raises(
        ModelContractError, match=refused("sample", framework, kind, f"framework='{other}'")
    ):
        policy_of(framework, sample=other).act(obs())
    policy = policy_of(framework, deterministic_sample=other)
    policy.act(obs())
    with pytest.raises(
        ModelContractError,
        match=refused("deterministic_sample", framework, kind, f"framework='{other}'"),
    ):
        policy.act(obs(), explore=False)


@both
def test_a_log_density_of_another_library_is_refused(framework):
    with pytest.raises(
        ModelContractError, match=r"MyActionDist\.logp\(\) must return tensors.*found ndarray"
    ):
        policy_of(framework, logp="numpy").act(obs())


@both
@pytest.mark.parametrize("method", ["logp", "entropy", "kl"])
def test_what_training_reads_must_be_tensors_of_the_framework(framework, method):
    batch = {
        "obs": obs(),
        "raw_action": np.zeros((ROWS, 1), np.int64),
        "dist_inputs": np.zeros((ROWS, 7), np.float32),
    }
    policy_of(framework).evaluate(batch)
    with pytest.raises(
        ModelContractError, match=rf"MyActionDist\.{method}\(\) must return tensors.*found ndarray"
    ):
        policy_of(framework, **{method: "numpy"}).evaluate(batch)
