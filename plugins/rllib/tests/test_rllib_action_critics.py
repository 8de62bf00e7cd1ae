"""SAC with critics from the key `critic`, and with actions made of several Boxes."""

import pickle

import gymnasium as gym
import numpy as np
import pytest
import torch
from action_kinds import Anything
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, Tuple
from hidden_level_env import HiddenLevel
from masked_env import Masked
from torch import nn
from torch_weights import copy_weights

pytest.importorskip("ray.rllib", reason="Ray RLlib is not installed")

from ray.rllib.algorithms.sac import SACConfig
from ray.rllib.utils.replay_buffers.episode_replay_buffer import EpisodeReplayBuffer

import rlcatalog
import rlcatalog_rllib
from rlcatalog import Catalog
from rlcatalog.errors import ConfigError, NotServedError
from rlcatalog_rllib.recipe import Recipe, build_critic_of_actions, build_policy
from rlcatalog_torch import ActionCritic

pytestmark = pytest.mark.usefixtures("one_thread")

#: Two numbers, in [-2, 2] and in [0, 6].
TWO_NUMBERS = Box(np.array([-2.0, 0.0], np.float32), np.array([2.0, 6.0], np.float32))
ARM = Dict({"elbow": Box(-1.5, 1.5, (1,)), "shoulder": TWO_NUMBERS})
MODEL = {"fcnet_hiddens": [8], "critic": {"fcnet_hiddens": [16], "fcnet_activation": "relu"}}


class Arm(gym.Env):
    """Random observations, in episodes of ten steps; it checks each action.

    Args:
        action_space: The action space.
        observation_space: The observation space.
    """

    def __init__(self, action_space=ARM, observation_space=None):
        self.action_space = action_space
        self.observation_space = observation_space or Box(-1, 1, (3,))

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        return self.observation_space.sample(), {}

    def step(self, action):
        assert self.action_space.contains(action), action
        self.steps += 1
        return self.observation_space.sample(), 0.5, False, self.steps == 10, {}


@pytest.fixture
def make_sac(rllib):
    """Return a function that returns a runner, a learner and the learner's module."""

    def make(make_env, model=None, **training):
        config = rllib.configure(make_env, MODEL if model is None else model, "sac", **training)
        return rllib.make_training(config)

    return make


def sample_batch(runner, rows=32):
    """Return rows for SAC's learner from a runner's episodes."""
    buffer = EpisodeReplayBuffer(capacity=400)
    buffer.add(runner.sample(num_timesteps=40, explore=True))
    return buffer.sample(num_items=rows, n_step=1, gamma=0.9, sample_episodes=True)


def plain_critic(critic):
    """Return the layers of a critic with one hidden layer as a plain PyTorch network."""
    weights = {name: torch.from_numpy(array) for name, array in critic.get_weights().items()}
    rows, columns = weights["trunk.hidden.layers.0.weight"].shape
    hidden = nn.Linear(columns, rows)
    with torch.no_grad():
        hidden.weight.copy_(weights["trunk.hidden.layers.0.weight"])
        hidden.bias.copy_(weights["trunk.hidden.layers.0.bias"])
    return nn.Sequential(hidden, nn.ReLU(), critic.output)


# --- the critics ----------------------------------------------------------------------------------


def test_critics_see_the_observation_and_then_the_scaled_action(make_sac):
    module = make_sac(lambda: Arm(TWO_NUMBERS)).module
    obs = torch.rand(3, 3)
    lowest_middle_and_highest = torch.tensor([[-2.0, 0.0], [0.0, 3.0], [2.0, 6.0]])

    scaled_actions = torch.tensor([[-1.0, -1.0], [0.0, 0.0], [1.0, 1.0]])
    rows = torch.cat([obs, scaled_actions], dim=1)
    for critic in module.critics:
        values = critic(obs, lowest_middle_and_highest)
        torch.testing.assert_close(values, plain_critic(critic)(rows))


def test_critics_of_choices_return_the_values_of_all(make_sac):
    module = make_sac(lambda: Arm(Discrete(4))).module
    obs = torch.rand(3, 3)

    for critic in module.critics:
        torch.testing.assert_close(critic(obs), plain_critic(critic)(obs))
    assert module.critics[0](obs).shape == (3, 4)


