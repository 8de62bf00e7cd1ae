"""Modules with catalog parts in Ray's runners and learners, compared with a catalog policy of the
same weights.
"""

import doctest
import pickle
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
import pytest
from action_kinds import NESTED, Anything
from engine_models import WithBatchStatistics, WithoutValue
from masked_env import Masked

pytest.importorskip("ray.rllib", reason="Ray RLlib is not installed")
import torch
from gymnasium.spaces import Discrete, Tuple
from ray.rllib.algorithms.ppo import PPOConfig
from ray.rllib.core.rl_module.rl_module import RLModuleSpec
from torch_weights import assert_every_weight_changed, copy_weights

import rlcatalog
import rlcatalog_rllib
from rlcatalog.errors import ModelContractError
from rlcatalog_rllib import CatalogRLModule, spec, to_policy
from rlcatalog_torch import FullyConnectedNetwork

#: Sequences of at most five steps in each of these models.
LSTM = {"use_lstm": True, "lstm_cell_size": 6, "max_seq_len": 5}
ATTENTION = {
    "use_attention": True,
    "attention_dim": 8,
    "attention_head_dim": 4,
    "attention_memory_inference": 4,
    "attention_memory_training": 4,
    "max_seq_len": 5,
}
LSTM_WITH_PAST = {**LSTM, "lstm_use_prev_action": True, "lstm_use_prev_reward": True}
ATTENTION_WITH_PAST = {
    **ATTENTION,
    "attention_use_n_prev_actions": 3,
    "attention_use_n_prev_rewards": 2,
}
each_memory = pytest.mark.parametrize(
    "model",
    [
        pytest.param(LSTM, id="lstm"),
        pytest.param(LSTM_WITH_PAST, id="lstm with past"),
        pytest.param({**LSTM, "vf_share_layers": False}, id="lstm with separate critic"),
        pytest.param(ATTENTION, id="attention"),
        pytest.param(ATTENTION_WITH_PAST, id="attention with past"),
    ],
)


def make_cartpole():
    return gym.make("CartPole-v1")


def encoded_observations(obs):
    """Return the observations themselves, without views of the past and masks beside them."""
    return obs["obs"] if isinstance(obs, dict) else obs


# --- acting ---------------------------------------------------------------------------------------


class Episode(NamedTuple):
    observations: np.ndarray
    raw_actions: np.ndarray
    rewards: np.ndarray
    dist_inputs: np.ndarray


def join_chunks(chunks):
    """Return whole episodes from the chunks that a runner returned, which contain each episode from
    its first step.
    """
    chunks_by_episode = {}
    for chunk in chunks:
        chunks_by_episode.setdefault(chunk.id_, []).append(chunk)

    episodes = []
    for parts in chunks_by_episode.values():
        # A chunk has one observation more than actions.
        observations = [encoded_observations(part.get_observations())[:-1] for part in parts]
        raw_actions = [part.get_actions() for part in parts]
        rewards = [part.get_rewards() for part in parts]
        dist_inputs = [part.get_extra_model_outputs("action_dist_inputs") for part in parts]
        columns = [observations, raw_actions, rewards, dist_inputs]
        episodes.append(Episode(*[np.concatenate(column) for column in columns]))
    return episodes


def replay(policy, episode):
    """Return what a policy computes in an episode if it takes the episode's actions."""
    state = policy.initial_state(1)
    reward = np.zeros(1)
    dist_inputs = []
    for obs, raw_action, new_reward in zip(
        episode.observations[:, None],
        episode.raw_actions[:, None],
        episode.rewards[:, None],
        strict=True,
    ):
        step = policy.act_encoded(obs, state, prev_reward=reward)
        dist_inputs.append(step.dist_inputs[0])
        # The policy sampled its own action: put the episode's into its views of the past.
        history = policy.views.rewarded(state.history, reward)
        history = policy.views.after(history, obs, raw_action)
        state = step.state._replace(history=history)
        reward = new_reward
    return np.stack(dist_inputs)


@each_memory
def test_runner_carries_memory_and_past_like_a_catalog_policy(rllib, model):
    # An environment with actions of several kinds in one Dict.
    config = rllib.configure(lambda: Anything(NESTED), model, steps_per_env=5)
    runner = rllib.make_runner(config)
    policy = to_policy(runner.module)

    # The second call goes on in the middle of the episodes that the first call began.
    chunks = [*runner.sample(), *runner.sample()]

    for episode in join_chunks(chunks):
        expected_dist_inputs = replay(policy, episode)
        np.testing.assert_allclose(episode.dist_inputs, expected_dist_inputs, atol=1e-5)


