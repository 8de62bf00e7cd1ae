"""SAC: actor and critics of the catalog under Ray's learner."""

import itertools

import numpy as np
import pytest
import torch
from action_kinds import Anything
from gymnasium.spaces import Box, Discrete, Tuple
from masked_env import Masked

pytest.importorskip("ray.rllib", reason="Ray RLlib is not installed")

from ray.rllib.algorithms.cql import CQLConfig
from ray.rllib.algorithms.sac import SACConfig
from ray.rllib.algorithms.sac.torch.sac_torch_learner import SACTorchLearner

import rlcatalog_rllib
from rlcatalog.errors import NotServedError

NUMBERS = Box(np.array([-2.0, 0.0], np.float32), np.array([2.0, 6.0], np.float32))
MODEL = {"fcnet_hiddens": [16], "fcnet_activation": "relu"}


def batch_of(module, rows=32):
    """Return a batch as Ray's replay buffer hands it to the learner."""
    generator = np.random.default_rng(0)
    width = module.policy.preprocessor.shape
    obs = {
        name: torch.as_tensor(generator.uniform(-1, 1, (rows, *width)), dtype=torch.float32)
        for name in ("obs", "new_obs")
    }
    scalar = module.policy.action_codec.scalar
    actions = (
        generator.integers(0, 3, rows) if scalar else generator.uniform([-2, 0], [2, 6], (rows, 2))
    )
    return {
        **obs,
        "actions": torch.as_tensor(actions, dtype=torch.int64 if scalar else torch.float32),
        "rewards": torch.as_tensor(generator.normal(size=rows), dtype=torch.float32),
        "terminateds": torch.zeros(rows, dtype=torch.bool),
        "weights": torch.ones(rows),
        "n_step": torch.ones(rows),
    }


_NAMES = (f"soft-{number}" for number in itertools.count())


def learner_of(env, model=None, **training):
    """Return a learner of this process, and the environment runner it goes with."""
    from ray.rllib.env.single_agent_env_runner import SingleAgentEnvRunner
    from ray.tune.registry import register_env

    name = next(_NAMES)
    register_env(name, lambda _: env())
    config = SACConfig().debugging(seed=0, log_level="ERROR")
    config.env_runners(num_env_runners=0, num_envs_per_env_runner=2, rollout_fragment_length=6)
    config.training(initial_alpha=0.2, **training)
    rlcatalog_rllib.configure(config, name, model={**MODEL, **(model or {})})
    runner = SingleAgentEnvRunner(config=config)
    return config.build_learner(env=runner.env, spaces=runner.get_spaces()), runner


@pytest.mark.parametrize("twin_q", [True, False])
def test_values_and_densities_are_those_of_the_equations(twin_q):
    learner, _ = learner_of(lambda: Anything(NUMBERS), twin_q=twin_q)
    module = learner.module["default_policy"]
    batch = batch_of(module)
    torch.manual_seed(3)
    found = module.forward_train(batch)
    torch.manual_seed(3)
    outputs, _ = module.model({"obs": batch["obs"], "is_training": True}, [], None)
    dist = module.policy.dist_class(outputs, module.model)
    drawn = dist.rsample()
    unit = (drawn - torch.tensor([0.0, 3.0])) / torch.tensor([2.0, 3.0])
    mean, log_std = outputs.chunk(2, 1)
    base = torch.distributions.Normal(mean, log_std.exp())
    expected = (base.log_prob(torch.atanh(unit)) - torch.log(1 - unit**2)).sum(1)
    torch.testing.assert_close(found["logp_resampled"], expected, rtol=1e-3, atol=1e-3)
    critics = list(module.critics)
    assert len(critics) == 1 + twin_q
    values = torch.stack([critic(batch["obs"], drawn) for critic in critics]).min(0).values
    torch.testing.assert_close(found["q_curr"], values)
    torch.testing.assert_close(found["qf_preds"], critics[0](batch["obs"], batch["actions"]))
    outputs, _ = module.model({"obs": batch["new_obs"], "is_training": True}, [], None)
    following = module.policy.dist_class(outputs, module.model).sample()
    targets = (
        torch.stack([critic(batch["new_obs"], following) for critic in module.target]).min(0).values
    )
    torch.testing.assert_close(found["q_target_next"], targets)
    assert not found["q_target_next"].requires_grad
    assert not found["logp_next_resampled"].requires_grad


def test_a_critic_reads_the_action_between_minus_one_and_one():
    learner, _ = learner_of(lambda: Anything(NUMBERS))
    critic = learner.module["default_policy"].critics[0]
    seen = []
    critic.joint.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0][:, -2:]))
    width = learner.module["default_policy"].policy.preprocessor.shape
    critic(torch.zeros(3, *width), torch.tensor([[-2.0, 0.0], [0.0, 3.0], [2.0, 6.0]]))
    torch.testing.assert_close(seen[0], torch.tensor([[-1.0, -1.0], [0.0, 0.0], [1.0, 1.0]]))


