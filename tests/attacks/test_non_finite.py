"""What is no number is named, wherever it comes from, and no weight learns from it.

An environment of several poisons an observation, a reward, the last observation of an episode, or
the model's own outputs or loss do; the truth is which environment, which step and which part of the
observation were poisoned.
"""

from __future__ import annotations

import json
import re

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from torch import nn
from typer.testing import CliRunner

import rlcatalog
from rlcatalog.errors import ModelContractError, NonFiniteError
from rlcatalog_cli.app import make_app
from rlcatalog_ppo import PPO
from rlcatalog_runs import json_line
from rlcatalog_torch import TorchModelV2

pytestmark = [pytest.mark.twins, pytest.mark.usefixtures("one_thread", "seeded")]
frameworks = pytest.mark.parametrize("framework", ["torch", "tf"])

BAD = [np.nan, np.inf, -np.inf]
PARTS = spaces.Dict(
    {
        "gear": spaces.Discrete(3),
        "speed": spaces.Box(-np.inf, np.inf, (4,), np.float32),
        "wheels": spaces.Tuple([spaces.Box(-9, 9, (2, 2), np.float64), spaces.MultiBinary(2)]),
    }
)
IMAGE = spaces.Box(-np.inf, np.inf, (10, 10, 3), np.float32)
ACTIONS = spaces.Discrete(3)
SMALL = {"fcnet_hiddens": [4]}
WAYS = {
    "plain": {}, "filter": {"observation_filter": "MeanStdFilter"},
    "lstm": {"use_lstm": True, "lstm_cell_size": 4},
    "attention": {"use_attention": True, "attention_dim": 4, "attention_memory_inference": 3},
    "autoregressive": {"use_autoregressive": True, "autoregressive_hiddens": [4]},
}  # fmt: skip


def poisoned(observations, row, leaf, value):
    """Put a value into one observation; return the path of its place."""
    obs = observations[row]
    if leaf == "speed":
        obs["speed"] = obs["speed"].copy()
        obs["speed"][2] = value
        return "obs['speed'][2]"
    first = obs["wheels"][0].copy()
    first[1, 0] = value
    obs["wheels"] = (first, obs["wheels"][1])
    return "obs['wheels'][0][1, 0]"


def observations(rows, seed=0):
    PARTS.seed(seed)
    return [PARTS.sample() for _ in range(rows)]


@pytest.mark.grid
@frameworks
@pytest.mark.parametrize("way", WAYS)
def test_an_observation_that_is_no_number_is_named_by_row_and_leaf(framework, way):
    actions = spaces.MultiDiscrete([2, 3]) if way == "autoregressive" else ACTIONS
    config = {**SMALL, **WAYS[way], "check_observations": "never"}
    policy = rlcatalog.build(PARTS, actions, config, framework)
    policy.act(observations(4))
    learned = None if policy.filter is None else policy.filter.get_state()
    for row, leaf, value in [
        (2, "speed", np.nan),
        (0, "wheels", np.inf),
        (3, "wheels", -np.inf),
        (1, "speed", np.inf),
    ]:
        batch = observations(4)
        path = poisoned(batch, row, leaf, value)
        says = (
            rf"^row {row} of 4: .*{re.escape(f'{value}'.replace('nan', 'NaN'))} at"
            rf" {re.escape(path)}"
        )
        for explore in (True, False):
            with pytest.raises(NonFiniteError, match=says) as error:
                policy.act(batch, explore=explore)
            assert error.value.row == row
        for update in (True, False):
            with pytest.raises(NonFiniteError, match=says):
                policy.preprocess(batch, update=update)
        with pytest.raises(NonFiniteError, match=rf"^row 0 of 1: .* at {re.escape(path)}"):
            policy.encoder.encode(batch[row])
    if learned is not None:
        np.testing.assert_equal(policy.filter.get_state(), learned)
    assert np.isfinite(policy.act(observations(4)).logp).all()


def test_an_image_that_holds_no_number_is_named_by_its_place():
    policy = rlcatalog.build(IMAGE, ACTIONS, {"check_observations": "never"}, "torch")
    obs = np.zeros((2, *IMAGE.shape), np.float32)
    obs[1, 3, 4, 2] = -np.inf
    with pytest.raises(NonFiniteError, match=r"row 1 of 2: .*-inf at obs\[3, 4, 2\]"):
        policy.act(obs)


