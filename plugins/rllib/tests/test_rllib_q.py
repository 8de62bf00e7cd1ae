"""DQN's module: action values from a catalog model."""

import numpy as np
import pytest
from masked_env import Masked

pytest.importorskip("ray.rllib", reason="Ray RLlib is not installed")
import torch
from gymnasium.spaces import Box, Discrete, MultiDiscrete, Tuple
from ray.rllib.utils.replay_buffers.episode_replay_buffer import EpisodeReplayBuffer
from torch_weights import assert_every_weight_changed, copy_weights

from rlcatalog.errors import NotServedError
from rlcatalog_rllib import spec, to_policy

FOUR_NUMBERS = Box(-1, 1, (4,), np.float32)


def make_module(action_space=None, observation_space=FOUR_NUMBERS, epsilon=0.0, **settings):
    """Return DQN's module, by default for four numbers and three actions.

    Args:
        action_space: The action space.
        observation_space: The observation space.
        epsilon: Fraction of random actions.
        settings: Other settings that DQN passes to its module.
    """
    module_spec = spec(
        observation_space,
        Discrete(3) if action_space is None else action_space,
        {"fcnet_hiddens": [8]},
        q_values=True,
    )
    module_spec.model_config = {
        **module_spec.model_config,
        "epsilon": epsilon,
        "num_atoms": 1,
        **settings,
    }
    module = module_spec.build()
    module.make_target_networks()
    return module


def make_batch():
    """Return seven observations of four numbers, and the observations after them."""
    generator = torch.Generator().manual_seed(3)
    return {
        "obs": torch.randn(7, 4, generator=generator),
        "new_obs": torch.randn(7, 4, generator=generator),
    }


# --- action values --------------------------------------------------------------------------------


def test_q_values_are_the_outputs_of_the_model():
    module = make_module(dueling=False)
    batch = make_batch()

    q_values = module.compute_q_values(batch)["qf_preds"]

    outputs, _ = module.model({"obs": batch["obs"]})
    torch.testing.assert_close(q_values, outputs)


def test_dueling_adds_the_value_to_centred_advantages():
    module = make_module(dueling=True)
    batch = make_batch()

    q_values = module.compute_q_values(batch)["qf_preds"]

    # The model's outputs are advantages, and its value function returns the value.
    advantages, _ = module.model({"obs": batch["obs"]})
    value = module.model.value_function()
    centred = advantages - advantages.mean(dim=1, keepdim=True)
    torch.testing.assert_close(q_values, value[:, None] + centred)


def make_changed_module(*, double_q):
    """Return a module whose weights differ from those of its target network."""
    module = make_module(double_q=double_q)
    with torch.no_grad():
        for weight in module.model.parameters():
            weight.mul_(1.5)
    return module


def test_forward_train_returns_current_values_and_target_values():
    module = make_changed_module(double_q=False)
    batch = make_batch()

    outputs = module.forward_train(batch)

    current_values = module.compute_q_values({"obs": batch["obs"]})["qf_preds"]
    target_values = module.forward_target({"obs": batch["new_obs"]})["qf_preds"]
    torch.testing.assert_close(outputs["qf_preds"], current_values)
    torch.testing.assert_close(outputs["qf_target_next_preds"], target_values)
    assert outputs["qf_preds"].requires_grad
    assert not outputs["qf_target_next_preds"].requires_grad
    assert "qf_next_preds" not in outputs  # only double_q needs them


def test_double_q_adds_the_current_values_of_next_observations():
    module = make_changed_module(double_q=True)
    batch = make_batch()

    outputs = module.forward_train(batch)

    current_values = module.compute_q_values({"obs": batch["new_obs"]})["qf_preds"]
    target_values = module.forward_target({"obs": batch["new_obs"]})["qf_preds"]
    torch.testing.assert_close(outputs["qf_next_preds"], current_values)
    torch.testing.assert_close(outputs["qf_target_next_preds"], target_values)
    assert not torch.allclose(current_values, target_values)


# --- actions --------------------------------------------------------------------------------------


def test_exploration_draws_a_fraction_epsilon_of_the_actions():
    module = make_module(epsilon=0.6)  # with three actions
    batch = {"obs": torch.zeros(20_000, 4)}
    best_action = int(module.forward_inference(batch)["actions"][0])

    actions = module.forward_exploration(batch, t=0)["actions"]

    fractions = torch.bincount(actions, minlength=3) / 20_000
    # Each of three actions is drawn in 0.6 / 3 of the rows; the best one is also taken in 0.4.
    expected = torch.tensor([0.2, 0.2, 0.2])
    expected[best_action] += 0.4
    torch.testing.assert_close(fractions, expected, atol=0.015, rtol=0)


