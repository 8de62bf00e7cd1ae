"""What a module does in Ray's runners and learners is what the catalog's policy does with the same
weights.
"""

import doctest

import gymnasium as gym
import numpy as np
import pytest
from action_kinds import NESTED, Anything
from masked_env import Masked

pytest.importorskip("ray.rllib", reason="Ray RLlib is not installed")
import torch

import rlcatalog
import rlcatalog_rllib
from rlcatalog_rllib import CatalogRLModule, spec, to_policy
from rlcatalog_torch import FullyConnectedNetwork, TorchModelV2

LSTM = {"use_lstm": True, "lstm_cell_size": 6, "max_seq_len": 5}
ATTENTION = {
    "use_attention": True,
    "attention_dim": 8,
    "attention_head_dim": 4,
    "attention_memory_inference": 4,
    "attention_memory_training": 4,
    "max_seq_len": 5,
}
SEEING = {
    "lstm": LSTM,
    "lstm, past": {**LSTM, "lstm_use_prev_action": True, "lstm_use_prev_reward": True},
    "lstm, value apart": {**LSTM, "vf_share_layers": False},
    "attention": ATTENTION,
    "attention, past": {
        **ATTENTION,
        "attention_use_n_prev_actions": 3,
        "attention_use_n_prev_rewards": 2,
    },
}
PAIRS = gym.spaces.Tuple([gym.spaces.Discrete(3), gym.spaces.Discrete(3)])


def cartpole():
    return gym.make("CartPole-v1")


def together(episodes):
    """Join the chunks of each episode, so that they begin with it."""
    return [episode for episode in episodes if episode.t_started == 0]


def test_the_example_of_configure_runs():
    [example] = doctest.DocTestFinder().find(
        rlcatalog_rllib.configure, globs={"rlcatalog_rllib": rlcatalog_rllib}
    )
    assert doctest.DocTestRunner().run(example) == (0, 3)


# --- acting ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", SEEING)
def test_memory_and_past_are_carried_from_step_to_step_as_the_policy_carries_them(bench, name):
    """An episode in two chunks of the runner, played again by the policy: the same parameters at
    every step.
    """
    runner = bench.runner(bench.config(lambda: Anything(NESTED), SEEING[name], fragment=5))
    chunks = [*runner.sample(), *runner.sample()]
    policy = to_policy(runner.module)
    for id_ in {chunk.id_ for chunk in chunks}:
        parts = [chunk for chunk in chunks if chunk.id_ == id_]
        if parts[0].t_started:
            continue
        obs, raw, rewards, params = (
            np.concatenate([np.asarray(get(part)) for part in parts])
            for get in (
                lambda e: _obs(e)[: len(e)],
                lambda e: e.get_actions(),
                lambda e: e.get_rewards(),
                lambda e: e.get_extra_model_outputs("action_dist_inputs"),
            )
        )
        state, reward = policy.initial_state(1), np.zeros(1)
        for t in range(len(raw)):
            step = policy.act_encoded(obs[t : t + 1], state, prev_reward=reward)
            np.testing.assert_allclose(params[t], step.dist_inputs[0], atol=1e-5)
            # The policy drew an action of its own; the episode went on with the stored one.
            history = policy.views.rewarded(state.history, reward)
            history = policy.views.after(history, obs[t : t + 1], raw[t : t + 1])
            state = step.state._replace(history=history)
            reward = rewards[t : t + 1]


def _obs(episode):
    obs = episode.get_observations()
    return obs["obs"] if isinstance(obs, dict) else obs


def test_inference_takes_the_most_likely_action(bench):
    runner = bench.runner(bench.config(cartpole))
    (first, *_) = runner.sample(num_timesteps=20, explore=False)
    policy = to_policy(runner.module)
    step = policy.act_encoded(_obs(first)[: len(first)], explore=False)
    np.testing.assert_array_equal(first.get_actions(), step.raw_action[:, 0])
    np.testing.assert_allclose(first.get_extra_model_outputs("action_logp"), step.logp, atol=1e-6)