class Poisoned(TorchModelV2):
    """Makes what it is told of a row's sum: a logit, or the value."""

    bad = None

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.layer = nn.Linear(2, 3)

    def forward(self, input_dict, state, seq_lens):
        outputs = self.layer(input_dict["obs_flat"])
        where, value = self.bad or (None, 0.0)
        self.value = outputs[:, 0].clone()
        if where == "logit":
            outputs = outputs.clone()
            outputs[1, 1] = value
        elif where == "value":
            self.value[1] = value
        return outputs, state

    def value_function(self):
        return self.value


@pytest.mark.parametrize("value", BAD)
def test_a_models_outputs_that_are_no_numbers_are_named(value):
    policy = rlcatalog.build(spaces.Box(-1, 1, (2,)), ACTIONS, {"custom_model": Poisoned}, "torch")
    obs = np.zeros((3, 2), np.float32)
    for where, says in (
        ("logit", r"row 1 of 3: .*model's weights.*lowest finite"),
        ("value", "row 1 of 3: its value"),
    ):
        policy.model.bad = where, value
        with pytest.raises(NonFiniteError, match=says):
            policy.act(obs, explore=False)
    with pytest.raises(NonFiniteError, match="row 1 of 3: its value estimate is"):
        policy.values(obs)
    policy.model.bad = None
    assert np.isfinite(policy.act(obs).value).all()


@frameworks
def test_a_past_reward_that_is_no_number_is_named_with_its_step(framework):
    config = {**SMALL, "use_lstm": True, "lstm_cell_size": 4, "lstm_use_prev_reward": True}
    policy = rlcatalog.build(spaces.Box(-1, 1, (2,)), ACTIONS, config, framework)
    stepper, obs = policy.stepper(3), np.zeros((3, 2), np.float32)
    stepper.step(obs)
    for _ in range(2):
        stepper.step(obs, prev_reward=[0.0, 1.0, 2.0])
    with pytest.raises(NonFiniteError, match=r"row 2 of 3: prev_reward is inf.*after 3 steps"):
        stepper.step(obs, prev_reward=[0.0, 1.0, 1e39])
    for wrong in (1.0, [0.0], ["1", "2", "3"], [[0.0, 1.0, 2.0]]):
        with pytest.raises(ModelContractError, match="prev_reward: expected 3 numbers"):
            stepper.step(obs, prev_reward=wrong)


# --- PPO ------------------------------------------------------------------------------------------


class Wire(gym.Env):
    """Episodes of five steps; the environment and the step that it is told to are poisoned."""

    observation_space = spaces.Dict(
        {"a": spaces.Box(-np.inf, np.inf, (2,), np.float32), "b": spaces.Discrete(2)}
    )
    action_space = ACTIONS
    made = 0

    def __init__(self, plan):
        self.plan, self.index = plan, Wire.made % 4
        Wire.made += 1

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t, self.total = 0, getattr(self, "total", 0)
        return self.look(), {}

    def look(self):
        obs = {"a": self.np_random.uniform(-1, 1, 2).astype(np.float32), "b": 1}
        if self.hit("obs"):
            obs["a"][1] = self.plan[3]
        return obs

    def hit(self, what):
        return self.plan[:3] == (what, self.index, self.total)

    def step(self, action):
        self.t += 1
        self.total += 1
        reward = self.plan[3] if self.hit("reward") else 1.0
        cut = self.plan[0] == "obs" and self.plan[4:] == ("truncated",)
        return self.look(), reward, self.t == 5 and not cut, self.t == 5 and cut, {}


def training(plan, framework, **config):
    Wire.made = 0
    settings = {
        "num_envs": 4,
        "rollout_length": 8,
        "minibatch_size": 16,
        "num_epochs": 2,
        "seed": 0,
    }
    return PPO(lambda: Wire(plan), {**settings, "framework": framework, "model": SMALL, **config})


def weights(algo):
    return {name: np.array(value) for name, value in algo.policy.model.get_weights().items()}


PLANS = [
    (("reward", 2, 11, np.nan), "environment 2 of 4, step 1 of its episode: the reward is nan"),
    (("reward", 0, 13, np.inf), "environment 0 of 4, step 3 of its episode: the reward is inf"),
    (("reward", 1, 12, 1e39), r"environment 1 of 4, step 2 of its episode: the reward is 1e\+39"),
    (
        ("obs", 3, 12, np.nan),
        r"environment 3 of 4, after 2 steps of its episode: row 3 of 4: .*NaN at obs\['a'\]\[1\]",
    ),
    (
        ("obs", 3, 14, -np.inf),
        r"environment 3 of 4, after 4 steps of its episode: .*-inf at obs\['a'\]\[1\]",
    ),
    (
        ("obs", 2, 15, np.inf, "truncated"),
        r"environment 2 of 4, after 5 steps of its episode: row 2 of 4: .*inf at",
    ),
]


