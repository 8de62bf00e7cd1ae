"""Engines that share a model: with equal weights, their outputs for observations are equal."""

from __future__ import annotations

import importlib
import itertools
import sys
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from random_observations import RandomObservations

import rlcatalog
from rlcatalog_ppo import PPO
from rlcatalog_testing import PolicyOutputs, check_same_outputs
from rlcatalog_testing.engines import outputs_of

sys.path.append(str(Path(__file__).resolve().parents[2] / "examples"))

pytestmark = pytest.mark.usefixtures("one_thread", "seeded")

THREE_FEATURES = spaces.Box(-1, 1, (3,), np.float32)
HYBRID = spaces.Tuple([spaces.Discrete(3, start=2), spaces.Box(-2, 1, (2,), np.float32)])
#: Name → observation space, action space, model config.
CASES = {
    "vector": (THREE_FEATURES, spaces.Discrete(4), {"fcnet_hiddens": [8]}),
    "gaussian": (
        THREE_FEATURES,
        spaces.Box(-1, 2, (2,), np.float32),
        {"fcnet_hiddens": [8], "vf_share_layers": False},
    ),
    "image": (spaces.Box(0, 255, (42, 42, 3), np.uint8), spaces.Discrete(3), {}),
    "masked": (
        spaces.Dict({"action_mask": spaces.MultiBinary(5), "seen": THREE_FEATURES}),
        spaces.Discrete(5),
        {"fcnet_hiddens": [8]},
    ),
    "hybrid": (
        spaces.Dict({"a": THREE_FEATURES, "b": spaces.Discrete(3)}),
        HYBRID,
        {"fcnet_hiddens": [8]},
    ),
    "parametric": (
        spaces.Dict(
            {
                "action_mask": spaces.MultiBinary(4),
                "avail_actions": spaces.Box(-1, 1, (4, 2), np.float32),
                "seen": THREE_FEATURES,
            }
        ),
        spaces.Discrete(4),
        {"fcnet_hiddens": [8]},
    ),
    "autoregressive": (
        THREE_FEATURES,
        spaces.Tuple([spaces.Discrete(3), spaces.Discrete(2)]),
        {"fcnet_hiddens": [8], "use_autoregressive": True},
    ),
}
#: Keys that engines have different defaults for.
DEFAULTS = {"vf_share_layers": True, "free_log_std": False, "action_bounds": "clip"}
CASES = {
    name: (obs, action, {**DEFAULTS, **config}) for name, (obs, action, config) in CASES.items()
}


class CaseEnv(RandomObservations):
    """Random observations and actions of a case, without rewards."""

    def __init__(self, case="vector"):
        observation_space, action_space, _ = CASES[case]
        super().__init__(observation_space, action_space)

    def step(self, action):
        assert self.action_space.contains(action), action
        return self.observe(), 0.0, False, False, {}


gym.register("RlcatalogBridge-v0", lambda case: CaseEnv(case), max_episode_steps=10)


def sample_batch(case, rows=6):
    """Return observations as a vector environment returns them."""
    envs = gym.vector.SyncVectorEnv([lambda: CaseEnv(case)] * rows)
    obs, _ = envs.reset(seed=3)
    return obs


# --- engines: each returns its policy, and a function that computes its outputs -------------------


def train_rlcatalog_ppo(case, framework):
    _, _, model = CASES[case]
    settings = {"num_envs": 2, "rollout_length": 4, "minibatch_size": 4, "num_epochs": 1}
    settings |= {"framework": framework, "model": model}
    algo = PPO(lambda: CaseEnv(case), settings)
    algo.train()
    return algo.policy, outputs_of(algo.policy)


SCRIPTS = {"torch": "ppo_single_file", "tf": "ppo_single_file_tf"}


def train_single_file(case, framework):
    _, _, model = CASES[case]
    script = importlib.import_module(SCRIPTS[framework])
    hyper = script.Hyper(steps=1, num_envs=2, length=4, minibatch=4, epochs=1)
    policy = script.train(
        "RlcatalogBridge-v0", 0, model=model, hyper=hyper, env_config={"case": case}
    )
    return policy, outputs_of(policy)


