"""Columns that only training has: views of the future, postprocessing, and inputs of losses."""

from __future__ import annotations

from functools import partial
from typing import ClassVar

import numpy as np
import pytest
import tensorflow as tf
import torch
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from numbered_env import NumberedEpisodes, find_ends, read_numbers

import rlcatalog
from rlcatalog import ViewRequirement
from rlcatalog.errors import NotServedError
from rlcatalog_ppo import PPO
from rlcatalog_ppo.collector import Collector
from rlcatalog_ppo.env_state import Resumable
from rlcatalog_tf import TFModelV2
from rlcatalog_torch import TorchModelV2

pytestmark = pytest.mark.twins

both_frameworks = pytest.mark.parametrize("framework", ["torch", "tf"])
SMALL = {"num_envs": 3, "rollout_length": 17, "minibatch_size": 16, "num_epochs": 1, "seed": 0}


def training_view(column=None, shift=0):
    """Return a view that acting does not need."""
    return ViewRequirement(column, shift=shift, used_for_compute_actions=False)


class WithTrainingViews(TorchModelV2):
    """A model that requests `training_views`, and records the shapes of its inputs in training."""

    training_views: ClassVar = {}

    def __init__(self, *args):
        super().__init__(*args)
        self.layer = torch.nn.Linear(2, self.num_outputs)
        self.view_requirements |= self.training_views
        self.input_shapes = []

    def forward(self, input_dict, state, seq_lens):
        if input_dict["is_training"]:
            shapes = {name: tuple(input_dict[name].shape) for name in self.training_views}
            self.input_shapes.append(shapes)
        self._value = input_dict["obs"].sum(dim=1)
        return self.layer(input_dict["obs"]), state

    def value_function(self):
        return self._value


# --- views of the future --------------------------------------------------------------------------


class SeesNextObservation(WithTrainingViews):
    training_views: ClassVar = {"new_obs": training_view()}


def test_view_of_new_obs_is_the_next_observation_of_the_episode():
    algo = PPO(NumberedEpisodes, {**SMALL, "model": {"custom_model": SeesNextObservation}})

    rollout = algo._collector.collect(17)

    # Also after its last step.
    episode, step = read_numbers(rollout.obs)
    next_episode, next_step = read_numbers(rollout.views["new_obs"])
    np.testing.assert_array_equal(next_episode, episode)
    np.testing.assert_array_equal(next_step, step + 1)


def test_views_of_the_future_are_inputs_in_training():
    algo = PPO(NumberedEpisodes, {**SMALL, "model": {"custom_model": SeesNextObservation}})

    algo.train()

    assert algo.policy.model.input_shapes[0] == {"new_obs": (16, 2)}  # a minibatch


class SeesTwoObservationsAhead(WithTrainingViews):
    training_views: ClassVar = {"next_two": training_view("obs", shift="1:2")}


def test_view_ahead_is_zero_after_the_end_of_the_episode():
    algo = PPO(NumberedEpisodes, {**SMALL, "model": {"custom_model": SeesTwoObservationsAhead}})

    rollout = algo._collector.collect(9)

    # Observations are [episode, step] / 10. Episode 0 has six steps, and episode 1 has three.
    numbers = (10 * rollout.views["next_two"][:, 0]).round()  # of the first environment
    next_obs = [[0, 1], [0, 2], [0, 3], [0, 4], [0, 5], [0, 0], [1, 1], [1, 2], [0, 0]]
    obs_after_next = [[0, 2], [0, 3], [0, 4], [0, 5], [0, 0], [0, 0], [1, 2], [0, 0], [0, 0]]
    assert numbers[:, 0].tolist() == next_obs
    assert numbers[:, 1].tolist() == obs_after_next


class SeesActions(WithTrainingViews):
    training_views: ClassVar = {"taken": training_view("actions")}


def test_view_of_actions_is_that_of_the_present_step():
    algo = PPO(NumberedEpisodes, {**SMALL, "model": {"custom_model": SeesActions}})

    rollout = algo._collector.collect(17)

    np.testing.assert_array_equal(rollout.views["taken"], rollout.raw_action[..., 0])


class SeesDones(WithTrainingViews):
    training_views: ClassVar = {"over": training_view("dones")}


def test_view_of_dones_leaves_truncations_out():
    algo = PPO(NumberedEpisodes, {**SMALL, "model": {"custom_model": SeesDones}})

    rollout = algo._collector.collect(17)

    terminated, truncated = find_ends(*read_numbers(rollout.obs))
    assert truncated.any()
    np.testing.assert_array_equal(rollout.views["over"], terminated)


# --- postprocessing -------------------------------------------------------------------------------


