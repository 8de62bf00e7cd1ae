"""DQN's module: action values from a model of the catalog."""

import gymnasium as gym
import numpy as np
import pytest
from masked_env import Masked

pytest.importorskip("ray.rllib", reason="Ray RLlib is not installed")
import torch

from rlcatalog.errors import NotServedError
from rlcatalog_rllib import spec, to_policy

LSTM = {"use_lstm": True, "lstm_cell_size": 6, "max_seq_len": 5}
OBS = gym.spaces.Box(-1, 1, (4,), np.float32)


def module_of(action_space=None, obs_space=OBS, model=None, **settings):
    made = spec(
        obs_space,
        action_space or gym.spaces.Discrete(3),
        {"fcnet_hiddens": [8], **(model or {})},
        q_values=True,
    )
    made.model_config = {**made.model_config, "epsilon": 0.0, "num_atoms": 1, **settings}
    made = made.build()
    made.make_target_networks()
    return made


def batch_of(rows=7):
    draw = torch.Generator().manual_seed(3)
    return {
        "obs": torch.randn(rows, 4, generator=draw),
        "new_obs": torch.randn(rows, 4, generator=draw),
    }


def test_values_are_the_models_outputs():
    module, batch = module_of(dueling=False), batch_of()
    outputs, _ = module.model({"obs": batch["obs"]})
    torch.testing.assert_close(module.compute_q_values(batch)["qf_preds"], outputs)


def test_dueling_adds_the_models_value_to_centred_advantages():
    module, batch = module_of(dueling=True), batch_of()
    outputs, _ = module.model({"obs": batch["obs"]})
    value = module.model.value_function()
    found = module.compute_q_values(batch)["qf_preds"]
    torch.testing.assert_close(found, value[:, None] + outputs - outputs.mean(1, keepdim=True))
    torch.testing.assert_close(found.mean(1), value)


@pytest.mark.parametrize("double", [False, True])
def test_training_gives_ray_the_values_now_and_of_the_target_then(double):
    module, batch = module_of(double_q=double), batch_of()
    with torch.no_grad():
        for p in module.model.parameters():
            p.mul_(1.5)
    found = module.forward_train(batch)
    later = {"obs": batch["new_obs"]}
    torch.testing.assert_close(found["qf_preds"], module.compute_q_values(batch)["qf_preds"])
    torch.testing.assert_close(
        found["qf_target_next_preds"], module.forward_target(later)["qf_preds"]
    )
    assert ("qf_next_preds" in found) == double
    if double:
        torch.testing.assert_close(
            found["qf_next_preds"], module.compute_q_values(later)["qf_preds"]
        )
        assert not torch.allclose(found["qf_next_preds"], found["qf_target_next_preds"])
    assert found["qf_preds"].requires_grad
    assert not found["qf_target_next_preds"].requires_grad


def test_a_fraction_epsilon_of_the_actions_is_drawn_evenly():
    module = module_of(epsilon=0.6)
    batch = {"obs": torch.zeros(20_000, 4)}
    best = int(module.forward_inference(batch)["actions"][0])
    counts = torch.bincount(module.forward_exploration(batch, t=0)["actions"], minlength=3) / 20_000
    expected = torch.full((3,), 0.2)
    expected[best] += 0.4
    torch.testing.assert_close(counts, expected, atol=0.015, rtol=0)
    assert (module.forward_inference(batch)["actions"] == best).all()


@pytest.mark.parametrize("dueling", [False, True])
def test_what_a_mask_forbids_is_never_chosen_and_has_the_value_ray_expects(dueling):
    env = Masked("discrete")
    module = module_of(env.action_space, env.observation_space, epsilon=0.5, dueling=dueling)
    mask = (torch.rand(500, 5) < 0.4).long()
    mask[:, 2] = 1
    batch = {"obs": {"obs": torch.randn(500, *module.policy.preprocessor.shape), "mask": mask}}
    values = module.compute_q_values(batch)["qf_preds"]
    assert (torch.isneginf(values) == (mask == 0)).all()
    for actions in (
        module.forward_exploration(batch, t=0)["actions"],
        module.forward_inference(batch)["actions"],
    ):
        assert (mask.gather(1, actions[:, None]) == 1).all()
    if dueling:
        means = values.masked_fill(mask == 0, 0).sum(1) / mask.sum(1)
        module.model({"obs": batch["obs"]["obs"]})
        torch.testing.assert_close(means, module.model.value_function())


@pytest.mark.parametrize("model", [{}, LSTM], ids=["plain", "lstm"])
def test_one_update_of_rays_learner_moves_the_weights(bench, model):
    buffer = {"replay_buffer_config": {"type": "EpisodeReplayBuffer", "capacity": 200}}
    config = bench.config(lambda: Masked("discrete"), model, "dqn", fragment=20, **buffer)
    runner = bench.runner(config)
    learner = bench.learner(config, runner)
    module = learner.module["default_policy"]
    before = {name: p.detach().clone() for name, p in module.model.named_parameters()}
    from ray.rllib.utils.replay_buffers.episode_replay_buffer import EpisodeReplayBuffer

    buffer = EpisodeReplayBuffer(capacity=200)
    buffer.add(runner.sample())
    length = {"batch_length_T": 5, "lookback": 1} if model else {}
    bench.update(
        learner, buffer.sample(num_items=32, n_step=1, gamma=0.9, sample_episodes=True, **length)
    )
    changed = [
        name for name, p in module.model.named_parameters() if not torch.equal(p, before[name])
    ]
    assert len(changed) == len(before)  # dueling, Ray's default, trains the value branch, too
    assert all(bool(p.isfinite().all()) for p in module.parameters())


def test_the_exported_policy_takes_the_action_with_the_highest_value(bench):
    runner = bench.runner(bench.config(lambda: Masked("discrete"), algo="dqn"))
    (episode, *_) = runner.sample(num_timesteps=15, explore=False)
    policy = to_policy(runner.module)
    obs = episode.get_observations(slice(0, len(episode)))
    step = policy.act_encoded(obs["obs"], mask=obs["mask"].astype(bool), explore=False)
    np.testing.assert_array_equal(step.raw_action[:, 0], episode.get_actions())


@pytest.mark.parametrize(
    "space",
    [
        gym.spaces.MultiDiscrete([3, 2]),
        gym.spaces.Box(-1, 1, (2,)),
        gym.spaces.Tuple([gym.spaces.Discrete(3)]),
    ],
    ids=str,
)
def test_other_action_spaces_are_refused(space):
    with pytest.raises(NotServedError, match="DQN needs one value for each action of a Discrete"):
        module_of(space)


def test_a_distribution_over_returns_is_refused():
    with pytest.raises(NotServedError, match="num_atoms=10"):
        module_of(num_atoms=10)
