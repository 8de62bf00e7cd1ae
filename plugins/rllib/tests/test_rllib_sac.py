"""SAC's module: actor and critics from the catalog under Ray's learner."""

import itertools

import numpy as np
import pytest
import torch
from action_kinds import Anything
from gymnasium.spaces import Box, Discrete, Tuple
from masked_env import Masked

pytest.importorskip("ray.rllib", reason="Ray RLlib is not installed")

from ray.rllib.algorithms.sac import SACConfig
from ray.rllib.algorithms.sac.torch.sac_torch_learner import SACTorchLearner
from ray.rllib.env.single_agent_env_runner import SingleAgentEnvRunner
from ray.tune.registry import register_env

import rlcatalog_rllib
from rlcatalog.errors import NotServedError

#: Two numbers, in [-2, 2] and in [0, 6].
TWO_NUMBERS = Box(np.array([-2.0, 0.0], np.float32), np.array([2.0, 6.0], np.float32))
MODEL = {"fcnet_hiddens": [16], "fcnet_activation": "relu"}

#: For names of environments.
_NUMBERS = itertools.count()


def configure_sac(make_env, model=None, **training):
    """Return a config of SAC for an environment that a function makes."""
    name = f"sac-env-{next(_NUMBERS)}"
    register_env(name, lambda _: make_env())
    config = SACConfig().debugging(seed=0, log_level="ERROR")
    config.reporting(min_time_s_per_iteration=0)
    config.env_runners(num_env_runners=0, num_envs_per_env_runner=2, rollout_fragment_length=6)
    config.training(initial_alpha=0.2, **training)
    return rlcatalog_rllib.configure(config, name, model={**MODEL, **(model or {})})


def make_module(action_space, **training):
    """Return the module of a learner of SAC."""
    return make_learner(action_space, **training).module["default_policy"]


def make_learner(action_space, model=None, **training):
    """Return a learner of SAC in this process, for observations of two numbers."""
    config = configure_sac(lambda: Anything(action_space), model, **training)
    runner = SingleAgentEnvRunner(config=config)
    return config.build_learner(env=runner.env, spaces=runner.get_spaces())


def make_batch(module):
    """Return 32 rows as Ray's replay buffer passes them to the learner."""
    rng = np.random.default_rng(0)
    obs_shape = (32, *module.policy.preprocessor.shape)
    if module.policy.action_codec.scalar:
        actions = torch.as_tensor(rng.integers(0, 3, 32))
    else:
        actions = torch.as_tensor(rng.uniform([-2, 0], [2, 6], (32, 2)), dtype=torch.float32)
    return {
        "obs": torch.as_tensor(rng.uniform(-1, 1, obs_shape), dtype=torch.float32),
        "new_obs": torch.as_tensor(rng.uniform(-1, 1, obs_shape), dtype=torch.float32),
        "actions": actions,
        "rewards": torch.as_tensor(rng.normal(size=32), dtype=torch.float32),
        "terminateds": torch.zeros(32, dtype=torch.bool),
        "weights": torch.ones(32),
        "n_step": torch.ones(32),
    }


# --- the outputs that SAC's losses use ------------------------------------------------------------


class SACOutputs:
    """Outputs of a module's `forward_train`, and the actions that it sampled.

    Attributes:
        outputs: The outputs.
        dist_inputs: The actor's outputs for the observations.
        actions: The actions sampled for the observations.
        next_actions: The actions sampled for the next observations.
    """

    def __init__(self, module, batch):
        torch.manual_seed(3)
        self.outputs = module.forward_train(batch)
        # With the same seed, the same samples.
        torch.manual_seed(3)
        inputs = {"obs": batch["obs"], "is_training": True}
        self.dist_inputs, _ = module.model(inputs, [], None)
        self.actions = module.policy.dist_class(self.dist_inputs, module.model).rsample()
        inputs = {"obs": batch["new_obs"], "is_training": True}
        next_dist_inputs, _ = module.model(inputs, [], None)
        self.next_actions = module.policy.dist_class(next_dist_inputs, module.model).sample()


each_number_of_critics = pytest.mark.parametrize(
    ("twin_q", "num_critics"), [(True, 2), (False, 1)], ids=["two critics", "one critic"]
)


