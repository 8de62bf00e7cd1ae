"""NaN and infinity are reported with their place, and no weight learns from them.

Tests put one into an observation, a reward, a model's outputs or its loss, at a place that they
choose: the row or environment, the step, and the leaf of the observation. The error must name it.
"""

from __future__ import annotations

import json
import re
from functools import partial
from typing import NamedTuple

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.envs.registration import EnvSpec
from torch import nn
from typer.testing import CliRunner

import rlcatalog
from rlcatalog.errors import NonFiniteError
from rlcatalog_cli.app import make_app
from rlcatalog_ppo import PPO
from rlcatalog_runs import json_line
from rlcatalog_torch import TorchModelV2

pytestmark = [pytest.mark.twins, pytest.mark.usefixtures("one_thread", "seeded")]
in_both_frameworks = pytest.mark.parametrize("framework", ["torch", "tf"])

NESTED = spaces.Dict(
    {
        "gear": spaces.Discrete(3),
        "speed": spaces.Box(-np.inf, np.inf, (4,), np.float32),
        "wheels": spaces.Tuple([spaces.Box(-9, 9, (2, 2), np.float64), spaces.MultiBinary(2)]),
    }
)
THREE_ACTIONS = spaces.Discrete(3)
SMALL = {"fcnet_hiddens": [4]}
TWO_FEATURES = spaces.Box(-1, 1, (2,), np.float32)


# --- observations ---------------------------------------------------------------------------------


#: Row, leaf and value of one number in a batch of four observations → what an error calls it.
PLACES = {
    (2, "speed", np.nan): r"NaN at obs\['speed'\]\[2\]",
    (0, "wheels", np.inf): r"inf at obs\['wheels'\]\[0\]\[1, 0\]",
    (3, "wheels", -np.inf): r"-inf at obs\['wheels'\]\[0\]\[1, 0\]",
    (1, "speed", np.inf): r"inf at obs\['speed'\]\[2\]",
}


def sample_observations():
    NESTED.seed(0)
    return [NESTED.sample() for _ in range(4)]


def sample_with_one_value(row, leaf, value):
    """Return four observations, with a value in one leaf of one row."""
    observations = sample_observations()
    obs = observations[row]
    if leaf == "speed":
        obs["speed"] = obs["speed"].copy()
        obs["speed"][2] = value
    else:
        box, bits = obs["wheels"]
        box = box.copy()
        box[1, 0] = value
        obs["wheels"] = (box, bits)
    return observations


@pytest.mark.grid
@pytest.mark.parametrize(
    ("framework", "config"),
    [("torch", {}), ("tf", {"use_lstm": True, "lstm_cell_size": 4})],
    ids=["torch", "tf-lstm"],
)
class TestNestedObservations:
    """A policy for nested observations that does not check them against their space."""

    @pytest.fixture
    def policy(self, framework, config):
        config = {"fcnet_hiddens": [4], "check_observations": "never", **config}
        return rlcatalog.build(NESTED, THREE_ACTIONS, config, framework)

    def test_act_names_row_and_leaf(self, policy):
        for (row, leaf, value), place in PLACES.items():
            batch = sample_with_one_value(row, leaf, value)
            with pytest.raises(NonFiniteError, match=rf"^row {row} of 4: .*{place}") as caught:
                policy.act(batch)
            assert caught.value.row == row

    @pytest.mark.parametrize("update", [True, False])
    def test_preprocess_names_row_and_leaf(self, policy, update):
        for (row, leaf, value), place in PLACES.items():
            batch = sample_with_one_value(row, leaf, value)
            with pytest.raises(NonFiniteError, match=rf"^row {row} of 4: .*{place}"):
                policy.preprocess(batch, update=update)

    def test_encode_names_the_leaf(self, policy):
        for (row, leaf, value), place in PLACES.items():
            batch = sample_with_one_value(row, leaf, value)
            with pytest.raises(NonFiniteError, match=rf"^row 0 of 1: .*{place}"):
                policy.encoder.encode(batch[row])


@in_both_frameworks
def test_filter_learns_nothing_from_rejected_observations(framework):
    config = {**SMALL, "observation_filter": "MeanStdFilter", "check_observations": "never"}
    policy = rlcatalog.build(NESTED, THREE_ACTIONS, config, framework)
    policy.preprocess(sample_observations(), update=True)
    state = policy.filter.get_state()
    with pytest.raises(NonFiniteError):
        policy.preprocess(sample_with_one_value(2, "speed", np.nan), update=True)
    np.testing.assert_equal(policy.filter.get_state(), state)


# --- outputs and rewards --------------------------------------------------------------------------