def train_sb3(case, framework):
    pytest.importorskip("stable_baselines3", reason="Stable-Baselines3 is not installed")
    from stable_baselines3 import PPO as SB3PPO

    import rlcatalog_sb3

    _, _, model = CASES[case]
    env = rlcatalog_sb3.for_sb3(CaseEnv(case), model)
    algo = SB3PPO(
        rlcatalog_sb3.CatalogPolicy, env, n_steps=8, batch_size=4, n_epochs=1, device="cpu"
    )
    algo.learn(8)
    return algo.policy.catalog_policy, rlcatalog_sb3.outputs(algo)


def build_rllib_module(case, framework):
    pytest.importorskip("ray.rllib", reason="Ray RLlib is not installed")
    import rlcatalog_rllib

    module = rlcatalog_rllib.spec(*CASES[case]).build()
    return module.policy, rlcatalog_rllib.outputs(module)


#: Name → function that makes the engine, and framework.
ENGINES = {
    "rlcatalog-ppo": (train_rlcatalog_ppo, "torch"),
    "rlcatalog-ppo on TensorFlow": (train_rlcatalog_ppo, "tf"),
    "a single file": (train_single_file, "torch"),
    "a single file on TensorFlow": (train_single_file, "tf"),
    "Stable-Baselines3": (train_sb3, "torch"),
    "Ray RLlib": (build_rllib_module, "torch"),
}


def is_slow(case, engine):
    """Return whether `make attack` runs a case, and not `make test`.

    The single file on TensorFlow runs in `test_examples.py`, and takes the steps of the other one
    in `test_single_files.py`.
    """
    if engine == "a single file on TensorFlow":
        return True
    if engine == "a single file":
        return case in ("gaussian", "image", "parametric", "hybrid")
    if engine == "rlcatalog-ppo on TensorFlow":
        return case not in ("masked", "hybrid", "image")
    return False


def all_pairs():
    for case, engine in itertools.product(CASES, ENGINES):
        marks = [pytest.mark.slow] if is_slow(case, engine) else []
        yield pytest.param(case, engine, marks=marks)


# --- tests ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("case", "engine"), list(all_pairs()))
def test_engines_compute_the_same_outputs(case, engine):
    make_engine, framework = ENGINES[engine]
    reference = rlcatalog.build(*CASES[case], "torch")

    trained = make_engine(case, framework)

    # The check copies the reference's weights into the engine first.
    check_same_outputs(reference, {engine: trained}, sample_batch(case), tolerance=2e-5)


@pytest.mark.parametrize(
    "memory",
    [{"use_lstm": True}, {"use_attention": True}, {"use_lstm": True, "lstm_use_prev_action": True}],
    ids=["lstm", "attention", "lstm with past actions"],
)
@pytest.mark.parametrize("script", SCRIPTS.values())
def test_single_file_refuses_models_that_need_sequences(script, memory):
    train = importlib.import_module(script).train
    with pytest.raises(ValueError, match="a model that looks back needs sequences"):
        train("RlcatalogBridge-v0", model=memory, env_config={"case": "vector"})


@pytest.mark.parametrize("field", PolicyOutputs._fields)
def test_check_names_the_engine_whose_output_differs(field):
    reference = rlcatalog.build(*CASES["hybrid"], "torch")
    policy = rlcatalog.build(*CASES["hybrid"], "torch")

    def compute_wrong_outputs(observations, raw_actions):
        outputs = outputs_of(policy)(observations, raw_actions)
        value = getattr(outputs, field)
        if field == "action":  # a choice and a vector
            choice, vector = value
            wrong_value = (choice, vector + 0.01)
        else:
            wrong_value = value + 0.01
        return outputs._replace(**{field: wrong_value})

    engines = {"the wrong one": (policy, compute_wrong_outputs)}
    with pytest.raises(AssertionError, match=f"the wrong one: its {field} differs"):
        check_same_outputs(reference, engines, sample_batch("hybrid"))