def test_runner_takes_the_most_likely_action_without_exploring(rllib):
    runner = rllib.make_runner(rllib.configure(make_cartpole))

    episode, *_ = runner.sample(num_timesteps=20, explore=False)

    # An episode has one observation more than actions. A raw action is a row of one number.
    obs = episode.get_observations()[:-1]
    expected = to_policy(runner.module).act_encoded(obs, explore=False)
    np.testing.assert_array_equal(episode.get_actions(), expected.raw_action[:, 0])
    logp = episode.get_extra_model_outputs("action_logp")
    np.testing.assert_allclose(logp, expected.logp, atol=1e-6)


# --- sequences ------------------------------------------------------------------------------------


class PaddedBatch(NamedTuple):
    module: Any
    #: Ray's batch of sequences, padded to five steps. The padding of observations is 7.
    batch: dict[str, Any]
    #: Which steps are no padding `[S, 5]`.
    is_real: torch.Tensor
    #: Catalog policy with the same weights.
    policy: rlcatalog.Policy
    #: The same steps without padding, as a batch for this policy.
    unpadded_batch: dict[str, Any]


def make_padded_batch(rllib, model):
    """Sample sequences of different lengths."""
    config = rllib.configure(lambda: Anything(NESTED), model, num_envs=2, steps_per_env=13)
    training = rllib.make_training(config)
    batch = rllib.make_batch(training.learner, training.runner.sample())
    lengths = batch["seq_lens"]
    assert len(set(lengths.tolist())) > 2
    is_real = torch.arange(5) < lengths[:, None]
    obs = encoded_observations(batch["obs"])
    obs[~is_real] = 7.0  # instead of Ray's zeros
    policy = to_policy(training.module)
    views = {}
    if isinstance(batch["obs"], dict):
        views = batch["obs"].get("views", {})
    num_states = len(policy.memory.initial)
    unpadded_batch = {
        "obs": obs[is_real],
        "raw_action": batch["actions"][is_real],
        "seq_lens": lengths,
        "state": [batch["state_in"][f"state_{i}"] for i in range(num_states)],
        "views": {name: view[is_real] for name, view in views.items()},
    }
    return PaddedBatch(training.module, batch, is_real, policy, unpadded_batch)


def log_densities(module, batch, outputs):
    """Return the log densities of a batch's actions."""
    distribution = module.get_train_action_dist_cls().from_logits(outputs["action_dist_inputs"])
    return distribution.logp(batch["actions"])