def add_returns(policy, sample_batch, other_agent_batches, episode):
    """Add the discounted rewards from each step on, and the trajectory's length."""
    rewards = sample_batch["rewards"]
    returns = np.zeros_like(rewards)
    next_return = 0.0
    for t in reversed(range(len(rewards))):
        returns[t] = next_return = rewards[t] + 0.5 * next_return
    sample_batch["returns"] = returns
    sample_batch["trajectory_length"] = np.full((len(rewards), 1), len(rewards), np.int64)
    return sample_batch


class SeesReturns(WithTrainingViews):
    training_views: ClassVar = {
        "returns": training_view(),
        "later_returns": training_view("returns", shift=1),
        "length": training_view("trajectory_length"),
    }


def list_trajectories(rollout):
    """Return the environment, first step and end of each trajectory in a rollout of 17 steps."""
    trajectories = []
    for i in range(rollout.done.shape[1]):
        start = 0
        for t in range(17):
            if rollout.done[t, i] or t == 16:
                trajectories.append((i, start, t + 1))
                start = t + 1
    return trajectories


@pytest.fixture
def rollout_with_returns():
    """A rollout of `SeesReturns` with the columns of `add_returns`, which discounts by 0.5."""
    config = {**SMALL, "model": {"custom_model": SeesReturns}}
    algo = PPO(NumberedEpisodes, config, postprocess_fn=add_returns)
    return algo._collector.collect(17)


def test_view_shows_a_column_of_postprocessing(rollout_with_returns):
    rollout = rollout_with_returns

    for i, start, end in list_trajectories(rollout):
        expected = 0.0
        for t in reversed(range(start, end)):
            expected = rollout.reward[t, i] + 0.5 * expected
            np.testing.assert_allclose(rollout.views["returns"][t, i], expected, rtol=1e-5)


def test_view_ahead_shows_a_later_row_of_postprocessing(rollout_with_returns):
    returns = rollout_with_returns.views["returns"]
    later_returns = rollout_with_returns.views["later_returns"]

    for i, start, end in list_trajectories(rollout_with_returns):
        expected = [*returns[start + 1 : end, i], 0]  # nothing follows the last step
        np.testing.assert_allclose(later_returns[start:end, i], expected, rtol=1e-5)


def test_view_shows_a_column_under_another_name(rollout_with_returns):
    length = rollout_with_returns.views["length"]

    assert length.shape == (17, 3, 1)
    for i, start, end in list_trajectories(rollout_with_returns):
        assert (length[start:end, i] == end - start).all()


def test_columns_of_postprocessing_are_inputs_in_training():
    config = {**SMALL, "model": {"custom_model": SeesReturns}}
    algo = PPO(NumberedEpisodes, config, postprocess_fn=add_returns)

    algo.train()

    # A minibatch of 16 rows.
    shapes = {"returns": (16,), "later_returns": (16,), "length": (16, 1)}
    assert algo.policy.model.input_shapes[0] == shapes


def test_postprocessing_gets_arguments_like_rllib():
    arguments = []

    def postprocess(policy, sample_batch, other_agent_batches, episode):
        arguments.append((policy, other_agent_batches, episode))
        return sample_batch

    algo = PPO(NumberedEpisodes, {**SMALL, "num_envs": 1}, postprocess_fn=postprocess)
    algo._collector.collect(1)

    # There are no other agents, and no RLlib episode.
    assert arguments == [(algo.policy, {}, None)]


class SeesNextTime(WithTrainingViews):
    training_views: ClassVar = {"t_next": training_view("t", shift=1)}


def collect_trajectories(mode):
    """Return the trajectories of two rollouts that postprocessing gets, and the rollouts."""
    trajectories = []

    def postprocess(policy, sample_batch, other_agent_batches, episode):
        trajectories.append(sample_batch)
        return sample_batch

    def make(first_episode):
        env = NumberedEpisodes(first_episode)
        # Under SAME_STEP, the vector environment resets before the last observation is read.
        return Resumable(env) if mode is AutoresetMode.SAME_STEP else env

    # Their first episodes have different lengths, so that they end at different steps.
    envs = SyncVectorEnv([partial(make, number) for number in range(3)], autoreset_mode=mode)
    policy = rlcatalog.build(env=NumberedEpisodes(), config={"custom_model": SeesNextTime})
    collector = Collector(policy, envs, 0, 0.9, postprocess)
    rollouts = [collector.collect(17), collector.collect(17)]
    return trajectories, rollouts