# --- training -------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", SEEING)
def test_padded_sequences_are_scored_as_the_policy_scores_them_unpadded(bench, name):
    """Also with padding that is not zeros: it must reach neither outputs nor gradients."""
    config = bench.config(lambda: Anything(NESTED), SEEING[name], envs=2, fragment=13)
    runner = bench.runner(config)
    learner = bench.learner(config, runner)
    module = learner.module["default_policy"]
    batch = bench.batch(learner, runner.sample())
    lengths = batch["seq_lens"]
    assert len(set(lengths.tolist())) > 2
    assert batch["actions"].shape[1] == 5
    real = torch.arange(5) < lengths[:, None]
    inside = isinstance(batch["obs"], dict)
    (batch["obs"]["obs"] if inside else batch["obs"])[~real] = 7.0
    out = module.forward_train(batch)
    logp = (
        module.get_train_action_dist_cls()
        .from_logits(out["action_dist_inputs"])
        .logp(batch["actions"])
    )
    (logp[real].sum() + out["embeddings"][real].sum()).backward()
    policy = to_policy(module)
    evaluation = policy.evaluate(
        {
            "obs": (batch["obs"]["obs"] if inside else batch["obs"])[real],
            "raw_action": batch["actions"][real],
            "seq_lens": lengths,
            "state": [batch["state_in"][f"state_{i}"] for i in range(len(policy.memory.initial))],
            "views": {k: v[real] for k, v in batch["obs"].get("views", {}).items()}
            if inside
            else {},
        }
    )
    torch.testing.assert_close(logp[real], evaluation.logp, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(out["embeddings"][real], evaluation.value, atol=1e-5, rtol=1e-5)
    values = module.compute_values(batch)
    torch.testing.assert_close(values[real], evaluation.value, atol=1e-5, rtol=1e-5)
    (evaluation.logp.sum() + evaluation.value.sum()).backward()
    theirs = dict(policy.model.named_parameters())
    for name, p in module.model.named_parameters():
        torch.testing.assert_close(p.grad, theirs[name].grad, atol=1e-4, rtol=1e-4)


class Unit(TorchModelV2):
    """A trunk that padding of zeros would spoil: it divides by the norm of its input, and keeps
    batch statistics.
    """

    def __init__(self, obs_space, action_space, num_outputs, model_config, name):
        super().__init__(obs_space, action_space, num_outputs, model_config, name)
        self.num_outputs = 6
        self.norm = torch.nn.BatchNorm1d(4, momentum=1.0)
        self.layer = torch.nn.Linear(4, 6)

    def forward(self, input_dict, state, seq_lens):
        x = self.norm(input_dict["obs_flat"].float())
        self.features = self.layer(x / x.norm(dim=1, keepdim=True))
        return self.features, state

    def custom_loss(self, policy_loss, loss_inputs):
        self.shown = loss_inputs
        return policy_loss + self.features.square().mean() * 1e-3


@pytest.mark.parametrize("name", ["lstm", "attention"])
def test_padding_reaches_no_trunk_and_no_loss_of_a_model(bench, name):
    config = bench.config(cartpole, {**SEEING[name], "custom_model": Unit}, envs=2, fragment=13)
    runner = bench.runner(config)
    learner = bench.learner(config, runner)
    module = learner.module["default_policy"]
    batch = bench.batch(learner, runner.sample())
    lengths = batch["seq_lens"]
    real = torch.arange(5) < lengths[:, None]
    assert not real.all()
    module.train()
    out = module.forward_train(batch)
    (out["action_dist_inputs"][real].sum() + out["embeddings"][real].sum()).backward()
    assert all(torch.isfinite(p.grad).all() for p in module.model.parameters())
    rows = batch["obs"][real]
    for chain in (module.model.trunk, module.model.value_trunk):
        torch.testing.assert_close(
            chain.trunk.norm.running_mean, rows.mean(dim=0), rtol=1e-4, atol=1e-5
        )
    for p in module.parameters():
        p.grad = None
    loss = module.compute_self_supervised_loss(
        learner=learner, module_id="default_policy", config=config, batch=batch, fwd_out=out
    )
    assert torch.isfinite(loss)
    for chain in (module.model.trunk, module.model.value_trunk):
        shown = chain.trunk.shown
        torch.testing.assert_close(shown["obs"], rows)
        assert (
            len(chain.trunk.features)
            == len(shown["actions"])
            == len(shown["advantages"])
            == int(lengths.sum())
        )


def test_views_begin_anew_with_each_episode(bench):
    config = bench.config(
        lambda: Anything(gym.spaces.Discrete(4)), SEEING["lstm, past"], envs=3, fragment=20
    )
    for episode in together(bench.runner(config).sample()):
        views = episode.get_observations(slice(0, len(episode)))["views"]
        actions = np.eye(4)[np.asarray(episode.get_actions(), int)]
        np.testing.assert_array_equal(views["past_actions"][0], 0)
        np.testing.assert_array_equal(views["past_actions"][1:], actions[:-1])
        np.testing.assert_allclose(
            np.ravel(views["past_rewards"])[1:], episode.get_rewards()[:-1], rtol=1e-6
        )


def test_values_of_the_same_pass_are_not_computed_again(bench):
    config = bench.config(cartpole)
    runner = bench.runner(config)
    learner = bench.learner(config, runner)
    module, batch = learner.module["default_policy"], bench.batch(learner, runner.sample())
    out = module.forward_train(batch)
    assert module.compute_values(batch, embeddings=out["embeddings"]) is out["embeddings"]
    torch.testing.assert_close(module.compute_values(batch), out["embeddings"])


@pytest.mark.grid
@pytest.mark.parametrize("algo", ["ppo", "appo", "impala"])
@pytest.mark.parametrize("model", [{}, LSTM], ids=["plain", "lstm"])
def test_one_update_of_each_learner_moves_every_weight(bench, algo, model):
    config = bench.config(lambda: Masked("tuple"), model, algo, fragment=10).learners(
        num_learners=0
    )
    runner = bench.runner(config)
    learner = bench.learner(config, runner)
    module = learner.module["default_policy"]
    before = {name: p.detach().clone() for name, p in module.model.named_parameters()}
    try:
        for _ in range(3):
            bench.update(learner, runner.sample())
    finally:
        bench.close(learner)
    still = [name for name, p in module.model.named_parameters() if torch.equal(p, before[name])]
    assert still == []
    assert all(bool(p.isfinite().all()) for p in module.parameters())
    assert (module.target is not None) == (algo == "appo")


def test_the_target_network_is_a_copy_that_stays_behind(bench):
    config = bench.config(cartpole, algo="appo").learners(num_learners=0)
    runner = bench.runner(config)
    learner = bench.learner(config, runner)
    module = learner.module["default_policy"]
    try:
        batch = bench.batch(learner, runner.sample())
        now = module.forward_train(batch)["action_dist_inputs"]
        then = module.forward_target(batch)["target_network_action_dist_inputs"]
        torch.testing.assert_close(then, now)
        with torch.no_grad():
            for p in module.model.parameters():
                p.add_(0.1)
        torch.testing.assert_close(
            module.forward_target(batch)["target_network_action_dist_inputs"], then
        )
        assert not then.requires_grad
        assert not any(p.requires_grad for p in module.target.parameters())
        assert not torch.allclose(module.forward_train(batch)["action_dist_inputs"], then)
    finally:
        bench.close(learner)


# --- autoregressive actions -----------------------------------------------------------------------


@pytest.mark.parametrize("model", [{}, LSTM], ids=["plain", "lstm"])
def test_autoregressive_actions_are_scored_under_their_own_prefix(bench, model):
    config = bench.config(
        lambda: Anything(PAIRS), {"use_autoregressive": True, **model}, envs=2, fragment=13
    )
    runner = bench.runner(config)
    learner = bench.learner(config, runner)
    module = learner.module["default_policy"]
    with torch.no_grad():
        for p in module.parameters():
            p.add_(torch.randn_like(p) * 0.3)
    runner.module.set_state(module.get_state(inference_only=True))
    batch = bench.batch(learner, runner.sample())
    real = batch["loss_mask"]
    cls = module.get_train_action_dist_cls()
    stored = cls.from_logits(batch["action_dist_inputs"])
    torch.testing.assert_close(
        stored.logp(batch["actions"])[real], batch["action_logp"][real], atol=1e-5, rtol=1e-5
    )
    # Same weights: the learner finds the parameters that were stored, so the divergence begins at
    # 0.
    out = module.forward_train(batch)
    now = cls.from_logits(out["action_dist_inputs"])
    assert float(stored.kl(now)[real].detach().abs().max()) < 1e-5
    # Every pair's probability, from parameters given that pair, sums to 1 (the truth for a prefix
    # of its own).
    policy, obs = (
        to_policy(runner.module),
        (batch["obs"].flatten(0, 1) if model else batch["obs"])[:1],
    )
    if not model:
        pairs = torch.tensor([[a, b] for a in range(3) for b in range(3)])
        batch_of_pairs = {"obs": obs.expand(9, -1), "actions": pairs}
        found = cls.from_logits(module.forward_train(batch_of_pairs)["action_dist_inputs"]).logp(
            pairs
        )
        assert abs(float(found.detach().exp().sum()) - 1) < 1e-5
        joint = found.detach().exp().reshape(3, 3)
        independent = joint.sum(1, keepdim=True) * joint.sum(0, keepdim=True)
        assert float((joint - independent).abs().max()) > 1e-3
        evaluation = policy.evaluate({"obs": obs.expand(9, -1), "raw_action": pairs})
        torch.testing.assert_close(found, evaluation.logp, atol=1e-5, rtol=1e-5)
    bench.update(learner, runner.sample())
    assert all(bool(p.isfinite().all()) for p in module.parameters())


# --- losses and metrics of a model's own ----------------------------------------------------------


class Taxed(FullyConnectedNetwork):
    """Adds a term to the loss, and reports it."""

    def custom_loss(self, policy_loss, loss_inputs):
        self.inputs = {
            name: tuple(value.shape)
            for name, value in loss_inputs.items()
            if hasattr(value, "shape")
        }
        self.term = 1000 * sum(p.square().sum() for p in self.parameters())
        return [loss + self.term for loss in policy_loss]

    def metrics(self):
        return {"tax": float(self.term.detach())}


def test_a_models_own_loss_and_metrics_reach_the_learner(bench):
    config = bench.config(cartpole, {"custom_model": Taxed}, lr=0.05)
    runner = bench.runner(config)
    learner = bench.learner(config, runner)
    model = learner.module["default_policy"].model
    before = sum(float(p.detach().square().sum()) for p in model.parameters())
    results = bench.update(learner, runner.sample())
    after = sum(float(p.detach().square().sum()) for p in model.parameters())
    assert after < 0.9 * before
    assert results["default_policy"]["model"]["tax"].peek() > 0
    assert model.inputs["obs"] == (model.inputs["actions"][0], 4)


# --- building -------------------------------------------------------------------------------------


def test_a_spec_builds_a_module_by_itself():
    env = gym.make("CartPole-v1")
    made = spec(env.observation_space, env.action_space, {"fcnet_hiddens": [8]}).build()
    assert isinstance(made, CatalogRLModule)
    assert made.model.hidden.outputs == 8
    assert made.policy.config["vf_share_layers"] is True  # not what PPO would add
    out = made.forward_inference({"obs": torch.zeros(3, 4)})
    assert out["actions"].shape == (3,)


def test_a_hand_written_config_is_read_beside_what_the_algorithm_adds(bench):
    from ray.rllib.algorithms.ppo import PPOConfig
    from ray.rllib.core.rl_module.rl_module import RLModuleSpec

    import rlcatalog_rllib

    model = {"fcnet_hiddens": [8]}
    config = (
        PPOConfig()
        .environment("CartPole-v1")
        .env_runners(
            num_env_runners=0,
            env_to_module_connector=rlcatalog_rllib.env_to_module(model),
            module_to_env_connector=rlcatalog_rllib.module_to_env,
            add_default_connectors_to_module_to_env_pipeline=False,
        )
        .rl_module(rl_module_spec=RLModuleSpec(module_class=CatalogRLModule, model_config=model))
    )
    runner = bench.runner(config)
    assert len(runner.sample(num_timesteps=5)) == 1
    assert runner.module.policy.config["vf_share_layers"] is False  # Ray's PPO says so


class NoValue(TorchModelV2):
    """A model without a value branch."""

    def __init__(self, obs_space, action_space, num_outputs, model_config, name):
        super().__init__(obs_space, action_space, num_outputs, model_config, name)
        self.layer = torch.nn.Linear(4, num_outputs)

    def forward(self, input_dict, state, seq_lens):
        return self.layer(input_dict["obs_flat"]), state


def test_a_model_without_values_is_refused_where_they_are_trained(bench):
    from rlcatalog.errors import ModelContractError

    config = bench.config(cartpole, {"custom_model": NoValue})
    with pytest.raises(ModelContractError, match=r"NoValue has no value_function\(\)"):
        bench.runner(config)


def test_workers_repeat_the_choice_of_the_driver(bench):
    config = bench.config(cartpole)
    recipe = bench.runner(config).module.recipe
    assert recipe.pins.parts["trunk"] == "rlcatalog-fcnet/fcnet"
    assert recipe.pins.action_dists == {"action": "rlcatalog-categorical/categorical"}
    assert (
        recipe.pins.versions["rlcatalog-fcnet"]
        == rlcatalog.default_catalog().registry.get("model", "fcnet").version
    )


@pytest.mark.parametrize("algo", ["ppo", "appo"])
def test_a_module_can_be_pickled(bench, algo):
    """Ray sends it between processes where the driver has no environment runner of its own."""
    import pickle

    config = bench.config(lambda: Masked("discrete"), LSTM, algo).learners(num_learners=0)
    runner = bench.runner(config)
    learner = bench.learner(config, runner)
    module = learner.module["default_policy"]
    copy = pickle.loads(pickle.dumps(module))
    batch = bench.batch(learner, runner.sample())
    torch.testing.assert_close(copy.forward_train(batch), module.forward_train(batch))
    assert (copy.target is None) == (module.target is None)
    assert type(copy.policy.model) is type(module.policy.model)
    bench.close(learner)