@pytest.mark.parametrize("action_space", [TWO_NUMBERS, Discrete(3)], ids=["numbers", "choices"])
def test_critics_start_with_weights_of_their_own(make_sac, action_space):
    module = make_sac(lambda: Arm(action_space)).module

    first, second = module.critics
    for weight, other in zip(first.parameters(), second.parameters(), strict=True):
        assert not torch.equal(weight, other)


def test_target_networks_follow_the_critics(rllib, make_sac):
    runner, learner, module = make_sac(lambda: Arm(TWO_NUMBERS), tau=0.25)
    before = copy_weights(module.target)
    critics = copy_weights(module.critics)
    for name, weight in before.items():
        assert torch.equal(weight, critics[name])  # a new target is a copy

    rllib.update(learner, sample_batch(runner))

    critics = copy_weights(module.critics)
    for name, weight in module.target.named_parameters():
        assert not weight.requires_grad
        torch.testing.assert_close(weight, 0.75 * before[name] + 0.25 * critics[name])


@pytest.mark.parametrize("n_critics", [1, 2])
def test_twin_q_says_how_many_critics_there_are(make_sac, n_critics):
    module = make_sac(lambda: Arm(TWO_NUMBERS), twin_q=n_critics == 2).module

    assert len(module.critics) == n_critics
    assert all(isinstance(critic, ActionCritic) for critic in module.critics)


def test_critic_of_an_image_beside_a_vector_sees_the_action(make_sac):
    space = Dict({"camera": Box(0, 255, (12, 12, 3), np.uint8), "speed": Box(-1, 1, (2,))})
    convs = {"conv_filters": [[4, 3, 2]], "conv_flatten": True}
    module = make_sac(lambda: Arm(ARM, space), {**convs, "critic": convs}).module
    obs = torch.rand(4, *module.policy.preprocessor.shape)
    actions = torch.rand(4, 3).requires_grad_()

    module.critics[0](obs, actions).sum().backward()

    assert actions.grad.all()


# --- training -------------------------------------------------------------------------------------

SPACES = {
    "Box": TWO_NUMBERS,
    "Box of rank 2, float64": Box(-0.1, 0.1, (2, 2), np.float64),
    "Dict": ARM,
    "Tuple": Tuple([ARM["elbow"], Dict({"wrist": TWO_NUMBERS})]),
    "Discrete": Discrete(3, start=1),
}


@pytest.mark.grid
@pytest.mark.parametrize("action_space", SPACES.values(), ids=SPACES)
@pytest.mark.parametrize("model", [MODEL, {"fcnet_hiddens": [8]}], ids=["critic", "default"])
def test_update_changes_actor_and_critics(rllib, make_sac, action_space, model):
    runner, learner, module = make_sac(lambda: Arm(action_space), model)
    before = copy_weights(module)

    rllib.update(learner, sample_batch(runner))

    for name, weight in module.named_parameters():
        assert weight.isfinite().all(), name
        if ".value" in name:  # the critics take the place of the actor's value
            torch.testing.assert_close(weight, before[name])
        else:
            assert not torch.equal(weight, before[name]), name


def test_update_trains_critics_of_masked_choices(rllib, make_sac):
    runner, learner, module = make_sac(lambda: Masked("discrete"))  # it refuses forbidden actions
    before = copy_weights(module.critics)

    rllib.update(learner, sample_batch(runner))

    for name, weight in module.critics.named_parameters():
        assert weight.isfinite().all(), name
        assert not torch.equal(weight, before[name]), name


def test_densities_of_a_dict_add_up_over_its_boxes(make_sac):
    module = make_sac(lambda: Arm()).module
    obs = torch.rand(6, 3)
    batch = {"obs": obs, "new_obs": obs, "actions": torch.zeros(6, 3)}

    torch.manual_seed(3)
    outputs = module.forward_train(batch)
    torch.manual_seed(3)  # the same samples again
    dist_inputs, _ = module.model({"obs": obs}, [], None)
    sample = module.policy.dist_class(dist_inputs, module.model).rsample()

    middle = {"elbow": torch.zeros(1), "shoulder": torch.tensor([0.0, 3.0])}
    half_width = {"elbow": torch.full((1,), 1.5), "shoulder": torch.tensor([2.0, 3.0])}
    logp = 0.0
    # Mean and log standard deviation of the elbow, then of the shoulder.
    for name, inputs in zip(sample, dist_inputs.split([2, 4], dim=1), strict=True):
        unit_actions = (sample[name] - middle[name]) / half_width[name]
        mean, log_std = inputs.chunk(2, dim=1)
        normal = torch.distributions.Normal(mean, log_std.exp())
        # The density of y = tanh(x) is that of x, divided by 1 - y**2.
        density = normal.log_prob(torch.atanh(unit_actions)) - torch.log(1 - unit_actions**2)
        logp = logp + density.sum(dim=1)
    torch.testing.assert_close(outputs["logp_resampled"], logp, rtol=1e-3, atol=1e-3)


