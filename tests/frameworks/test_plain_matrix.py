"""Plain modules: forms, observations, memories and actions in pairs, through all that a policy
does.
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

VECTOR, IMAGE = Box(-1, 1, (4,), np.float32), Box(0, 255, (6, 5, 3), np.uint8)
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


def valid(case):
    has_mask = case["obs"] == "dict with mask"
    return (not has_mask or case["action"] == "discrete") and (
        case["form"] != "instance" or case["share"]
    )


CASES = pairwise(FACTORS, valid, seed=1)
#: `make test` runs cases in which each value occurs in PyTorch, and one in TensorFlow; exports are
#: slow, so it has two.
_OF_TORCH = [i for i, case in enumerate(CASES) if case["framework"] == "torch"]
_OF_TF = next(
    i for i, case in enumerate(CASES) if case["framework"] == "tf" and case["memory"] == "none"
)
IN_TEST = {_OF_TF, *(_OF_TORCH[i] for i in covering([tuple(CASES[i].values()) for i in _OF_TORCH]))}
EXPORTED_IN_TEST = {_OF_TF}


def example_of(case):
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


def seen_space(obs, framework):
    """Return what a plain module of a framework is shown of these spaces, by hand."""
    if isinstance(obs, Dict):
        return Dict(
            [
                (name, seen_space(part, framework))
                for name, part in obs.items()
                if name != "action_mask"
            ]
        )
    if isinstance(obs, Tuple):
        return Tuple([seen_space(part, framework) for part in obs])
    if isinstance(obs, Discrete):
        return Box(0, 1, (int(obs.n),), np.float32)
    return (
        Box(0, 1, (3, 6, 5) if framework == "torch" else (6, 5, 3), np.float32)
        if obs is IMAGE
        else obs
    )


def model_of(case, obs):
    nets = pytest.importorskip("plain_nets_tf") if case["framework"] == "tf" else plain_nets
    if case["form"] == "instance":
        return nets.PlainNet(seen_space(obs, case["framework"]))
    return nets.PlainNet if case["form"] == "class" else functools.partial(nets.PlainNet, hidden=5)


def cases(in_test):
    """Return all cases as parameters; those not in a set are for `make attack`."""
    return pytest.mark.parametrize(
        "case",
        [
            pytest.param(
                case,
                id="-".join(map(str, case.values())),
                marks=() if i in in_test else pytest.mark.attack,
            )
            for i, case in enumerate(CASES)
        ],
    )


@cases(IN_TEST)
def test_plain_module_trains_freezes_and_loads(case, tmp_path):
    example = example_of(case)
    model = model_of(case, example.obs)
    config = {**MEMORIES[case["memory"]], "max_seq_len": 4} if case["memory"] != "none" else {}
    config |= {} if case["share"] else {"vf_share_layers": False}
    algo = PPO(
        functools.partial(ExampleEnv, example),
        {
            "num_envs": 2,
            "rollout_length": 8,
            "num_epochs": 1,
            "minibatch_size": 16,
            "framework": case["framework"],
            "model": config,
            "lr": 0.01,
            "frozen": "never",
        },
        model=model,
    )
    policy, before = algo.policy, trained_weights(algo.policy.model)
    algo.train()
    algo.stop()
    every_weight_moved(before, trained_weights(policy.model))

    observations = observations_of(example, 4)
    step = policy.act(observations, explore=False)
    assert all(example.action.contains(action) for action in rows_of(step.action, 4))
    if case["obs"] == "dict with mask":
        chosen = policy.act(observations).raw_action[:, 0].astype(int)
        assert all(
            obs["action_mask"][place] for obs, place in zip(observations, chosen, strict=True)
        )
    batch = {"obs": policy.preprocess(observations), "raw_action": step.raw_action}
    mask = policy.action_mask(observations)
    scored = policy.evaluate(batch if mask is None else {**batch, "mask": mask})
    np.testing.assert_allclose(array_of(scored.logp), step.logp, rtol=1e-4, atol=1e-5)

    frozen = policy.freeze(4)
    assert isinstance(frozen, Frozen)
    assert case["framework"] == "tf" or frozen.reason is None
    np.testing.assert_allclose(
        frozen.act(observations, explore=False).dist_inputs, step.dist_inputs, atol=1e-5
    )
    policy.save(tmp_path / "policy")
    again = model_of(case, example.obs) if case["form"] == "instance" else model
    loaded = rlcatalog.load(tmp_path / "policy", model=again)
    np.testing.assert_allclose(
        loaded.act(observations, explore=False).dist_inputs, step.dist_inputs, atol=1e-6
    )


@cases(EXPORTED_IN_TEST)
def test_exported_plain_module_acts_as_its_policy(case, tmp_path):
    if case["framework"] == "tf":
        pytest.importorskip("tf2onnx")
    example = example_of(case)
    config = {**MEMORIES[case["memory"]], "max_seq_len": 4} if case["memory"] != "none" else {}
    config |= {} if case["share"] else {"vf_share_layers": False}
    policy = rlcatalog.build(
        example.obs, example.action, config, case["framework"], model=model_of(case, example.obs)
    )
    observations = observations_of(example, 4)
    step = policy.act(observations, explore=False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of what writes ONNX
        # Compared with the policy on observations of its own.
        policy.export(tmp_path / "policy.onnx")
    acted = rlcatalog.Actor(tmp_path / "policy.onnx").act(observations, explore=False)
    for mine, theirs in zip(parts_of(acted.action), parts_of(step.action), strict=True):
        np.testing.assert_allclose(mine, theirs, atol=1e-4)


def array_of(tensor):
    return tensor.detach().numpy() if hasattr(tensor, "detach") else tensor.numpy()


def parts_of(actions):
    return actions if isinstance(actions, tuple) else [actions]


def rows_of(actions, count):
    """Return a batch of actions as a list."""
    if isinstance(actions, tuple):
        return list(zip(*(rows_of(part, count) for part in actions), strict=True))
    return list(actions)