def test_densities_are_those_of_a_squashed_gaussian():
    # Two numbers, with the bounds [-2, 2] and [0, 6].
    action_space = Box(np.array([-2.0, 0.0], np.float32), np.array([2.0, 6.0], np.float32))
    module = make_module(action_space)

    sac = SACOutputs(module, make_batch(module))

    middle_of_bounds = torch.tensor([0.0, 3.0])
    half_widths = torch.tensor([2.0, 3.0])
    unit_actions = (sac.actions - middle_of_bounds) / half_widths
    # The density of y = tanh(x) is that of x, divided by 1 - y**2.
    mean, log_std = sac.dist_inputs.chunk(2, dim=1)
    normal = torch.distributions.Normal(mean, log_std.exp())
    logp = normal.log_prob(torch.atanh(unit_actions)) - torch.log(1 - unit_actions**2)
    torch.testing.assert_close(sac.outputs["logp_resampled"], logp.sum(1), rtol=1e-3, atol=1e-3)


@each_number_of_critics
def test_value_of_sampled_actions_is_the_lowest_of_the_critics(twin_q, num_critics):
    module = make_module(TWO_NUMBERS, twin_q=twin_q)
    batch = make_batch(module)

    sac = SACOutputs(module, batch)

    values = torch.stack([critic(batch["obs"], sac.actions) for critic in module.critics])
    assert len(values) == num_critics
    torch.testing.assert_close(sac.outputs["q_curr"], values.amin(dim=0))


def test_value_of_stored_actions_is_that_of_the_first_critic():
    module = make_module(TWO_NUMBERS)
    batch = make_batch(module)

    outputs = module.forward_train(batch)

    expected = module.critics[0](batch["obs"], batch["actions"])
    torch.testing.assert_close(outputs["qf_preds"], expected)


@each_number_of_critics
def test_target_value_is_the_lowest_of_the_target_critics(twin_q, num_critics):
    module = make_module(TWO_NUMBERS, twin_q=twin_q)
    batch = make_batch(module)

    sac = SACOutputs(module, batch)

    values = torch.stack([critic(batch["new_obs"], sac.next_actions) for critic in module.target])
    assert len(values) == num_critics
    torch.testing.assert_close(sac.outputs["q_target_next"], values.amin(dim=0))
    # What the target consists of is not trained.
    assert not sac.outputs["q_target_next"].requires_grad
    assert not sac.outputs["logp_next_resampled"].requires_grad


def test_critic_reads_actions_scaled_to_one():
    # Two numbers, with the bounds [-2, 2] and [0, 6].
    action_space = Box(np.array([-2.0, 0.0], np.float32), np.array([2.0, 6.0], np.float32))
    critic = make_module(action_space).critics[0]
    inputs_of_layer = []
    critic.joint.register_forward_pre_hook(lambda _, inputs: inputs_of_layer.append(inputs[0]))

    obs = torch.zeros(3, 2)
    lowest_middle_and_highest = torch.tensor([[-2.0, 0.0], [0.0, 3.0], [2.0, 6.0]])
    critic(obs, lowest_middle_and_highest)

    scaled_actions = inputs_of_layer[0][:, -2:]  # the features of the observations come first
    expected = torch.tensor([[-1.0, -1.0], [0.0, 0.0], [1.0, 1.0]])
    torch.testing.assert_close(scaled_actions, expected)


def test_forbidden_actions_have_probability_zero():
    config = configure_sac(lambda: Masked("discrete"))
    runner = SingleAgentEnvRunner(config=config)
    learner = config.build_learner(env=runner.env, spaces=runner.get_spaces())
    module = learner.module["default_policy"]
    # Four observations with masks.
    episode, *_ = runner.sample()
    observations = episode.get_observations(slice(0, 4))
    obs = {name: torch.as_tensor(part) for name, part in observations.items()}
    actions = torch.zeros(4, dtype=torch.int64)

    outputs = module.forward_train({"obs": obs, "new_obs": obs, "actions": actions})

    probabilities = outputs["action_probs"]
    is_forbidden = obs["mask"] == 0
    assert is_forbidden.any()
    assert (probabilities[is_forbidden] == 0).all()
    torch.testing.assert_close(probabilities.sum(1), torch.ones(4))
    # SAC multiplies both, and 0 * log(0) would be NaN.
    assert torch.isfinite(probabilities * outputs["action_log_probs"]).all()


# --- training -------------------------------------------------------------------------------------