class FrozenBackbone(nn.Module):
    """A module with one layer that must not learn, and a layer named "value"."""

    def __init__(self):
        super().__init__()
        self.backbone = nn.Linear(3, 6).requires_grad_(False)  # three observations
        self.value = nn.LazyLinear(5)

    def forward(self, obs):
        if isinstance(obs, dict):  # in a critic
            features = torch.tanh(self.backbone(obs["obs"]))
            return torch.tanh(self.value(torch.cat([features, obs["action"]], dim=1)))
        return torch.tanh(self.value(torch.tanh(self.backbone(obs))))


@pytest.mark.filterwarnings("ignore:model config")  # fcnet_hiddens, which the fixture sets
@pytest.mark.parametrize("in_critic", [True, False], ids=["critic", "default"])
def test_layers_of_a_users_module_learn_unless_frozen(rllib, make_sac, in_critic):
    users_model = {"custom_model": FrozenBackbone}
    model = {**MODEL, "critic": users_model} if in_critic else users_model
    runner, learner, module = make_sac(lambda: Arm(TWO_NUMBERS), model)
    before = copy_weights(module.critics)

    for _ in range(2):
        rllib.update(learner, sample_batch(runner))

    for name, weight in module.critics.named_parameters():
        is_frozen = ".backbone." in name
        assert torch.equal(weight, before[name]) == is_frozen, name
        assert weight.requires_grad != is_frozen


def test_instance_is_copied_for_each_critic(make_sac):
    instance = FrozenBackbone()
    module = make_sac(lambda: Arm(TWO_NUMBERS), {"critic": {"custom_model": instance}}).module

    backbones = [instance.backbone]
    for critic in (*module.critics, *module.target):
        backbones.append(critic.trunk.module.backbone)
    assert len({backbone.weight.data_ptr() for backbone in backbones}) == 5
    for backbone in backbones:
        assert torch.equal(backbone.weight, instance.backbone.weight)


# --- policies, processes and files ----------------------------------------------------------------


def test_exported_policy_is_the_actor_alone(make_sac, tmp_path):
    module = make_sac(lambda: Arm()).module
    rlcatalog_rllib.to_policy(module).save(tmp_path)

    policy = rlcatalog.load(tmp_path)

    assert policy.resolution.critic is None
    assert policy.model.get_weights().keys() == module.model.get_weights().keys()
    obs = np.random.default_rng(0).uniform(-1, 1, (4, 3)).astype(np.float32)
    action = policy.act(obs, explore=False).action
    raw_action = module.forward_inference({"obs": torch.from_numpy(obs)})["actions"].numpy()
    np.testing.assert_allclose(action["elbow"], raw_action[:, :1], rtol=1e-5)
    np.testing.assert_allclose(action["shoulder"], raw_action[:, 1:], rtol=1e-5)


def test_module_takes_the_state_of_an_equal_module(make_sac):
    module = make_sac(lambda: Arm()).module
    other = make_sac(lambda: Arm()).module

    other.set_state(module.get_state())

    weights = copy_weights(other)
    assert weights.keys() == copy_weights(module).keys()
    for name, weight in copy_weights(module).items():
        assert torch.equal(weights[name], weight), name