class FaultyModel(TorchModelV2):
    """A linear model that puts `estimate`, if it is not None, into the value estimate of row 1."""

    estimate = None

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.layer = nn.Linear(2, 3)

    def forward(self, input_dict, state, seq_lens):
        outputs = self.layer(input_dict["obs_flat"])
        self.values = outputs[:, 0].clone()
        if self.estimate is not None:
            self.values[1] = self.estimate
        return outputs, state

    def value_function(self):
        return self.values


@pytest.fixture
def faulty_policy():
    return rlcatalog.build(TWO_FEATURES, THREE_ACTIONS, {"custom_model": FaultyModel}, "torch")


THREE_ROWS = np.zeros((3, 2), np.float32)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_act_and_values_name_the_row_of_a_value_estimate(faulty_policy, value):
    faulty_policy.model.estimate = value
    for call in (faulty_policy.act, faulty_policy.values):
        with pytest.raises(NonFiniteError, match="row 1 of 3: its value estimate is"):
            call(THREE_ROWS)


@pytest.fixture(params=["torch", "tf"])
def stepper(request):
    """A stepper of three rows that has taken three steps, and reads rewards."""
    config = {**SMALL, "use_lstm": True, "lstm_cell_size": 4, "lstm_use_prev_reward": True}
    stepper = rlcatalog.build(TWO_FEATURES, THREE_ACTIONS, config, request.param).stepper(3)
    stepper.step(THREE_ROWS)
    stepper.step(THREE_ROWS, prev_reward=[0.0, 1.0, 2.0])
    stepper.step(THREE_ROWS, prev_reward=[0.0, 1.0, 2.0])
    return stepper


def test_stepper_names_row_and_step_of_a_reward(stepper):
    too_large_for_float32 = 1e39
    with pytest.raises(NonFiniteError, match=r"prev_reward is inf.*after 3 steps"):
        stepper.step(THREE_ROWS, prev_reward=[0.0, 1.0, too_large_for_float32])


# --- PPO ------------------------------------------------------------------------------------------


class Fault(NamedTuple):
    """A value that an environment returns once."""

    kind: str  # "reward" or "obs"
    env: int  # which of the four environments
    step: int  # of all its steps, counted from 0
    value: float


NO_FAULT = Fault("none", env=0, step=0, value=0.0)


class FaultyEnv(gym.Env):
    """Episodes of five steps with the reward 1. One of four environments returns a faulty value.

    Args:
        fault: The value, and where it is returned.
        truncates: Whether episodes are truncated after five steps; otherwise they are terminated.
    """

    observation_space = spaces.Dict(
        {"a": spaces.Box(-np.inf, np.inf, (2,), np.float32), "b": spaces.Discrete(2)}
    )
    action_space = THREE_ACTIONS
    count = 0

    def __init__(self, fault, truncates=False):
        self.fault = fault
        self.truncates = truncates
        self.index = FaultyEnv.count % 4
        self.steps_in_all = 0
        FaultyEnv.count += 1

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        return self.make_observation(), {}

    def step(self, action):
        self.steps += 1
        self.steps_in_all += 1
        reward = self.fault.value if self.is_faulty("reward") else 1.0
        is_over = self.steps == 5
        terminated = is_over and not self.truncates
        truncated = is_over and self.truncates
        return self.make_observation(), reward, terminated, truncated, {}

    def make_observation(self):
        a = self.np_random.uniform(-1, 1, 2).astype(np.float32)
        if self.is_faulty("obs"):
            a[1] = self.fault.value
        return {"a": a, "b": 1}

    def is_faulty(self, kind):
        place = (self.fault.kind, self.fault.env, self.fault.step)
        return place == (kind, self.index, self.steps_in_all)


def make_ppo(fault, framework="torch", *, truncates=False, **config):
    """Return PPO whose rollouts have eight steps of four environments."""
    FaultyEnv.count = 0
    settings = {"num_envs": 4, "rollout_length": 8, "minibatch_size": 16, "num_epochs": 2}
    settings |= {"seed": 0, "framework": framework, "model": SMALL, **config}
    return PPO(lambda: FaultyEnv(fault, truncates), settings)


def copy_weights(algo):
    return {name: np.array(value) for name, value in algo.policy.model.get_weights().items()}


def test_ppo_names_the_last_observation_of_a_truncated_episode():
    fault = Fault("obs", env=2, step=15, value=np.inf)  # the end of the third episode
    algo = make_ppo(fault, truncates=True)
    algo.train()
    message = "environment 2 of 4, after 5 steps of its episode: row 2 of 4: .*inf at"
    with pytest.raises(NonFiniteError, match=message):
        algo.train()
    algo.stop()


