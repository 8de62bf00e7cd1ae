"""Plain modules: forms, observations, memories and actions in pairs, through training, acting,
freezing, saving and exporting.
"""

from __future__ import annotations

import functools
import warnings

import numpy as np
import plain_nets
import pytest
from grids import covering
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, Tuple
from pairwise import pairwise

import rlcatalog
from rlcatalog_policy import Frozen
from rlcatalog_ppo import PPO
from rlcatalog_testing import (
    Example,
    ExampleEnv,
    every_weight_moved,
    observations_of,
    trained_weights,
)

pytestmark = pytest.mark.usefixtures("one_thread", "seeded")

VECTOR = Box(-1, 1, (4,), np.float32)
IMAGE = Box(0, 255, (6, 5, 3), np.uint8)
ACTIONS = {
    "discrete": Discrete(3),
    "box": Box(-1, 1, (2,), np.float32),
    "tuple": Tuple([Discrete(3), Box(-1, 1, (2,), np.float32)]),
}
MASKS = {"discrete": MultiBinary(3), "tuple": Tuple([MultiBinary(3)])}
OBS = {"box": VECTOR, "image": IMAGE, "tuple": Tuple([VECTOR, Discrete(3), IMAGE])}
MEMORIES = {
    "none": {},
    "lstm": {"use_lstm": True, "lstm_cell_size": 6},
    "attention": {
        "use_attention": True,
        "attention_dim": 8,
        "attention_num_heads": 2,
        "attention_head_dim": 4,
        "attention_memory_inference": 4,
        "attention_memory_training": 4,
        "attention_position_wise_mlp_dim": 8,
    },
}
FACTORS = {
    "framework": ["torch", "tf"],
    "form": ["class", "instance", "factory"],
    "obs": [*OBS, "dict with mask"],
    "memory": list(MEMORIES),
    "action": list(ACTIONS),
    "share": [True, False],
}


def is_valid(case):
    """Return whether a case can be built."""
    if case["obs"] == "dict with mask" and case["action"] != "discrete":
        return False
    # An instance has only one set of weights, so the value cannot have its own.
    return case["form"] != "instance" or case["share"]


CASES = pairwise(FACTORS, is_valid, seed=1)
#: `make test` runs cases in which each value occurs in PyTorch, and one in TensorFlow; exports are
#: slow, so it has only that one of them.
TORCH_CASES = [i for i, case in enumerate(CASES) if case["framework"] == "torch"]
TF_CASES = [
    i for i, case in enumerate(CASES) if case["framework"] == "tf" and case["memory"] == "none"
]
COVERING = covering([tuple(CASES[i].values()) for i in TORCH_CASES])
IN_TEST = {TF_CASES[0], *(TORCH_CASES[place] for place in COVERING)}
EXPORTED_IN_TEST = {TF_CASES[0]}


def create_example(case):
    """Return the spaces of a case, with observations whose masks forbid one of three actions."""
    action = ACTIONS[case["action"]]
    if case["obs"] != "dict with mask":
        return Example(OBS[case["obs"]], action)
    obs = Dict(
        {"a": VECTOR, "b": Tuple([Discrete(3), IMAGE]), "action_mask": MASKS[case["action"]]}
    )

    def draw(rng):
        obs.seed(int(rng.integers(2**31)))
        mask = np.ones(3, np.int8)
        mask[rng.integers(3)] = 0
        return {**obs.sample(), "action_mask": mask}

    return Example(obs, action, draw=draw)


def input_space(obs, framework):
    """Return the space that a plain module of a framework gets, written out kind by kind."""
    if isinstance(obs, Dict):
        parts = {key: part for key, part in obs.items() if key != "action_mask"}
        return Dict({key: input_space(part, framework) for key, part in parts.items()})
    if isinstance(obs, Tuple):
        return Tuple([input_space(part, framework) for part in obs])
    if isinstance(obs, Discrete):
        return Box(0, 1, (int(obs.n),), np.float32)  # one-hot
    if obs is IMAGE:
        shape = (3, 6, 5) if framework == "torch" else (6, 5, 3)
        return Box(0, 1, shape, np.float32)  # scaled, and channels first in PyTorch
    return obs


def create_model(case, obs):
    """Return a plain module in the form of a case: an instance, a class or a factory."""
    nets = pytest.importorskip("plain_nets_tf") if case["framework"] == "tf" else plain_nets
    if case["form"] == "instance":
        return nets.PlainNet(input_space(obs, case["framework"]))
    if case["form"] == "class":
        return nets.PlainNet
    return functools.partial(nets.PlainNet, hidden=5)


def model_config(case):
    config = dict(MEMORIES[case["memory"]])
    if case["memory"] != "none":
        config["max_seq_len"] = 4
    if not case["share"]:
        config["vf_share_layers"] = False
    return config