def test_recipe_takes_registered_critics_to_another_process():
    catalog = Catalog()
    catalog.register_model("own_critic", FrozenBackbone)
    model = {"fcnet_hiddens": [8], "critic": {"custom_model": "own_critic"}}
    config = rlcatalog_rllib.configure(SACConfig(), "Pendulum-v1", model=model, catalog=catalog)

    recipe = pickle.loads(pickle.dumps(Recipe.of(config.rl_module_spec.model_config)))

    assert recipe.action_critics == {"custom_model": "own_critic"}
    assert "critic" not in recipe.model  # runners and exported policies do not build it
    env = gym.make("Pendulum-v1")
    policy = build_policy(recipe, env.observation_space, env.action_space)
    critic = build_critic_of_actions(recipe, policy)
    assert type(critic.trunk.module).__name__ == "FrozenBackbone"


def test_searched_critic_comes_from_the_trial():
    recipe = Recipe({"fcnet_hiddens": [8]}, action_critics={"fcnet_hiddens": [16]})
    settings = recipe.model_config(searched=["critic"])

    of_trial = Recipe.of({**settings, "critic": {"fcnet_hiddens": [32]}}).with_critics_apart()

    assert of_trial.action_critics == {"fcnet_hiddens": [32]}
    assert of_trial.model == {"fcnet_hiddens": [8]}


def test_runner_builds_no_critics(rllib):
    runner = rllib.make_runner(rllib.configure(lambda: Arm(), MODEL, "sac"))

    assert not any("critic" in name for name, _ in runner.module.named_parameters())


@pytest.mark.slow  # starts algorithms
def test_restored_algorithm_has_the_same_critics(local_ray, rllib, tmp_path):
    config = rllib.configure(
        lambda: Arm(),
        MODEL,
        "sac",
        num_steps_sampled_before_learning_starts=16,
        replay_buffer_config={"type": "EpisodeReplayBuffer", "capacity": 1000},
    )
    with rllib.build_algorithm(config) as algorithm:
        for _ in range(3):
            algorithm.train()
        path = algorithm.save_to_path(str(tmp_path / "checkpoint"))
        weights = copy_weights(algorithm.learner_group._learner.module["default_policy"])

    restored = type(algorithm).from_checkpoint(path)
    try:
        module = restored.learner_group._learner.module["default_policy"]
        restored_weights = copy_weights(module)
        restored.train()
    finally:
        restored.stop()

    assert any(name.startswith("critics.") for name in weights)
    assert restored_weights.keys() == weights.keys()
    for name, weight in weights.items():
        assert torch.equal(restored_weights[name], weight), name


# --- what is refused ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("model", "error", "message"),
    [
        ({"critic": {}, "obs_groups": {"policy": ["x"]}}, NotServedError, "same observation"),
        ({"critic": {"use_lstm": True}}, NotServedError, "memory 'lstm' is not supported"),
        ({"critic": {"image_layout": "hwc"}}, ConfigError, "about both the policy and the critic"),
        ({"critic": {"vf_share_layers": False}}, ConfigError, "is not for a critic"),
        ({"critic": {"fcnet_hidens": [8]}}, ConfigError, "critic: Unknown model config key"),
        ({"critic": {"critic": {}}}, ConfigError, "is not for a critic"),
    ],
    ids=lambda value: next(iter(value["critic"]), "obs_groups") if isinstance(value, dict) else "",
)
def test_configure_refuses_what_critics_cannot_have(rllib, model, error, message):
    with pytest.raises(error, match=message):
        rllib.configure(HiddenLevelOfNumbers, model, "sac")


class HiddenLevelOfNumbers(HiddenLevel):
    """A Dict observation, with a number as the action."""

    action_space = Box(-1, 1, (1,))


@pytest.mark.parametrize(
    "action_space",
    [
        Dict({"a": Box(-1, 1, (1,)), "b": Box(-np.inf, np.inf, (1,))}),
        Dict({"a": Box(-1, 1, (1,)), "b": Discrete(2)}),
        MultiBinary(2),
    ],
    ids=["unbounded", "a choice", "bits"],
)
def test_actions_that_critics_cannot_see_are_refused(rllib, action_space):
    with pytest.raises(NotServedError, match="Boxes of floats with finite bounds"):
        rllib.configure(lambda: Anything(action_space), MODEL, "sac")


def test_choice_inside_actions_is_refused_without_a_critic(rllib):
    action_space = Dict({"a": Box(-1, 1, (1,)), "b": Discrete(2)})

    with pytest.raises(NotServedError, match="SAC needs a Discrete, or a bounded Box"):
        rllib.configure(lambda: Anything(action_space), {}, "sac")