@pytest.mark.parametrize(
    "env", [lambda: Anything(NUMBERS), lambda: Anything(Discrete(3))], ids=["numbers", "choices"]
)
def test_an_update_moves_actor_and_critics_and_nothing_else(env):
    learner, _ = learner_of(env)
    module = learner.module["default_policy"]
    before = {name: value.clone() for name, value in module.state_dict().items()}
    batch = batch_of(module)
    out = module.forward_train(batch)
    loss = SACTorchLearner.compute_loss_for_module(
        learner, module_id="default_policy", config=learner.config, batch=batch, fwd_out=out
    )
    gradients = learner.compute_gradients({"default_policy": loss})
    assert all(torch.isfinite(gradient).all() for gradient in gradients.values())
    learner.apply_gradients(gradients)
    moved = {name for name, value in module.state_dict().items() if not value.equal(before[name])}
    still = set(before) - moved
    assert still == {name for name in before if name.startswith("target.") or ".value." in name}


def test_the_actors_gradient_goes_through_the_critics_and_not_into_them():
    learner, _ = learner_of(lambda: Anything(NUMBERS))
    module = learner.module["default_policy"]
    out = module.forward_train(batch_of(module))
    (out["logp_resampled"] - out["q_curr"]).mean().backward()
    assert all(weight.grad is None for weight in module.critics.parameters())
    assert all(weight.requires_grad for weight in module.critics.parameters())
    assert any(
        weight.grad is not None and weight.grad.any() for weight in module.model.parameters()
    )


def test_what_a_mask_forbids_has_no_probability_and_no_nan():
    learner, runner = learner_of(lambda: Masked("discrete"))
    module = learner.module["default_policy"]
    episodes = runner.sample()
    obs = episodes[0].get_observations(slice(0, 4))
    rows = {name: torch.as_tensor(part) for name, part in obs.items()}
    found = module.forward_train(
        {"obs": rows, "new_obs": rows, "actions": torch.zeros(4, dtype=torch.int64)}
    )
    forbidden = rows["mask"] == 0
    assert forbidden.any()
    assert (found["action_probs"][forbidden] == 0).all()
    assert torch.isfinite(found["action_probs"] * found["action_log_probs"]).all()
    torch.testing.assert_close(found["action_probs"].sum(1), torch.ones(4))


@pytest.mark.attack  # its parts are seen above
def test_an_algorithm_trains_is_saved_and_handed_on(local_ray, tmp_path):
    from ray.tune.registry import register_env

    register_env("soft-numbers", lambda _: Anything(NUMBERS))
    config = SACConfig().debugging(seed=0, log_level="ERROR").reporting(min_time_s_per_iteration=0)
    config.env_runners(num_env_runners=0, num_envs_per_env_runner=2, rollout_fragment_length=8)
    config.training(
        train_batch_size_per_learner=16,
        num_steps_sampled_before_learning_starts=16,
        replay_buffer_config={"type": "PrioritizedEpisodeReplayBuffer", "capacity": 1000},
    )
    rlcatalog_rllib.configure(config, "soft-numbers", model=MODEL)
    algo = config.build_algo()
    try:
        for _ in range(4):
            result = algo.train()
        assert result["learners"]["default_policy"]["qf_loss"] > 0
        policy = rlcatalog_rllib.to_policy(algo)
        obs = np.stack([policy.observation_space.sample() for _ in range(3)])
        module = algo.get_module()
        drawn = module.forward_inference({"obs": torch.as_tensor(policy.preprocess(obs))})[
            "actions"
        ].numpy()
        np.testing.assert_allclose(
            policy.act(obs, explore=False).action, drawn, rtol=1e-5, atol=1e-6
        )
        path = algo.save_to_path(str(tmp_path / "checkpoint"))
    finally:
        algo.stop()
    again = type(algo).from_checkpoint(path)
    restored = rlcatalog_rllib.to_policy(again)
    np.testing.assert_array_equal(
        restored.act(obs, explore=False).action, policy.act(obs, explore=False).action
    )
    again.stop()


REFUSED = [
    (NUMBERS, {"use_lstm": True}, "SAC trains on single steps, but .* has a memory"),
    (NUMBERS, {"custom_action_dist": "diag_gaussian"}, "custom_action_dist='squashed_gaussian'"),
    (Box(-np.inf, np.inf, (2,), np.float32), {}, "bounded Box of floats"),
    (Tuple([Discrete(2), Discrete(3)]), {}, "SAC needs a Discrete, or a bounded Box of floats"),
]


@pytest.mark.parametrize(
    ("space", "model", "message"), REFUSED, ids=["memory", "unbounded draws", "no bounds", "tuple"]
)
def test_what_is_not_served_is_named(space, model, message):
    with pytest.raises(NotServedError, match=message):
        learner_of(lambda: Anything(space), model)


def test_algorithms_made_of_sac_are_no_sac():
    with pytest.raises(NotServedError, match=r"CQLConfig is not supported\. Supported: PPO"):
        rlcatalog_rllib.configure(CQLConfig(), "Pendulum-v1")