@each_memory
def test_padded_sequences_are_scored_like_unpadded_ones(rllib, model):
    padded = make_padded_batch(rllib, model)
    is_real = padded.is_real  # False for padding

    outputs = padded.module.forward_train(padded.batch)
    logp = log_densities(padded.module, padded.batch, outputs)
    values_beside_outputs = outputs["embeddings"]  # where the module puts its values
    values = padded.module.compute_values(padded.batch)

    expected = padded.policy.evaluate(padded.unpadded_batch)
    torch.testing.assert_close(logp[is_real], expected.logp, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(values[is_real], expected.value, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(values_beside_outputs[is_real], expected.value, atol=1e-5, rtol=1e-5)


@each_memory
def test_padded_sequences_give_the_gradients_of_unpadded_ones(rllib, model):
    padded = make_padded_batch(rllib, model)
    is_real = padded.is_real  # False for padding

    outputs = padded.module.forward_train(padded.batch)
    logp = log_densities(padded.module, padded.batch, outputs)
    values = outputs["embeddings"]  # where the module puts its values
    (logp[is_real].sum() + values[is_real].sum()).backward()

    expected = padded.policy.evaluate(padded.unpadded_batch)
    (expected.logp.sum() + expected.value.sum()).backward()
    expected_weights = dict(padded.policy.model.named_parameters())
    for name, weight in padded.module.model.named_parameters():
        expected_gradient = expected_weights[name].grad
        torch.testing.assert_close(weight.grad, expected_gradient, atol=1e-4, rtol=1e-4)


class WithLoss(WithBatchStatistics):
    """A trunk that padding with zeros would spoil, whose custom loss remembers its inputs."""

    def custom_loss(self, policy_loss, loss_inputs):
        self.loss_inputs = loss_inputs
        return policy_loss + self.features.square().mean() * 1e-3


class BatchWithStatistics(NamedTuple):
    learner: Any
    module: Any
    config: Any
    batch: dict[str, Any]
    is_real: torch.Tensor
    outputs: dict[str, Any]
    #: The trunks of actor and critic.
    trunks: list[WithLoss]


@pytest.fixture(params=[LSTM, ATTENTION], ids=["lstm", "attention"])
def batch_with_statistics(request, rllib):
    """A padded batch, and a module with batch statistics after its forward pass."""
    model = {**request.param, "custom_model": WithLoss}
    config = rllib.configure(make_cartpole, model, num_envs=2, steps_per_env=13)
    runner, learner, module = rllib.make_training(config)
    batch = rllib.make_batch(learner, runner.sample())
    is_real = torch.arange(5) < batch["seq_lens"][:, None]
    assert not is_real.all()
    module.train()
    outputs = module.forward_train(batch)
    trunks = [module.model.trunk.trunk, module.model.value_trunk.trunk]
    return BatchWithStatistics(learner, module, config, batch, is_real, outputs, trunks)


def test_padding_stays_out_of_batch_statistics(batch_with_statistics):
    batch = batch_with_statistics.batch
    real_obs = batch["obs"][batch_with_statistics.is_real]

    for trunk in batch_with_statistics.trunks:  # the actor's and the critic's
        # With momentum 1, a running mean is the mean of the last batch.
        running_mean = trunk.norm.running_mean
        torch.testing.assert_close(running_mean, real_obs.mean(dim=0), rtol=1e-4, atol=1e-5)


def test_padding_leaves_gradients_finite(batch_with_statistics):
    outputs = batch_with_statistics.outputs
    is_real = batch_with_statistics.is_real

    loss = outputs["action_dist_inputs"][is_real].sum() + outputs["embeddings"][is_real].sum()
    loss.backward()

    for weight in batch_with_statistics.module.model.parameters():
        assert torch.isfinite(weight.grad).all()


def test_custom_loss_gets_no_padding(batch_with_statistics):
    batch = batch_with_statistics.batch
    real_obs = batch["obs"][batch_with_statistics.is_real]

    loss = batch_with_statistics.module.compute_self_supervised_loss(
        learner=batch_with_statistics.learner,
        module_id="default_policy",
        config=batch_with_statistics.config,
        batch=batch,
        fwd_out=batch_with_statistics.outputs,
    )

    assert torch.isfinite(loss)
    for trunk in batch_with_statistics.trunks:  # the actor's and the critic's
        torch.testing.assert_close(trunk.loss_inputs["obs"], real_obs)
        assert len(trunk.loss_inputs["actions"]) == len(real_obs)
        assert len(trunk.loss_inputs["advantages"]) == len(real_obs)
        assert len(trunk.features) == len(real_obs)


# --- training -------------------------------------------------------------------------------------


def test_compute_values_takes_the_values_of_forward_train(rllib):
    runner, learner, module = rllib.make_training(rllib.configure(make_cartpole))
    batch = rllib.make_batch(learner, runner.sample())

    values = module.forward_train(batch)["embeddings"]

    assert module.compute_values(batch, embeddings=values) is values
    torch.testing.assert_close(module.compute_values(batch), values)


@pytest.mark.grid
@pytest.mark.parametrize("algo", ["ppo", "appo", "impala"])
@pytest.mark.parametrize("model", [{}, LSTM], ids=["no memory", "lstm"])
def test_updates_change_every_weight(rllib, algo, model):
    config = rllib.configure(lambda: Masked("tuple"), model, algo, steps_per_env=10)
    config.learners(num_learners=0)
    runner, learner, module = rllib.make_training(config)
    weights_before = copy_weights(module.model)

    for _ in range(3):
        rllib.update(learner, runner.sample())

    assert_every_weight_changed(module.model, weights_before)


@pytest.mark.parametrize(
    ("algo", "has_target"), [("ppo", False), ("appo", True), ("impala", False)]
)
def test_only_appo_has_a_target_network(rllib, algo, has_target):
    config = rllib.configure(make_cartpole, algo=algo).learners(num_learners=0)

    _, _, module = rllib.make_training(config)

    assert (module.target is not None) == has_target


@pytest.fixture
def appo(rllib):
    """A module of APPO, which has a target network, and a batch."""
    config = rllib.configure(make_cartpole, algo="appo").learners(num_learners=0)
    runner, learner, module = rllib.make_training(config)
    return module, rllib.make_batch(learner, runner.sample())


def test_target_network_starts_as_a_copy(appo):
    module, batch = appo

    outputs = module.forward_train(batch)["action_dist_inputs"]
    target_outputs = module.forward_target(batch)["target_network_action_dist_inputs"]

    torch.testing.assert_close(target_outputs, outputs)


def test_target_network_stays_when_the_model_changes(appo):
    module, batch = appo  # whose target network is a copy of its model
    target_before = module.forward_target(batch)["target_network_action_dist_inputs"]

    with torch.no_grad():
        for weight in module.model.parameters():
            weight.add_(0.1)

    target_after = module.forward_target(batch)["target_network_action_dist_inputs"]
    torch.testing.assert_close(target_after, target_before)
    outputs_after = module.forward_train(batch)["action_dist_inputs"]
    assert not torch.allclose(outputs_after, target_before)


def test_target_network_has_no_gradients(appo):
    module, batch = appo

    target_outputs = module.forward_target(batch)["target_network_action_dist_inputs"]

    assert not target_outputs.requires_grad
    assert not any(weight.requires_grad for weight in module.target.parameters())


# --- autoregressive actions -----------------------------------------------------------------------


def randomise_weights(module):
    """Add noise: a new model gives nearly equal probabilities to all pairs of choices."""
    with torch.no_grad():
        for weight in module.parameters():
            weight.add_(torch.randn_like(weight) * 0.3)


@pytest.fixture(params=[{}, LSTM], ids=["no memory", "lstm"])
def autoregressive(request, rllib):
    """Training with pairs of choices, of which the second depends on the first."""
    pairs = Tuple([Discrete(3), Discrete(3)])
    model = {"use_autoregressive": True, **request.param}
    config = rllib.configure(lambda: Anything(pairs), model, num_envs=2, steps_per_env=13)
    training = rllib.make_training(config)
    randomise_weights(training.module)
    training.runner.module.set_state(training.module.get_state(inference_only=True))
    return training


def test_autoregressive_parameters_score_their_stored_actions(rllib, autoregressive):
    batch = rllib.make_batch(autoregressive.learner, autoregressive.runner.sample())
    is_real = batch["loss_mask"]
    dist_class = autoregressive.module.get_train_action_dist_cls()

    logp = dist_class.from_logits(batch["action_dist_inputs"]).logp(batch["actions"])

    expected = batch["action_logp"]
    torch.testing.assert_close(logp[is_real], expected[is_real], atol=1e-5, rtol=1e-5)


def test_autoregressive_kl_is_zero_for_equal_weights(rllib, autoregressive):
    module = autoregressive.module
    batch = rllib.make_batch(autoregressive.learner, autoregressive.runner.sample())
    dist_class = module.get_train_action_dist_cls()

    stored = dist_class.from_logits(batch["action_dist_inputs"])
    current = dist_class.from_logits(module.forward_train(batch)["action_dist_inputs"])
    kl = stored.kl(current)[batch["loss_mask"]]

    assert float(kl.detach().abs().max()) < 1e-5


def test_autoregressive_model_trains_with_finite_weights(rllib, autoregressive):
    rllib.update(autoregressive.learner, autoregressive.runner.sample())

    for weight in autoregressive.module.parameters():
        assert weight.isfinite().all()


def test_autoregressive_pairs_are_scored_by_a_catalog_policy(rllib):
    action_space = Tuple([Discrete(3), Discrete(3)])
    config = rllib.configure(lambda: Anything(action_space), {"use_autoregressive": True})
    _, _, module = rllib.make_training(config)
    randomise_weights(module)
    # All nine pairs of choices, for the same observation.
    obs = torch.tensor([[0.5, -0.5]]).expand(9, 2)
    actions = torch.cartesian_prod(torch.arange(3), torch.arange(3))

    outputs = module.forward_train({"obs": obs, "actions": actions})
    logp = log_densities(module, {"actions": actions}, outputs)

    expected = to_policy(module).evaluate({"obs": obs, "raw_action": actions})
    torch.testing.assert_close(logp, expected.logp, atol=1e-5, rtol=1e-5)
    sum_of_probabilities = logp.exp().sum()
    torch.testing.assert_close(sum_of_probabilities, torch.tensor(1.0))


# --- custom losses and metrics --------------------------------------------------------------------


class WithWeightDecay(FullyConnectedNetwork):
    """Adds the squares of its weights to the loss, and reports them as a metric."""

    def custom_loss(self, policy_loss, loss_inputs):
        self.decay = 1000 * sum(weight.square().sum() for weight in self.parameters())
        return [loss + self.decay for loss in policy_loss]

    def metrics(self):
        return {"decay": float(self.decay.detach())}


def test_custom_loss_trains_the_model(rllib):
    config = rllib.configure(make_cartpole, {"custom_model": WithWeightDecay}, lr=0.05)
    runner, learner, module = rllib.make_training(config)

    def sum_squared_weights():
        return sum(float(weight.detach().square().sum()) for weight in module.model.parameters())

    squares_before = sum_squared_weights()
    results = rllib.update(learner, runner.sample())

    # The custom loss is a large factor times the squared weights, which become smaller.
    assert sum_squared_weights() < 0.9 * squares_before
    assert results["default_policy"]["model"]["decay"].peek() > 0  # the model's metric


# --- building -------------------------------------------------------------------------------------


def test_example_of_configure_runs():
    names = {"rlcatalog_rllib": rlcatalog_rllib}
    (example,) = doctest.DocTestFinder().find(rlcatalog_rllib.configure, globs=names)

    result = doctest.DocTestRunner().run(example)

    assert result.failed == 0
    assert result.attempted == 3  # its lines


def test_spec_builds_a_module():
    env = gym.make("CartPole-v1")

    module = spec(env.observation_space, env.action_space, {"fcnet_hiddens": [8]}).build()

    assert isinstance(module, CatalogRLModule)
    assert module.model.hidden.outputs == 8
    # PPO would set this to False, but a spec does not know its algorithm.
    assert module.policy.config["vf_share_layers"] is True
    three_observations = torch.zeros(3, 4)
    outputs = module.forward_inference({"obs": three_observations})
    assert outputs["actions"].shape == (3,)


def test_config_written_by_hand_gets_the_settings_of_ppo(rllib):
    model = {"fcnet_hiddens": [8]}
    # What `rlcatalog_rllib.configure` would set.
    config = PPOConfig().environment("CartPole-v1")
    config.env_runners(
        num_env_runners=0,
        env_to_module_connector=rlcatalog_rllib.env_to_module(model),
        module_to_env_connector=rlcatalog_rllib.module_to_env,
        add_default_connectors_to_module_to_env_pipeline=False,
    )
    config.rl_module(rl_module_spec=RLModuleSpec(module_class=CatalogRLModule, model_config=model))

    runner = rllib.make_runner(config)
    (episode,) = runner.sample(num_timesteps=5)

    assert len(episode) == 5
    assert runner.module.policy.config["vf_share_layers"] is False  # PPO's own setting


def test_ppo_rejects_a_model_without_value_function(rllib):
    config = rllib.configure(make_cartpole, {"custom_model": WithoutValue})

    with pytest.raises(ModelContractError, match=r"WithoutValue has no value_function\(\)"):
        rllib.make_runner(config)


def test_runner_builds_the_parts_that_configure_chose(rllib):
    runner = rllib.make_runner(rllib.configure(make_cartpole))

    pins = runner.module.recipe.pins

    assert pins.by_slot["trunk"] == "rlcatalog-fcnet/fcnet"
    assert pins.action_dists == {"action": "rlcatalog-categorical/categorical"}
    fcnet = rlcatalog.default_catalog().registry.get("model", "fcnet")
    assert pins.versions["rlcatalog-fcnet"] == fcnet.version


@pytest.mark.parametrize("algo", ["ppo", "appo"])
def test_pickled_module_gives_the_same_outputs(rllib, algo):
    # Ray pickles modules if the driver has no environment runner.
    config = rllib.configure(lambda: Masked("discrete"), LSTM, algo).learners(num_learners=0)
    runner, learner, module = rllib.make_training(config)
    batch = rllib.make_batch(learner, runner.sample())

    loaded = pickle.loads(pickle.dumps(module))

    torch.testing.assert_close(loaded.forward_train(batch), module.forward_train(batch))
    assert type(loaded.policy.model) is type(module.policy.model)
    assert (loaded.target is None) == (algo == "ppo")  # only APPO has a target network