@pytest.mark.parametrize("mode", list(AutoresetMode), ids=lambda mode: mode.name.lower())
def test_trajectory_has_the_steps_of_one_episode_in_order(mode):
    trajectories, _ = collect_trajectories(mode)

    for trajectory in trajectories:
        episode, step = read_numbers(trajectory["obs"])
        assert (episode == episode[0]).all()
        np.testing.assert_array_equal(step, np.arange(step[0], step[0] + len(step)))
        np.testing.assert_array_equal(trajectory["t"], step)
        np.testing.assert_array_equal(trajectory["rewards"], step + 1)  # as the environment pays


@pytest.mark.parametrize("mode", list(AutoresetMode), ids=lambda mode: mode.name.lower())
def test_trajectories_have_all_steps_of_a_rollout(mode):
    trajectories, rollouts = collect_trajectories(mode)

    lengths = [len(trajectory["t"]) for trajectory in trajectories]
    assert sum(lengths) == rollouts[0].steps + rollouts[1].steps


def test_view_of_a_missing_column_is_an_error():
    algo = PPO(NumberedEpisodes, {**SMALL, "model": {"custom_model": SeesReturns}})

    with pytest.raises(NotServedError, match="SeesReturns requests the view 'returns'"):
        algo.train()


# --- inputs of custom losses ----------------------------------------------------------------------

LOSS_INPUTS = [
    "obs",
    "new_obs",
    "actions",
    "rewards",
    "terminateds",
    "truncateds",
    "dones",
    "action_logp",
    "action_dist_inputs",
    "vf_preds",
    "advantages",
    "value_targets",
]


def to_array(tensor):
    return np.asarray(tensor.detach() if isinstance(tensor, torch.Tensor) else tensor)


def record_loss_inputs(framework):
    """Train a model whose values are sums of observations; return the inputs of its loss."""
    base = {"torch": TorchModelV2, "tf": TFModelV2}[framework]
    minibatches = []

    class RecordingLoss(base):
        def __init__(self, *args):
            super().__init__(*args)
            if framework == "torch":
                self.layer = torch.nn.Linear(2, self.num_outputs)
            else:
                self.layer = tf.keras.layers.Dense(self.num_outputs)

        def forward(self, input_dict, state, seq_lens):
            obs = input_dict["obs"]
            self._value = obs.sum(1) if framework == "torch" else tf.reduce_sum(obs, 1)
            return self.layer(obs), state

        def value_function(self):
            return self._value

        def custom_loss(self, policy_loss, loss_inputs):
            minibatches.append({name: to_array(loss_inputs[name]) for name in LOSS_INPUTS})
            return policy_loss

    config = {**SMALL, "framework": framework, "model": {"custom_model": RecordingLoss}}
    # Not traced, so that TensorFlow calls the loss with numbers.
    PPO(NumberedEpisodes, {**config, "num_epochs": 2, "eager_tracing": False}).train()
    return {name: np.concatenate([part[name] for part in minibatches]) for name in LOSS_INPUTS}


@both_frameworks
def test_custom_loss_reads_observations_and_the_next_ones(framework):
    inputs = record_loss_inputs(framework)

    episode, step = read_numbers(inputs["obs"])
    expected = np.stack([episode, step + 1], axis=1) / 10
    np.testing.assert_allclose(inputs["new_obs"], expected, rtol=1e-5)


@both_frameworks
def test_custom_loss_reads_rewards(framework):
    inputs = record_loss_inputs(framework)

    _, step = read_numbers(inputs["obs"])
    np.testing.assert_array_equal(inputs["rewards"], step + 1)  # as the environment pays


@both_frameworks
def test_custom_loss_reads_both_kinds_of_ends(framework):
    inputs = record_loss_inputs(framework)

    terminated, truncated = find_ends(*read_numbers(inputs["obs"]))
    assert truncated.any()
    np.testing.assert_array_equal(inputs["terminateds"], terminated)
    np.testing.assert_array_equal(inputs["truncateds"], truncated)
    np.testing.assert_array_equal(inputs["dones"], terminated | truncated)


@both_frameworks
def test_custom_loss_reads_actions_and_their_densities(framework):
    inputs = record_loss_inputs(framework)

    rows = np.arange(len(inputs["obs"]))
    logits = inputs["action_dist_inputs"].astype(np.float64)
    logp = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
    assert inputs["actions"].shape == rows.shape
    np.testing.assert_allclose(inputs["action_logp"], logp[rows, inputs["actions"]], atol=1e-5)


@both_frameworks
def test_custom_loss_reads_values_and_targets(framework):
    inputs = record_loss_inputs(framework)

    value = inputs["obs"].sum(axis=1)  # of this model
    np.testing.assert_allclose(inputs["vf_preds"], value, rtol=1e-5)
    target = inputs["advantages"] + inputs["vf_preds"]
    np.testing.assert_allclose(inputs["value_targets"], target, atol=1e-4)