@pytest.mark.parametrize(
    ("framework", "reward", "grad_clip"),
    [("torch", 1e38, None), ("torch", -3e38, 0.5), ("torch", 1e20, 0.5), ("tf", 1e20, 0.5)],
)
def test_ppo_takes_no_step_after_a_very_large_reward(framework, reward, grad_clip):
    fault = Fault("reward", env=1, step=12, value=reward)
    algo = make_ppo(fault, framework, grad_clip=grad_clip)
    algo.train()  # the first eight steps, before the fault
    weights_before = copy_weights(algo)

    # The reward itself is finite in float32, but an advantage or a loss is not.
    message = "the advantage is|no step was taken, and the weights are the last good"
    with pytest.raises(NonFiniteError, match=message):
        algo.train()

    np.testing.assert_equal(copy_weights(algo), weights_before)
    algo.stop()


class NanLoss:
    """A custom loss that is NaN from some call on."""

    def __init__(self, first_nan):
        self.first_nan = first_nan
        self.calls = 0

    def __call__(self, loss, inputs):
        self.calls += 1
        return loss * np.nan if self.calls > self.first_nan else loss


@in_both_frameworks
def test_ppo_keeps_the_weights_before_a_loss_that_is_nan(framework):
    algo = make_ppo(NO_FAULT, framework, eager_tracing=False)
    algo.policy.model.custom_loss = NanLoss(first_nan=3)  # three losses before are finite
    weights_after_steps = []

    def record_weights():
        weights_after_steps.append(copy_weights(algo))

    # PPO calls these functions after each step of the optimizer.
    algo.policy.model.update_ops = lambda: [record_weights]

    with pytest.raises(NonFiniteError, match=r"has the loss nan.*no step was taken"):
        algo.train()

    assert len(weights_after_steps) == 3
    np.testing.assert_equal(copy_weights(algo), weights_after_steps[-1])
    algo.stop()


def test_ppo_takes_no_step_after_a_traced_loss_that_is_nan():
    algo = make_ppo(NO_FAULT, "tf", eager_tracing=True)
    # TensorFlow calls the loss once, to trace it, so it is NaN from the first step on.
    algo.policy.model.custom_loss = NanLoss(first_nan=0)
    before = copy_weights(algo)
    with pytest.raises(NonFiniteError, match=r"has the loss nan.*no step was taken"):
        algo.train()
    np.testing.assert_equal(copy_weights(algo), before)
    algo.stop()


# --- the command line -----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def interrupted_run(tmp_path_factory):
    """The folder of a run that ended at a reward of NaN, and its error; not to be written to."""
    fault = Fault("reward", env=2, step=20, value=np.nan)
    spec = EnvSpec("FaultyEnv-v0", partial(FaultyEnv, fault))
    FaultyEnv.count = 0
    folder = tmp_path_factory.mktemp("interrupted") / "run"
    line = ["train", "FaultyEnv-v0", "--steps", "400", "--out", str(folder)]
    line += ["--model", "fcnet_hiddens=[4]", "--framework", "torch"]
    line += ["--set=num_envs=4", "--set=rollout_length=8", "--set=minibatch_size=16"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(gym.registry, "FaultyEnv-v0", spec)
        result = CliRunner().invoke(make_app(line), line)
    return folder, result.exception


def test_train_names_the_reward_and_the_saved_policy(interrupted_run):
    folder, error = interrupted_run
    assert isinstance(error, NonFiniteError)
    place = r"environment \d of 4, step \d of its episode: the reward is nan"
    assert re.search(place, str(error))
    assert str(folder / "policy") in str(error)


def test_train_saves_the_last_good_policy(interrupted_run):
    folder, _ = interrupted_run
    policy = rlcatalog.load(folder / "policy")
    for weights in policy.model.get_weights().values():
        assert np.isfinite(weights).all()


def test_train_keeps_the_metrics_before_the_error(interrupted_run):
    folder, _ = interrupted_run
    lines = (folder / "metrics.jsonl").read_text().splitlines()
    assert lines
    for line in lines:
        metrics = json.loads(line, parse_constant=pytest.fail)  # no NaN, which JSON does not have
        assert metrics["timesteps_total"] > 0


def test_json_line_has_null_for_nan_and_infinity():
    metrics = {
        "a": np.nan,
        "b": {"c": [np.inf, 1.5, -np.inf]},
        "d": None,
        "e": 3,
        "f": (np.float64("nan"),),
    }
    line = json_line(metrics)
    assert line.endswith("\n")
    expected = {"a": None, "b": {"c": [None, 1.5, None]}, "d": None, "e": 3, "f": [None]}
    # parse_constant would be called for NaN and Infinity, which are not JSON.
    assert json.loads(line, parse_constant=pytest.fail) == expected
