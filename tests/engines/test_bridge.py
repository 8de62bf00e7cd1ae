"""Every engine says the same of the same observations, once weights are copied: our PPO, a script,
SB3, RLlib.
"""

from __future__ import annotations

import importlib
import itertools
import sys
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces

import rlcatalog
from rlcatalog_ppo import PPO
from rlcatalog_testing import PolicyOutputs, check_same_outputs
from rlcatalog_testing.engines import outputs_of

sys.path.append(str(Path(__file__).resolve().parents[2] / "examples"))

pytestmark = pytest.mark.usefixtures("one_thread", "seeded")

VECTOR = spaces.Box(-1, 1, (3,), np.float32)
HYBRID = spaces.Tuple([spaces.Discrete(3, start=2), spaces.Box(-2, 1, (2,), np.float32)])
#: Name → observation space, action space, model config.
CASES = {
    "vector": (VECTOR, spaces.Discrete(4), {"fcnet_hiddens": [8]}),
    "gaussian": (
        VECTOR,
        spaces.Box(-1, 2, (2,), np.float32),
        {"fcnet_hiddens": [8], "vf_share_layers": False},
    ),
    "image": (spaces.Box(0, 255, (42, 42, 3), np.uint8), spaces.Discrete(3), {}),
    "masked": (
        spaces.Dict({"action_mask": spaces.MultiBinary(5), "seen": VECTOR}),
        spaces.Discrete(5),
        {"fcnet_hiddens": [8]},
    ),
    "hybrid": (spaces.Dict({"a": VECTOR, "b": spaces.Discrete(3)}), HYBRID, {"fcnet_hiddens": [8]}),
    "parametric": (
        spaces.Dict(
            {
                "action_mask": spaces.MultiBinary(4),
                "avail_actions": spaces.Box(-1, 1, (4, 2), np.float32),
                "seen": VECTOR,
            }
        ),
        spaces.Discrete(4),
        {"fcnet_hiddens": [8]},
    ),
    "autoregressive": (
        VECTOR,
        spaces.Tuple([spaces.Discrete(3), spaces.Discrete(2)]),
        {"fcnet_hiddens": [8], "use_autoregressive": True},
    ),
}
# Engines have defaults of their own where a config is silent.
SAID = {"vf_share_layers": True, "free_log_std": False, "action_bounds": "clip"}
CASES = {name: (obs, action, {**SAID, **config}) for name, (obs, action, config) in CASES.items()}


class Random(gym.Env):
    """Shows random observations; at least one action is allowed."""

    def __init__(self, case="vector"):
        self.observation_space, self.action_space, _ = CASES[case]

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        if seed is not None:
            self.observation_space.seed(seed)
        return self._look(), {}

    def step(self, action):
        assert self.action_space.contains(action), action
        return self._look(), 0.0, False, False, {}

    def _look(self):
        obs = self.observation_space.sample()
        if isinstance(obs, dict) and "action_mask" in obs:
            obs["action_mask"][0] = 1
        return obs


gym.register("RlcatalogBridge-v0", lambda case: Random(case), max_episode_steps=10)


def batch_of(case, n=6):
    """Return observations as a vector environment returns them."""
    envs = gym.vector.SyncVectorEnv([lambda: Random(case)] * n)
    return envs.reset(seed=3)[0]


def our_ppo(case, framework):
    algo = PPO(
        lambda: Random(case),
        {
            "framework": framework,
            "model": CASES[case][2],
            "num_envs": 2,
            "rollout_length": 4,
            "minibatch_size": 4,
            "num_epochs": 1,
        },
    )
    algo.train()
    return algo.policy, outputs_of(algo.policy)


def single_file(case, framework):
    script = importlib.import_module(
        "ppo_single_file" if framework == "torch" else "ppo_single_file_tf"
    )
    hyper = script.Hyper(steps=1, num_envs=2, length=4, minibatch=4, epochs=1)
    policy = script.train(
        "RlcatalogBridge-v0", 0, model=CASES[case][2], hyper=hyper, env_config={"case": case}
    )
    return policy, outputs_of(policy)


def stable_baselines3(case, framework):
    pytest.importorskip("stable_baselines3", reason="Stable-Baselines3 is not installed")
    from stable_baselines3 import PPO as SB3PPO

    import rlcatalog_sb3

    env = rlcatalog_sb3.for_sb3(Random(case), CASES[case][2])
    algo = SB3PPO(
        rlcatalog_sb3.CatalogPolicy, env, n_steps=8, batch_size=4, n_epochs=1, device="cpu"
    )
    algo.learn(8)
    return algo.policy.catalog_policy, rlcatalog_sb3.outputs(algo)


def rllib(case, framework):
    pytest.importorskip("ray.rllib", reason="Ray RLlib is not installed")
    import rlcatalog_rllib

    module = rlcatalog_rllib.spec(*CASES[case]).build()
    return module.policy, rlcatalog_rllib.outputs(module)


ENGINES = {
    "rlcatalog-ppo": (our_ppo, "torch"),
    "rlcatalog-ppo on TensorFlow": (our_ppo, "tf"),
    "a single file": (single_file, "torch"),
    "a single file on TensorFlow": (single_file, "tf"),
    "Stable-Baselines3": (stable_baselines3, "torch"),
    "Ray RLlib": (rllib, "torch"),
}


def pairs():
    """Yield each case and engine; of TensorFlow's and the single files, which take longest, some in
    `make test`.

    The single file on TensorFlow runs in `test_examples.py`, and takes the steps of the other one
    in `test_single_files.py`.
    """
    for case, engine in itertools.product(CASES, ENGINES):
        long = "single file" in engine and case in ("gaussian", "image", "parametric", "hybrid")
        long |= engine == "a single file on TensorFlow"
        long |= engine == "rlcatalog-ppo on TensorFlow" and case not in (
            "masked",
            "hybrid",
            "image",
        )
        yield pytest.param(case, engine, marks=pytest.mark.attack) if long else (case, engine)


@pytest.mark.parametrize(("case", "engine"), list(pairs()))
def test_engines_compute_the_same_outputs(case, engine):
    reference = rlcatalog.build(*CASES[case], "torch")
    make, framework = ENGINES[engine]
    check_same_outputs(reference, {engine: make(case, framework)}, batch_of(case), tolerance=2e-5)


@pytest.mark.parametrize(
    "memory",
    [{"use_lstm": True}, {"use_attention": True}, {"use_lstm": True, "lstm_use_prev_action": True}],
)
@pytest.mark.parametrize("script", ["ppo_single_file", "ppo_single_file_tf"])
def test_single_file_refuses_models_that_need_sequences(script, memory):
    with pytest.raises(ValueError, match="a model that looks back needs sequences"):
        importlib.import_module(script).train(
            "RlcatalogBridge-v0", model=memory, env_config={"case": "vector"}
        )


@pytest.mark.parametrize("what", PolicyOutputs._fields)
def test_check_names_the_engine_whose_output_differs(what):
    reference = rlcatalog.build(*CASES["hybrid"], "torch")
    other = rlcatalog.build(*CASES["hybrid"], "torch")

    def wrong(observations, raw_actions):
        found = outputs_of(other)(observations, raw_actions)
        value = getattr(found, what)
        changed = (value[0], value[1] + 0.01) if what == "action" else value + 0.01
        return found._replace(**{what: changed})

    with pytest.raises(AssertionError, match=f"the wrong one: its {what} differs"):
        check_same_outputs(reference, {"the wrong one": (other, wrong)}, batch_of("hybrid"))