@pytest.mark.parametrize(
    ("plan", "says", "framework"),
    [(*plan, "torch") for plan in PLANS] + [(*PLANS[0], "tf"), (*PLANS[3], "tf")],
    ids=lambda value: str(value[:4]) if isinstance(value, tuple) else "",
)
def test_ppo_names_the_environment_and_keeps_the_last_good_policy(plan, says, framework):
    algo = training(plan, framework, model={**SMALL, "observation_filter": "MeanStdFilter"})
    algo.train()
    before = weights(algo)
    with pytest.raises(NonFiniteError, match=says):
        algo.train()
    np.testing.assert_equal(weights(algo), before)
    assert np.isfinite(algo.policy.filter.get_state()["mean"]).all()
    algo.stop()


@pytest.mark.parametrize(
    ("framework", "reward", "grad_clip"),
    [
        ("torch", 1e38, None),
        ("torch", -3e38, 0.5),
        ("torch", 1e20, 0.5),
        ("tf", 1e38, None),
        ("tf", 1e20, 0.5),
    ],
)
def test_rewards_too_large_never_make_weights_that_are_no_numbers(framework, reward, grad_clip):
    algo = training(("reward", 1, 12, reward), framework, grad_clip=grad_clip)
    algo.train()
    before = weights(algo)
    with pytest.raises(
        NonFiniteError,
        match=r"the advantage is|no step was taken, and the weights are the last good",
    ):
        algo.train()
    after = weights(algo)
    np.testing.assert_equal(after, before)  # the first minibatch holds it, or none is learned from
    assert all(np.isfinite(value).all() for value in after.values())
    algo.stop()


def poison_loss(algo, at):
    calls = []

    def custom_loss(loss, inputs):
        calls.append(1)
        return loss * np.nan if len(calls) > at else loss

    algo.policy.model.custom_loss = custom_loss
    return calls


@frameworks
@pytest.mark.parametrize("eager_tracing", [True, False])
def test_a_loss_that_is_no_number_takes_no_step(framework, eager_tracing):
    if framework == "torch" and not eager_tracing:
        pytest.skip("TensorFlow's key")
    algo = training((None, 0, 0, 0), framework, eager_tracing=eager_tracing)
    traced = framework == "tf" and eager_tracing
    poison_loss(algo, 0 if traced else 3)  # a trace is made once
    seen = []
    algo.policy.model.update_ops = lambda: [lambda: seen.append(weights(algo))]
    start = weights(algo)
    with pytest.raises(NonFiniteError, match=r"a minibatch has the loss nan.*no step was taken"):
        algo.train()
    assert len(seen) == (0 if traced else 3)
    np.testing.assert_equal(weights(algo), seen[-1] if seen else start)
    algo.stop()


def test_the_command_line_saves_the_last_good_policy_and_says_why(tmp_path, monkeypatch):
    gym.register("Wire-v0", lambda: Wire(("reward", 2, 20, np.nan)))
    try:
        Wire.made = 0
        out = tmp_path / "run"
        arguments = [
            "train",
            "Wire-v0",
            "--steps",
            "400",
            "--out",
            str(out),
            "--model",
            "fcnet_hiddens=[4]",
            "--set",
            "num_envs=4",
            "--set",
            "rollout_length=8",
            "--set",
            "minibatch_size=16",
            "--framework",
            "torch",
        ]
        result = CliRunner().invoke(make_app(arguments), arguments)
        assert isinstance(result.exception, NonFiniteError)
        assert re.search(
            r"environment \d of 4, step \d of its episode: the reward is nan", str(result.exception)
        )
        assert str(out / "policy") in str(result.exception)
        saved = rlcatalog.load(out / "policy")
        assert all(np.isfinite(value).all() for value in saved.model.get_weights().values())
        lines = (out / "metrics.jsonl").read_text().splitlines()
        assert lines
        assert all(
            json.loads(line, parse_constant=pytest.fail)["timesteps_total"] for line in lines
        )
    finally:
        gym.registry.pop("Wire-v0")


def test_a_line_of_metrics_is_valid_json():
    result = {
        "a": np.nan,
        "b": {"c": [np.inf, 1.5, -np.inf]},
        "d": None,
        "e": 3,
        "f": (np.float64("nan"),),
    }
    line = json_line(result)
    assert line.endswith("\n")
    found = json.loads(line, parse_constant=pytest.fail)
    assert found == {"a": None, "b": {"c": [None, 1.5, None]}, "d": None, "e": 3, "f": [None]}