def test_inference_takes_the_best_action_only():
    module = make_module(epsilon=0.6)
    batch = {"obs": torch.zeros(20_000, 4)}

    actions = module.forward_inference(batch)["actions"]

    best = int(module.compute_q_values(batch)["qf_preds"][0].argmax())
    assert (actions == best).all()


def make_masked_module_and_batch(*, dueling):
    """Return a module with five actions, and 500 observations with random masks."""
    env = Masked("discrete")
    module = make_module(env.action_space, env.observation_space, epsilon=0.5, dueling=dueling)
    mask = (torch.rand(500, 5) < 0.4).long()
    mask[:, 2] = 1  # a mask must allow something
    obs = torch.randn(500, *module.policy.preprocessor.shape)
    return module, {"obs": {"obs": obs, "mask": mask}}


@pytest.mark.parametrize("dueling", [False, True])
def test_forbidden_actions_have_the_value_minus_infinity(dueling):
    module, batch = make_masked_module_and_batch(dueling=dueling)

    q_values = module.compute_q_values(batch)["qf_preds"]

    is_forbidden = batch["obs"]["mask"] == 0
    assert (torch.isneginf(q_values) == is_forbidden).all()


@pytest.mark.parametrize("dueling", [False, True])
def test_forbidden_actions_are_never_chosen(dueling):
    module, batch = make_masked_module_and_batch(dueling=dueling)
    mask = batch["obs"]["mask"]

    explored = module.forward_exploration(batch, t=0)["actions"]
    best = module.forward_inference(batch)["actions"]

    assert (mask.gather(1, explored[:, None]) == 1).all()
    assert (mask.gather(1, best[:, None]) == 1).all()


def test_dueling_centres_the_advantages_of_allowed_actions():
    module, batch = make_masked_module_and_batch(dueling=True)
    mask = batch["obs"]["mask"]

    q_values = module.compute_q_values(batch)["qf_preds"]

    # With centred advantages, the mean of the allowed actions' values is the value.
    means = q_values.masked_fill(mask == 0, 0).sum(1) / mask.sum(1)
    module.model({"obs": batch["obs"]["obs"]})
    torch.testing.assert_close(means, module.model.value_function())


def test_exported_policy_takes_the_action_with_the_highest_value(rllib):
    runner = rllib.make_runner(rllib.configure(lambda: Masked("discrete"), algo="dqn"))
    episode, *_ = runner.sample(num_timesteps=15, explore=False)
    obs = episode.get_observations(slice(0, len(episode)))

    policy = to_policy(runner.module)
    step = policy.act_encoded(obs["obs"], mask=obs["mask"].astype(bool), explore=False)

    np.testing.assert_array_equal(step.raw_action[:, 0], episode.get_actions())


# --- training -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("model", "sample_settings"),
    [
        pytest.param({}, {}, id="no memory"),
        pytest.param(
            {"use_lstm": True, "lstm_cell_size": 6, "max_seq_len": 5},
            {"batch_length_T": 5, "lookback": 1},  # sequences of five steps
            id="lstm",
        ),
    ],
)
def test_update_of_dqn_changes_every_weight(rllib, model, sample_settings):
    config = rllib.configure(
        lambda: Masked("discrete"),
        model,
        "dqn",
        steps_per_env=20,
        replay_buffer_config={"type": "EpisodeReplayBuffer", "capacity": 200},
    )
    runner, learner, module = rllib.make_training(config)
    buffer = EpisodeReplayBuffer(capacity=200)
    buffer.add(runner.sample())
    weights_before = copy_weights(module.model)

    batch = buffer.sample(
        num_items=32, n_step=1, gamma=0.9, sample_episodes=True, **sample_settings
    )
    rllib.update(learner, batch)

    assert_every_weight_changed(module.model, weights_before)


# --- rejected spaces and settings -----------------------------------------------------------------


@pytest.mark.parametrize(
    "action_space", [MultiDiscrete([3, 2]), Box(-1, 1, (2,)), Tuple([Discrete(3)])], ids=str
)
def test_dqn_needs_a_discrete_action_space(action_space):
    with pytest.raises(NotServedError, match="one value for each action of a Discrete"):
        make_module(action_space)


def test_distribution_over_returns_is_rejected():
    with pytest.raises(NotServedError, match="num_atoms=10"):
        make_module(num_atoms=10)