def add_noise(model):
    """Change every weight, so that none has the value with which it begins."""
    rng = np.random.default_rng(0)
    weights = {}
    for name, array in model.get_weights().items():
        weights[name] = array + rng.normal(0, 0.1, array.shape).astype(array.dtype)
    model.set_weights(weights)


class PlainPolicy:
    """A policy with the plain module of a case, and what it does for four observations."""

    def __init__(self, case):
        self.case = case
        self.example = create_example(case)
        self.model = create_model(case, self.example.obs)
        self.policy = rlcatalog.build(
            self.example.obs,
            self.example.action,
            model_config(case),
            case["framework"],
            model=self.model,
        )
        self.observations = observations_of(self.example, 4)
        self.policy.act(self.observations)  # Keras creates variables at the first call
        add_noise(self.policy.model)
        self.step = self.policy.act(self.observations, explore=False)


@pytest.fixture
def plain(case):
    return PlainPolicy(case)


def each_case(in_test, is_wanted=lambda case: True):
    """Run a test for all cases; those not in a set of places are for `make attack`."""
    parameters = []
    for i, case in enumerate(CASES):
        if not is_wanted(case):
            continue
        marks = () if i in in_test else pytest.mark.attack
        label = "-".join(str(value) for value in case.values())
        parameters.append(pytest.param(case, id=label, marks=marks))
    return pytest.mark.parametrize("case", parameters)


@each_case(IN_TEST)
def test_ppo_trains_every_weight_of_a_plain_module(case):
    example = create_example(case)
    config = {
        "num_envs": 2,
        "rollout_length": 8,
        "num_epochs": 1,
        "minibatch_size": 16,
        "framework": case["framework"],
        "model": model_config(case),
        "lr": 0.01,
        "frozen": "never",
    }
    make_env = functools.partial(ExampleEnv, example)
    algo = PPO(make_env, config, model=create_model(case, example.obs))
    before = trained_weights(algo.policy.model)

    algo.train()
    algo.stop()

    every_weight_moved(before, trained_weights(algo.policy.model))


@each_case(IN_TEST)
def test_actions_lie_in_the_space(plain):
    for action in split_rows(plain.step.action, 4):
        assert plain.example.action.contains(action)


@each_case(IN_TEST, is_wanted=lambda case: case["obs"] == "dict with mask")
def test_masked_policy_takes_allowed_actions(plain):
    actions = plain.policy.act(plain.observations).raw_action[:, 0].astype(int)
    for obs, action in zip(plain.observations, actions, strict=True):
        assert obs["action_mask"][action]


@each_case(IN_TEST)
def test_evaluate_scores_actions_as_act_did(plain):
    policy = plain.policy
    batch = {
        "obs": policy.preprocess(plain.observations),
        "raw_action": plain.step.raw_action,
        "mask": policy.action_mask(plain.observations),
    }

    logp = policy.evaluate(batch).logp

    if plain.case["framework"] == "torch":
        logp = logp.detach()
    np.testing.assert_allclose(logp.numpy(), plain.step.logp, rtol=1e-4, atol=1e-5)


def assert_same_outputs(policy, plain, atol):
    step = policy.act(plain.observations, explore=False)
    np.testing.assert_allclose(step.dist_inputs, plain.step.dist_inputs, atol=atol)


@each_case(IN_TEST)
def test_frozen_plain_module_acts_as_its_policy(plain):
    frozen = plain.policy.freeze(4)

    assert isinstance(frozen, Frozen)
    if plain.case["framework"] == "torch":  # in TensorFlow no graph is recorded
        assert frozen.reason is None
    assert_same_outputs(frozen, plain, atol=1e-5)


@each_case(IN_TEST)
def test_loaded_plain_module_acts_as_its_policy(plain, tmp_path):
    plain.policy.save(tmp_path)
    # An instance has the weights of the policy already, so load takes a new one.
    model = create_model(plain.case, plain.example.obs)

    loaded = rlcatalog.load(tmp_path, model=model)

    assert_same_outputs(loaded, plain, atol=1e-6)


@each_case(EXPORTED_IN_TEST)
def test_exported_plain_module_acts_as_its_policy(plain, tmp_path):
    if plain.case["framework"] == "tf":
        pytest.importorskip("tf2onnx")
    path = tmp_path / "policy.onnx"

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the packages that write ONNX warn
        plain.policy.export(path)  # compares the file with the policy, too
    step = rlcatalog.Actor(path).act(plain.observations, explore=False)

    for part, expected in zip(parts_of(step.action), parts_of(plain.step.action), strict=True):
        np.testing.assert_allclose(part, expected, atol=1e-4)


def parts_of(actions):
    return actions if isinstance(actions, tuple) else [actions]


def split_rows(actions, count):
    """Return a batch of actions as a list."""
    if isinstance(actions, tuple):
        columns = [split_rows(part, count) for part in actions]
        return list(zip(*columns, strict=True))
    return list(actions)