@pytest.mark.parametrize("action_space", [TWO_NUMBERS, Discrete(3)], ids=["numbers", "choices"])
def test_update_changes_actor_and_critics_only(action_space):
    learner = make_learner(action_space)
    module = learner.module["default_policy"]
    weights_before = {name: weight.clone() for name, weight in module.state_dict().items()}
    batch = make_batch(module)

    loss = SACTorchLearner.compute_loss_for_module(
        learner,
        module_id="default_policy",
        config=learner.config,
        batch=batch,
        fwd_out=module.forward_train(batch),
    )
    gradients = learner.compute_gradients({"default_policy": loss})
    learner.apply_gradients(gradients)

    assert all(torch.isfinite(gradient).all() for gradient in gradients.values())
    for name, weight in module.state_dict().items():
        is_of_target = name.startswith("target.")  # SAC copies weights to the target later
        is_of_value = ".value." in name  # critics take the place of the actor's value function
        is_unchanged = weight.equal(weights_before[name])
        assert is_unchanged == (is_of_target or is_of_value), name


def test_loss_of_the_actor_gives_critics_no_gradients():
    module = make_module(TWO_NUMBERS)
    outputs = module.forward_train(make_batch(module))

    # The actor's loss in SAC, with an entropy coefficient of 1.
    loss = (outputs["logp_resampled"] - outputs["q_curr"]).mean()
    loss.backward()

    for weight in module.critics.parameters():
        assert weight.grad is None
        assert weight.requires_grad
    gradients = [weight.grad for weight in module.model.parameters() if weight.grad is not None]
    assert any(gradient.any() for gradient in gradients)


@pytest.fixture
def trained_sac(local_ray):
    """SAC after four iterations."""
    config = configure_sac(
        lambda: Anything(TWO_NUMBERS),
        train_batch_size_per_learner=16,
        num_steps_sampled_before_learning_starts=16,
        replay_buffer_config={"type": "PrioritizedEpisodeReplayBuffer", "capacity": 1000},
    )
    config.env_runners(rollout_fragment_length=8)
    algorithm = config.build_algo()
    for _ in range(3):
        algorithm.train()
    yield algorithm, algorithm.train()
    algorithm.stop()


@pytest.mark.slow  # a learner's update is tested above
def test_algorithm_reports_a_loss(trained_sac):
    _, result = trained_sac

    assert result["learners"]["default_policy"]["qf_loss"] > 0


@pytest.mark.slow
def test_exported_policy_acts_like_the_module(trained_sac):
    algorithm, _ = trained_sac
    policy = rlcatalog_rllib.to_policy(algorithm)
    obs = np.stack([policy.observation_space.sample() for _ in range(3)])

    step = policy.act(obs, explore=False)

    encoded = torch.as_tensor(policy.preprocess(obs))
    expected = algorithm.get_module().forward_inference({"obs": encoded})["actions"]
    np.testing.assert_allclose(step.action, expected.numpy(), rtol=1e-5, atol=1e-6)


@pytest.mark.slow
def test_restored_algorithm_acts_as_before(trained_sac, tmp_path):
    algorithm, _ = trained_sac
    path = algorithm.save_to_path(str(tmp_path / "checkpoint"))

    restored = type(algorithm).from_checkpoint(path)
    restored_policy = rlcatalog_rllib.to_policy(restored)
    restored.stop()

    policy = rlcatalog_rllib.to_policy(algorithm)
    obs = np.stack([policy.observation_space.sample() for _ in range(3)])
    expected = policy.act(obs, explore=False).action
    np.testing.assert_array_equal(restored_policy.act(obs, explore=False).action, expected)


# --- rejected spaces and parts --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("action_space", "model", "message"),
    [
        pytest.param(
            TWO_NUMBERS,
            {"use_lstm": True},
            "SAC trains .*, but .* has a memory",
            id="memory",
        ),
        pytest.param(
            TWO_NUMBERS,
            {"custom_action_dist": "diag_gaussian"},
            "custom_action_dist='squashed_gaussian'",
            id="unbounded distribution",
        ),
        pytest.param(
            Box(-np.inf, np.inf, (2,), np.float32), {}, "bounded Box of floats", id="no bounds"
        ),
        pytest.param(
            Tuple([Discrete(2), Discrete(3)]),
            {},
            "SAC needs a Discrete, or a bounded Box",
            id="Tuple",
        ),
    ],
)
def test_unsupported_spaces_and_parts_are_rejected(action_space, model, message):
    with pytest.raises(NotServedError, match=message):
        make_learner(action_space, model)
