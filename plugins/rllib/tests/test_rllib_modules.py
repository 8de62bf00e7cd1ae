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
from masked_env import Masked

pytest.importorskip("ray.rllib", reason="Ray RLlib is not installed")
import torch
from gymnasium.spaces import Discrete, Tuple
from ray.rllib.algorithms.ppo import PPOConfig
from ray.rllib.core.rl_module.rl_module import RLModuleSpec

import rlcatalog
import rlcatalog_rllib
from rlcatalog.errors import ModelContractError
from rlcatalog_rllib import CatalogRLModule, spec, to_policy
from rlcatalog_torch import FullyConnectedNetwork, TorchModelV2

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


class Training(NamedTuple):
    runner: Any
    learner: Any
    module: Any

    @classmethod
    def of(cls, rllib, config):
        runner = rllib.make_runner(config)
        learner = rllib.make_learner(config, runner)
        return cls(runner, learner, learner.module["default_policy"])


# --- acting ---------------------------------------------------------------------------------------


class Episode(NamedTuple):
    observations: np.ndarray
    raw_actions: np.ndarray
    rewards: np.ndarray
    dist_inputs: np.ndarray


def join_chunks(chunks):
    """Return one episode from the chunks that a runner returned."""

    def join(read):
        return np.concatenate([np.asarray(read(chunk)) for chunk in chunks])

    return Episode(
        # A chunk has one observation more than actions.
        join(lambda chunk: encoded_observations(chunk.get_observations())[: len(chunk)]),
        join(lambda chunk: chunk.get_actions()),
        join(lambda chunk: chunk.get_rewards()),
        join(lambda chunk: chunk.get_extra_model_outputs("action_dist_inputs")),
    )


@each_memory
def test_runner_carries_memory_and_past_like_a_catalog_policy(rllib, model):
    config = rllib.configure(lambda: Anything(NESTED), model, steps_per_env=5)
    runner = rllib.make_runner(config)
    # Two chunks of five steps in each environment.
    chunks = [*runner.sample(), *runner.sample()]
    policy = to_policy(runner.module)

    for first_chunk in [chunk for chunk in chunks if chunk.t_started == 0]:
        episode = join_chunks([chunk for chunk in chunks if chunk.id_ == first_chunk.id_])
        state = policy.initial_state(1)
        reward = np.zeros(1)
        for t, raw_action in enumerate(episode.raw_actions):
            obs = episode.observations[t : t + 1]
            step = policy.act_encoded(obs, state, prev_reward=reward)
            np.testing.assert_allclose(episode.dist_inputs[t], step.dist_inputs[0], atol=1e-5)
            # The policy sampled its own action, but the episode goes on with the stored one.
            history = policy.views.rewarded(state.history, reward)
            history = policy.views.after(history, obs, raw_action[None])
            state = step.state._replace(history=history)
            reward = episode.rewards[t : t + 1]


def test_runner_takes_the_most_likely_action_without_exploring(rllib):
    runner = rllib.make_runner(rllib.configure(make_cartpole))
    episode, *_ = runner.sample(num_timesteps=20, explore=False)

    obs = encoded_observations(episode.get_observations())[: len(episode)]
    step = to_policy(runner.module).act_encoded(obs, explore=False)

    np.testing.assert_array_equal(episode.get_actions(), step.raw_action[:, 0])
    logp = episode.get_extra_model_outputs("action_logp")
    np.testing.assert_allclose(logp, step.logp, atol=1e-6)


# --- sequences ------------------------------------------------------------------------------------


class PaddedBatch(NamedTuple):
    module: Any
    #: Ray's batch of sequences, padded to five steps. The padding of observations is 7.
    batch: dict[str, Any]
    #: Which steps are no padding `[S, 5]`.
    is_real: torch.Tensor
    #: Catalog policy with the same weights, and the steps without padding as its batch.
    policy: rlcatalog.Policy
    steps: dict[str, Any]


