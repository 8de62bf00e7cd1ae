"""Plain modules: forms, observations, memories and actions in pairs, through training, acting,
freezing, saving and exporting.
"""

from __future__ import annotations

import functools
import warnings

import numpy as np
import plain_nets
import pytest
from builders import randomize_weights, split_rows, to_array
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

FOUR_FEATURES = Box(-1, 1, (4,), np.float32)
IMAGE = Box(0, 255, (6, 5, 3), np.uint8)
ACTIONS = {
    "discrete": Discrete(3),
    "box": Box(-1, 1, (2,), np.float32),
    "tuple": Tuple([Discrete(3), Box(-1, 1, (2,), np.float32)]),
}
MASKS = {"discrete": MultiBinary(3), "tuple": Tuple([MultiBinary(3)])}
OBS = {"box": FOUR_FEATURES, "image": IMAGE, "tuple": Tuple([FOUR_FEATURES, Discrete(3), IMAGE])}
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


def is_valid(options):
    """Return whether a combination can be built."""
    if options["obs"] == "dict with mask" and options["action"] != "discrete":
        return False
    # An instance has only one set of weights, so the value cannot have its own.
    return options["form"] != "instance" or options["share"]


COMBINATIONS = pairwise(FACTORS, is_valid, seed=1)
TORCH_PLACES = [
    place for place, options in enumerate(COMBINATIONS) if options["framework"] == "torch"
]
TF_PLACE = next(
    place
    for place, options in enumerate(COMBINATIONS)
    if options["framework"] == "tf" and options["memory"] == "none"
)
#: `make test` runs combinations in which each value occurs in PyTorch, and one in TensorFlow.
IN_MAKE_TEST = {TF_PLACE}
for place in covering([tuple(COMBINATIONS[i].values()) for i in TORCH_PLACES]):
    IN_MAKE_TEST.add(TORCH_PLACES[place])


def create_example(options):
    """Return the spaces of a combination, with masks that forbid one of three actions."""
    action = ACTIONS[options["action"]]
    if options["obs"] != "dict with mask":
        return Example(OBS[options["obs"]], action)
    obs = Dict(
        {
            "a": FOUR_FEATURES,
            "b": Tuple([Discrete(3), IMAGE]),
            "action_mask": MASKS[options["action"]],
        }
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


def create_model(options, obs):
    """Return a plain module in the form of a combination: an instance, a class or a factory."""
    nets = pytest.importorskip("plain_nets_tf") if options["framework"] == "tf" else plain_nets
    if options["form"] == "instance":
        return nets.PlainNet(input_space(obs, options["framework"]))
    if options["form"] == "class":
        return nets.PlainNet
    return functools.partial(nets.PlainNet, hidden=5)


def make_model_config(options):
    config = dict(MEMORIES[options["memory"]])
    if options["memory"] != "none":
        config["max_seq_len"] = 4
    if not options["share"]:
        config["vf_share_layers"] = False
    return config


class PlainPolicy:
    """A policy with a plain module, and what it does for four observations."""

    def __init__(self, options):
        self.options = options
        self.example = create_example(options)
        self.model = create_model(options, self.example.obs)
        self.policy = rlcatalog.build(
            self.example.obs,
            self.example.action,
            make_model_config(options),
            options["framework"],
            model=self.model,
        )
        self.observations = observations_of(self.example, 4)
        self.policy.act(self.observations)  # Keras creates variables at the first call
        randomize_weights(self.policy.model, deviation=0.1)
        self.step = self.policy.act(self.observations, explore=False)


@pytest.fixture
def plain(options):
    return PlainPolicy(options)


def over_combinations(is_wanted=lambda options: True, in_make_test=IN_MAKE_TEST):
    """Run a test for combinations; those at other places are for `make attack`."""
    parameters = []
    for place, options in enumerate(COMBINATIONS):
        if is_wanted(options):
            marks = () if place in in_make_test else pytest.mark.slow
            label = "-".join(str(value) for value in options.values())
            parameters.append(pytest.param(options, id=label, marks=marks))
    return pytest.mark.parametrize("options", parameters)


@over_combinations()
def test_ppo_trains_every_weight_of_a_plain_module(options):
    example = create_example(options)
    config = {
        "num_envs": 2,
        "rollout_length": 8,
        "num_epochs": 1,
        "minibatch_size": 16,
        "framework": options["framework"],
        "model": make_model_config(options),
        "lr": 0.01,
        "frozen": "never",  # the policy itself acts, not a frozen copy
    }
    plain_module = create_model(options, example.obs)
    algo = PPO(lambda: ExampleEnv(example), config, model=plain_module)
    before = trained_weights(algo.policy.model)

    algo.train()

    # Fails if a weight has not changed.
    every_weight_moved(before, trained_weights(algo.policy.model))
    algo.stop()


@over_combinations()
def test_actions_lie_in_the_space(plain):
    for action in split_rows(plain.example.action, plain.step.action, 4):
        assert plain.example.action.contains(action)


@over_combinations(is_wanted=lambda options: options["obs"] == "dict with mask")
def test_masked_policy_takes_allowed_actions(plain):
    actions = plain.policy.act(plain.observations).raw_action[:, 0].astype(int)
    for obs, action in zip(plain.observations, actions, strict=True):
        assert obs["action_mask"][action]


@over_combinations()
def test_evaluate_scores_actions_as_act_did(plain):
    policy = plain.policy
    batch = {
        "obs": policy.preprocess(plain.observations),
        "raw_action": plain.step.raw_action,
        "mask": policy.action_mask(plain.observations),
    }

    evaluation = policy.evaluate(batch)

    np.testing.assert_allclose(to_array(evaluation.logp), plain.step.logp, rtol=1e-4, atol=1e-5)


def assert_same_outputs(policy, plain, atol):
    step = policy.act(plain.observations, explore=False)
    np.testing.assert_allclose(step.dist_inputs, plain.step.dist_inputs, atol=atol)


@over_combinations()
def test_frozen_plain_module_acts_as_its_policy(plain):
    frozen = plain.policy.freeze(4)  # for batches of four observations

    assert isinstance(frozen, Frozen)
    if plain.options["framework"] == "torch":  # in TensorFlow no graph is recorded
        assert frozen.reason is None
    assert_same_outputs(frozen, plain, atol=1e-5)


@over_combinations()
def test_loaded_plain_module_acts_as_its_policy(plain, tmp_path):
    plain.policy.save(tmp_path)
    # An instance has the weights of the policy already, so load takes a new one.
    model = create_model(plain.options, plain.example.obs)

    loaded = rlcatalog.load(tmp_path, model=model)

    assert_same_outputs(loaded, plain, atol=1e-6)


# Exports are slow, so `make test` has only the one of TensorFlow.
@over_combinations(in_make_test={TF_PLACE})  # the others take too long for `make test`
def test_exported_plain_module_acts_as_its_policy(plain, tmp_path):
    if plain.options["framework"] == "tf":
        pytest.importorskip("tf2onnx")
    path = tmp_path / "policy.onnx"

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the packages that write ONNX warn
        plain.policy.export(path)
    actor = rlcatalog.Actor(path)
    step = actor.act(plain.observations, explore=False)

    for part, expected in zip(parts_of(step.action), parts_of(plain.step.action), strict=True):
        np.testing.assert_allclose(part, expected, atol=1e-4)


def parts_of(actions):
    return actions if isinstance(actions, tuple) else [actions]