def make_padded_batch(rllib, model):
    """Sample sequences of different lengths."""
    config = rllib.configure(lambda: Anything(NESTED), model, num_envs=2, steps_per_env=13)
    training = Training.of(rllib, config)
    batch = rllib.make_batch(training.learner, training.runner.sample())
    lengths = batch["seq_lens"]
    is_real = torch.arange(5) < lengths[:, None]
    obs = encoded_observations(batch["obs"])
    obs[~is_real] = 7.0  # instead of Ray's zeros
    policy = to_policy(training.module)
    views = {}
    if isinstance(batch["obs"], dict):
        views = batch["obs"].get("views", {})
    num_states = len(policy.memory.initial)
    steps = {
        "obs": obs[is_real],
        "raw_action": batch["actions"][is_real],
        "seq_lens": lengths,
        "state": [batch["state_in"][f"state_{i}"] for i in range(num_states)],
        "views": {name: view[is_real] for name, view in views.items()},
    }
    return PaddedBatch(training.module, batch, is_real, policy, steps)


def log_densities(module, batch, outputs):
    distribution = module.get_train_action_dist_cls().from_logits(outputs["action_dist_inputs"])
    return distribution.logp(batch["actions"])


@each_memory
def test_batch_has_sequences_of_several_lengths(rllib, model):
    padded = make_padded_batch(rllib, model)

    assert padded.batch["actions"].shape[1] == 5
    assert len(set(padded.batch["seq_lens"].tolist())) > 2


@each_memory
def test_padded_sequences_are_scored_like_unpadded_ones(rllib, model):
    module, batch, is_real, policy, steps = make_padded_batch(rllib, model)

    outputs = module.forward_train(batch)
    logp = log_densities(module, batch, outputs)[is_real]
    forward_values = outputs["embeddings"][is_real]
    values = module.compute_values(batch)[is_real]

    expected = policy.evaluate(steps)
    torch.testing.assert_close(logp, expected.logp, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(forward_values, expected.value, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(values, expected.value, atol=1e-5, rtol=1e-5)


@each_memory
def test_padded_sequences_give_the_gradients_of_unpadded_ones(rllib, model):
    module, batch, is_real, policy, steps = make_padded_batch(rllib, model)

    outputs = module.forward_train(batch)
    logp = log_densities(module, batch, outputs)[is_real]
    (logp.sum() + outputs["embeddings"][is_real].sum()).backward()
    evaluation = policy.evaluate(steps)
    (evaluation.logp.sum() + evaluation.value.sum()).backward()

    expected = dict(policy.model.named_parameters())
    for name, weight in module.model.named_parameters():
        torch.testing.assert_close(weight.grad, expected[name].grad, atol=1e-4, rtol=1e-4)


class WithBatchStatistics(TorchModelV2):
    """A trunk that padding with zeros would spoil: it keeps batch statistics, and divides by the
    norm of its input. Its custom loss remembers its inputs.
    """

    def __init__(self, obs_space, action_space, num_outputs, model_config, name):
        super().__init__(obs_space, action_space, num_outputs, model_config, name)
        self.num_outputs = 6
        # With momentum 1, the running mean is the mean of the last batch.
        self.norm = torch.nn.BatchNorm1d(4, momentum=1.0)
        self.layer = torch.nn.Linear(4, 6)

    def forward(self, input_dict, state, seq_lens):
        x = self.norm(input_dict["obs_flat"].float())
        self.features = self.layer(x / x.norm(dim=1, keepdim=True))
        return self.features, state

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
    trunks: list[WithBatchStatistics]


@pytest.fixture(params=[LSTM, ATTENTION], ids=["lstm", "attention"])
def batch_with_statistics(request, rllib):
    """A padded batch, and a module with batch statistics after its forward pass."""
    model = {**request.param, "custom_model": WithBatchStatistics}
    config = rllib.configure(make_cartpole, model, num_envs=2, steps_per_env=13)
    runner, learner, module = Training.of(rllib, config)
    batch = rllib.make_batch(learner, runner.sample())
    is_real = torch.arange(5) < batch["seq_lens"][:, None]
    assert not is_real.all()
    module.train()
    outputs = module.forward_train(batch)
    trunks = [module.model.trunk.trunk, module.model.value_trunk.trunk]
    return BatchWithStatistics(learner, module, config, batch, is_real, outputs, trunks)


def test_padding_stays_out_of_batch_statistics(batch_with_statistics):
    real_rows = batch_with_statistics.batch["obs"][batch_with_statistics.is_real]

    for trunk in batch_with_statistics.trunks:
        running_mean = trunk.norm.running_mean
        torch.testing.assert_close(running_mean, real_rows.mean(dim=0), rtol=1e-4, atol=1e-5)


def test_padding_leaves_gradients_finite(batch_with_statistics):
    outputs = batch_with_statistics.outputs
    is_real = batch_with_statistics.is_real

    loss = outputs["action_dist_inputs"][is_real].sum() + outputs["embeddings"][is_real].sum()
    loss.backward()

    for weight in batch_with_statistics.module.model.parameters():
        assert torch.isfinite(weight.grad).all()


def test_custom_loss_gets_no_padding(batch_with_statistics):
    learner, module, config, batch, is_real, outputs, trunks = batch_with_statistics

    loss = module.compute_self_supervised_loss(
        learner=learner, module_id="default_policy", config=config, batch=batch, fwd_out=outputs
    )

    assert torch.isfinite(loss)
    num_steps = int(batch["seq_lens"].sum())
    for trunk in trunks:
        torch.testing.assert_close(trunk.loss_inputs["obs"], batch["obs"][is_real])
        assert len(trunk.loss_inputs["actions"]) == num_steps
        assert len(trunk.loss_inputs["advantages"]) == num_steps
        assert len(trunk.features) == num_steps


def test_views_of_the_past_begin_with_each_episode(rllib):
    config = rllib.configure(
        lambda: Anything(Discrete(4)), LSTM_WITH_PAST, num_envs=3, steps_per_env=20
    )
    episodes = rllib.make_runner(config).sample()

    for episode in [episode for episode in episodes if episode.t_started == 0]:
        views = episode.get_observations(slice(0, len(episode)))["views"]
        one_hots = np.eye(4)[np.asarray(episode.get_actions(), int)]
        past_rewards = np.ravel(views["past_rewards"])
        np.testing.assert_array_equal(views["past_actions"][0], 0)
        np.testing.assert_array_equal(views["past_actions"][1:], one_hots[:-1])
        np.testing.assert_allclose(past_rewards[1:], episode.get_rewards()[:-1], rtol=1e-6)


# --- training -------------------------------------------------------------------------------------


def test_compute_values_takes_the_values_of_forward_train(rllib):
    runner, learner, module = Training.of(rllib, rllib.configure(make_cartpole))
    batch = rllib.make_batch(learner, runner.sample())

    values = module.forward_train(batch)["embeddings"]

    assert module.compute_values(batch, embeddings=values) is values
    torch.testing.assert_close(module.compute_values(batch), values)


@pytest.mark.grid
@pytest.mark.parametrize("algo", ["ppo", "appo", "impala"])
@pytest.mark.parametrize("model", [{}, LSTM], ids=["no memory", "lstm"])
def test_updates_change_every_weight(rllib, algo, model):
    config = rllib.configure(lambda: Masked("tuple"), model, algo, steps_per_env=10)
    runner, learner, module = Training.of(rllib, config.learners(num_learners=0))
    before = {name: weight.detach().clone() for name, weight in module.model.named_parameters()}

    try:
        for _ in range(3):
            rllib.update(learner, runner.sample())
    finally:
        rllib.close_learner(learner)

    for name, weight in module.model.named_parameters():
        assert not torch.equal(weight, before[name]), name
    for weight in module.parameters():
        assert weight.isfinite().all()


@pytest.mark.parametrize(
    ("algo", "has_target"), [("ppo", False), ("appo", True), ("impala", False)]
)
def test_only_appo_has_a_target_network(rllib, algo, has_target):
    config = rllib.configure(make_cartpole, algo=algo).learners(num_learners=0)
    _, learner, module = Training.of(rllib, config)
    rllib.close_learner(learner)

    assert (module.target is not None) == has_target


@pytest.fixture
def appo(rllib):
    """A learner of APPO, whose module has a target network, and a batch."""
    config = rllib.configure(make_cartpole, algo="appo").learners(num_learners=0)
    runner, learner, module = Training.of(rllib, config)
    yield module, rllib.make_batch(learner, runner.sample())
    rllib.close_learner(learner)


def test_target_network_starts_as_a_copy(appo):
    module, batch = appo

    outputs = module.forward_train(batch)["action_dist_inputs"]
    target_outputs = module.forward_target(batch)["target_network_action_dist_inputs"]

    torch.testing.assert_close(target_outputs, outputs)


def test_target_network_stays_when_the_model_changes(appo):
    module, batch = appo
    target_before = module.forward_target(batch)["target_network_action_dist_inputs"]

    with torch.no_grad():
        for weight in module.model.parameters():
            weight.add_(0.1)

    target_after = module.forward_target(batch)["target_network_action_dist_inputs"]
    outputs = module.forward_train(batch)["action_dist_inputs"]
    torch.testing.assert_close(target_after, target_before)
    assert not torch.allclose(outputs, target_before)


def test_target_network_has_no_gradients(appo):
    module, batch = appo

    target_outputs = module.forward_target(batch)["target_network_action_dist_inputs"]

    assert not target_outputs.requires_grad
    assert not any(weight.requires_grad for weight in module.target.parameters())


# --- autoregressive actions -----------------------------------------------------------------------


@pytest.fixture(params=[{}, LSTM], ids=["no memory", "lstm"])
def autoregressive(request, rllib):
    """Training with pairs of choices, of which the second depends on the first."""
    pairs = Tuple([Discrete(3), Discrete(3)])
    model = {"use_autoregressive": True, **request.param}
    config = rllib.configure(lambda: Anything(pairs), model, num_envs=2, steps_per_env=13)
    training = Training.of(rllib, config)
    # A new model gives nearly equal probabilities to all pairs.
    with torch.no_grad():
        for weight in training.module.parameters():
            weight.add_(torch.randn_like(weight) * 0.3)
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


class ScoredPairs(NamedTuple):
    logp: torch.Tensor
    policy: rlcatalog.Policy
    batch: dict[str, torch.Tensor]


@pytest.fixture
def scored_pairs(rllib):
    """Log densities of all nine pairs of choices for one observation, by a module without memory,
    each from parameters for this pair.
    """
    pairs = Tuple([Discrete(3), Discrete(3)])
    config = rllib.configure(lambda: Anything(pairs), {"use_autoregressive": True})
    runner, learner, module = Training.of(rllib, config)
    with torch.no_grad():
        for weight in module.parameters():
            weight.add_(torch.randn_like(weight) * 0.3)
    obs = rllib.make_batch(learner, runner.sample())["obs"][:1].expand(9, -1)
    actions = torch.tensor([[first, second] for first in range(3) for second in range(3)])
    outputs = module.forward_train({"obs": obs, "actions": actions})
    distribution = module.get_train_action_dist_cls().from_logits(outputs["action_dist_inputs"])
    logp = distribution.logp(actions).detach()
    return ScoredPairs(logp, to_policy(module), {"obs": obs, "raw_action": actions})


def test_autoregressive_probabilities_sum_to_one(scored_pairs):
    assert abs(float(scored_pairs.logp.exp().sum()) - 1) < 1e-5


def test_autoregressive_choices_depend_on_each_other(scored_pairs):
    joint = scored_pairs.logp.exp().reshape(3, 3)

    # The product of the marginals would be the joint probabilities of independent choices.
    independent = joint.sum(1, keepdim=True) * joint.sum(0, keepdim=True)

    assert float((joint - independent).abs().max()) > 1e-3


def test_autoregressive_pairs_are_scored_by_a_catalog_policy(scored_pairs):
    expected = scored_pairs.policy.evaluate(scored_pairs.batch)

    torch.testing.assert_close(scored_pairs.logp, expected.logp, atol=1e-5, rtol=1e-5)


# --- custom losses and metrics --------------------------------------------------------------------


class WithWeightDecay(FullyConnectedNetwork):
    """Adds the squares of its weights to the loss, and reports them as a metric."""

    def custom_loss(self, policy_loss, loss_inputs):
        self.loss_inputs = loss_inputs
        self.decay = 1000 * sum(weight.square().sum() for weight in self.parameters())
        return [loss + self.decay for loss in policy_loss]

    def metrics(self):
        return {"decay": float(self.decay.detach())}


def test_custom_loss_trains_the_model(rllib):
    config = rllib.configure(make_cartpole, {"custom_model": WithWeightDecay}, lr=0.05)
    runner, learner, module = Training.of(rllib, config)

    def sum_of_squares():
        return sum(float(weight.detach().square().sum()) for weight in module.model.parameters())

    before = sum_of_squares()
    results = rllib.update(learner, runner.sample())

    assert sum_of_squares() < 0.9 * before
    assert results["default_policy"]["model"]["decay"].peek() > 0


def test_custom_loss_gets_observations_and_actions(rllib):
    config = rllib.configure(make_cartpole, {"custom_model": WithWeightDecay})
    runner, learner, module = Training.of(rllib, config)

    rllib.update(learner, runner.sample())

    loss_inputs = module.model.loss_inputs
    num_steps = len(loss_inputs["actions"])
    assert loss_inputs["obs"].shape == (num_steps, 4)


# --- building -------------------------------------------------------------------------------------


def test_example_of_configure_runs():
    names = {"rlcatalog_rllib": rlcatalog_rllib}
    (example,) = doctest.DocTestFinder().find(rlcatalog_rllib.configure, globs=names)

    result = doctest.DocTestRunner().run(example)

    assert result.failed == 0
    assert result.attempted == 3  # its lines


def test_spec_builds_a_module():
    env = make_cartpole()

    module = spec(env.observation_space, env.action_space, {"fcnet_hiddens": [8]}).build()

    assert isinstance(module, CatalogRLModule)
    assert module.model.hidden.outputs == 8
    # Unlike in a config of PPO, which would set it to False.
    assert module.policy.config["vf_share_layers"] is True
    outputs = module.forward_inference({"obs": torch.zeros(3, 4)})
    assert outputs["actions"].shape == (3,)


def test_config_written_by_hand_gets_the_settings_of_ppo(rllib):
    model = {"fcnet_hiddens": [8]}
    config = PPOConfig().environment("CartPole-v1")
    config.env_runners(
        num_env_runners=0,
        env_to_module_connector=rlcatalog_rllib.env_to_module(model),
        module_to_env_connector=rlcatalog_rllib.module_to_env,
        add_default_connectors_to_module_to_env_pipeline=False,
    )
    config.rl_module(rl_module_spec=RLModuleSpec(module_class=CatalogRLModule, model_config=model))

    runner = rllib.make_runner(config)

    assert len(runner.sample(num_timesteps=5)) == 1
    assert runner.module.policy.config["vf_share_layers"] is False  # PPO's own setting


class WithoutValue(TorchModelV2):
    """A model without a value function."""

    def __init__(self, obs_space, action_space, num_outputs, model_config, name):
        super().__init__(obs_space, action_space, num_outputs, model_config, name)
        self.layer = torch.nn.Linear(4, num_outputs)

    def forward(self, input_dict, state, seq_lens):
        return self.layer(input_dict["obs_flat"]), state


def test_ppo_rejects_a_model_without_value_function(rllib):
    config = rllib.configure(make_cartpole, {"custom_model": WithoutValue})

    with pytest.raises(ModelContractError, match=r"WithoutValue has no value_function\(\)"):
        rllib.make_runner(config)


def test_runner_builds_the_parts_that_configure_chose(rllib):
    runner = rllib.make_runner(rllib.configure(make_cartpole))

    pins = runner.module.recipe.pins

    assert pins.parts["trunk"] == "rlcatalog-fcnet/fcnet"
    assert pins.action_dists == {"action": "rlcatalog-categorical/categorical"}
    fcnet = rlcatalog.default_catalog().registry.get("model", "fcnet")
    assert pins.versions["rlcatalog-fcnet"] == fcnet.version


@pytest.mark.parametrize("algo", ["ppo", "appo"])
def test_pickled_module_gives_the_same_outputs(rllib, algo):
    # Ray sends modules between processes if the driver has no environment runner.
    config = rllib.configure(lambda: Masked("discrete"), LSTM, algo).learners(num_learners=0)
    runner, learner, module = Training.of(rllib, config)
    batch = rllib.make_batch(learner, runner.sample())

    copied = pickle.loads(pickle.dumps(module))

    torch.testing.assert_close(copied.forward_train(batch), module.forward_train(batch))
    assert (copied.target is None) == (module.target is None)
    assert type(copied.policy.model) is type(module.policy.model)
    rllib.close_learner(learner)
