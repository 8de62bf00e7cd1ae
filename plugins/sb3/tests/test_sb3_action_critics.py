"""SAC, TD3 and TQC with critics from the catalog, and actions made of several Boxes."""

import gymnasium as gym
import numpy as np
import pytest
import torch

pytest.importorskip("stable_baselines3", reason="Stable-Baselines3 is not installed")
pytest.importorskip("sb3_contrib", reason="sb3-contrib is not installed")

from gymnasium.spaces import Box, Dict, Discrete, Sequence, Tuple
from sb3_contrib import TQC
from stable_baselines3 import SAC, TD3
from stable_baselines3.common.logger import Logger
from torch import nn

from rlcatalog.errors import ConfigError, NotServedError
from rlcatalog_sb3 import for_sb3, to_policy

POLICIES = {SAC: "CatalogSACPolicy", TD3: "CatalogTD3Policy", TQC: "CatalogTQCPolicy"}
ALGORITHMS = pytest.mark.parametrize("algorithm", list(POLICIES), ids=lambda cls: cls.__name__)
CONFIG = {"fcnet_hiddens": [8], "critic": {"fcnet_hiddens": [16], "fcnet_activation": "relu"}}
ARM = Dict(
    {"elbow": Box(-1.5, 1.5, (1,)), "shoulder": Box(np.float32([0, -2]), np.float32([1, 2]))}
)
OBSERVATIONS = Box(-1, 1, (3,))


class Arm(gym.Env):
    """Random observations; pays for actions near 0, in episodes of ten steps."""

    def __init__(self, action_space=ARM, observation_space=OBSERVATIONS):
        self.action_space = action_space
        self.observation_space = observation_space

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        return self.observation_space.sample(), {}

    def step(self, action):
        assert self.action_space.contains(action), action
        self.steps += 1
        return self.observation_space.sample(), 0.0, False, self.steps == 10, {}


def make(algorithm, env, model_config=None, **policy_kwargs):
    policy_kwargs["model_config"] = CONFIG if model_config is None else model_config
    return algorithm(
        POLICIES[algorithm],
        env,
        policy_kwargs=policy_kwargs,
        learning_starts=10,
        batch_size=16,
        buffer_size=500,
        seed=0,
        device="cpu",
    )


def flat_rows(model, rows=5):
    """Return random observations and actions, as Stable-Baselines3 passes them to a critic."""
    width = model.action_space.shape[0]
    return torch.rand(rows, *model.observation_space.shape), 2 * torch.rand(rows, width) - 1


# --- the critics ----------------------------------------------------------------------------------


def plain_critic(critic):
    """Return the layers of a critic with one hidden layer as a plain PyTorch network."""
    weights = {name: torch.from_numpy(array) for name, array in critic.trunk.get_weights().items()}
    hidden = nn.Linear(*reversed(weights["hidden.layers.0.weight"].shape))
    with torch.no_grad():
        hidden.weight.copy_(weights["hidden.layers.0.weight"])
        hidden.bias.copy_(weights["hidden.layers.0.bias"])
    return nn.Sequential(hidden, nn.ReLU(), critic.output)


@ALGORITHMS
def test_critics_see_the_observation_and_then_the_action(algorithm):
    model = make(algorithm, Arm(Box(-2, 2, (2,))))
    obs, actions = flat_rows(model)

    outputs = model.policy.critic(obs, actions)

    rows = torch.cat([obs, actions], dim=1)
    for number, critic in enumerate(model.policy.critic.critics):
        # TQC's outputs are one tensor [B, critics, quantiles], the others' a tuple of [B, 1].
        of_critic = outputs[:, number] if algorithm is TQC else outputs[number]
        torch.testing.assert_close(of_critic, plain_critic(critic)(rows))


def test_critics_differ_and_have_as_many_as_asked():
    critic = make(SAC, for_sb3(Arm()), n_critics=3).policy.critic
    obs, actions = torch.rand(4, 3), torch.rand(4, 3)

    values = critic(obs, actions)

    assert len(values) == 3
    assert not torch.equal(values[0], values[1])
    torch.testing.assert_close(critic.q1_forward(obs, actions), values[0])


@ALGORITHMS
def test_critic_of_an_image_beside_a_vector_sees_the_action(algorithm):
    space = Dict({"camera": Box(0, 255, (12, 12, 3), np.uint8), "speed": Box(-1, 1, (2,))})
    convs = {"conv_filters": [[4, 3, 2]], "conv_flatten": True}
    env = for_sb3(Arm(observation_space=space), {**convs, "critic": convs})
    model = make(algorithm, env, {**convs, "critic": convs}).learn(15)
    obs, actions = flat_rows(model)
    actions.requires_grad_()

    outputs = model.policy.critic(obs, actions)

    total = sum(output.sum() for output in outputs)
    (gradient,) = torch.autograd.grad(total, actions)
    assert (gradient != 0).any(dim=0).all()  # of each value of the action


def test_ten_updates_of_sac_equal_those_of_sb3():
    config = {"fcnet_hiddens": [8], "fcnet_activation": "relu", "critic": CONFIG["critic"]}
    env = Arm(Box(-2, 2, (2,)))
    ours = make(SAC, env, config)
    theirs = SAC("MlpPolicy", env, policy_kwargs={"net_arch": {"pi": [8], "qf": [16]}}, seed=0)
    copy_actor(ours.policy.actor, theirs.policy.actor)
    for ours_q, theirs_q in zip(
        [*ours.policy.critic.critics, *ours.policy.critic_target.critics],
        [*theirs.policy.critic.q_networks, *theirs.policy.critic_target.q_networks],
        strict=True,
    ):
        copy_parameters(plain_critic(ours_q), theirs_q)
    rng = np.random.default_rng(0)
    for _ in range(200):
        transition = (
            rng.normal(size=(1, 3)).astype(np.float32),
            rng.normal(size=(1, 3)).astype(np.float32),
            rng.uniform(-1, 1, size=(1, 2)).astype(np.float32),
            rng.normal(size=1).astype(np.float32),
            rng.random(1) < 0.1,
            [{}],
        )
        for model in (ours, theirs):
            model.replay_buffer.add(*transition)

    for model in (ours, theirs):
        model.set_logger(Logger(None, []))
        np.random.seed(0)
        torch.manual_seed(0)
        model.train(gradient_steps=10, batch_size=32)

    obs, actions = flat_rows(ours)
    for value, expected in zip(ours.critic(obs, actions), theirs.critic(obs, actions), strict=True):
        torch.testing.assert_close(value, expected, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(
        ours.actor(obs, deterministic=True),
        theirs.actor(obs, deterministic=True),
        rtol=1e-5,
        atol=1e-5,
    )


def copy_actor(ours, theirs):
    """Copy the weights of an actor with a catalog trunk of one layer to one of SB3."""
    hidden = ours.features_extractor.trunk.hidden.layers[0]
    copy_parameters(nn.ModuleList([hidden]), theirs.latent_pi)
    copy_parameters(ours.mu, theirs.mu)
    copy_parameters(ours.log_std, theirs.log_std)


def copy_parameters(source, target):
    with torch.no_grad():
        for theirs, ours in zip(target.parameters(), source.parameters(), strict=True):
            theirs.copy_(ours)


@ALGORITHMS
def test_keys_about_the_observation_reach_the_critics(algorithm):
    items = Sequence(Box(-1, 1, (2,)), stack=True)
    space = Dict({"camera": Box(0, 255, (3, 12, 12), np.uint8), "items": items})
    convs = {"conv_filters": [[4, 3, 2]], "conv_flatten": True}
    config = {"sequence_max_len": 64, "image_layout": "chw", **convs, "critic": convs}

    model = make(algorithm, for_sb3(Arm(observation_space=space), config), config).learn(15)

    extractor = model.policy.actor.features_extractor
    for critic in model.policy.critic.critics:
        assert critic.preprocessor.shape == extractor.preprocessor.shape
        assert critic.resolution.config["image_layout"] == "chw"


def test_key_about_the_observation_is_refused_in_a_critic():
    with pytest.raises(ConfigError, match="about both the policy and the critic"):
        make(SAC, for_sb3(Arm()), {"critic": {"image_layout": "chw"}})


class Features(nn.Module):
    """A module with a layer for three observations and three values of the action."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(6, 4)

    def forward(self, inputs):
        return torch.relu(self.layer(torch.cat([inputs["obs"], inputs["action"]], dim=1)))


def test_instance_is_copied_for_each_critic_and_target():
    instance = Features()
    model = make(SAC, for_sb3(Arm()), {"critic": {"custom_model": instance}}).learn(15)

    layers = [instance.layer]
    for critic in (*model.critic.critics, *model.critic_target.critics):
        layers.append(critic.trunk.module.layer)
    assert len({layer.weight.data_ptr() for layer in layers}) == 5


# --- actions of several Boxes ---------------------------------------------------------------------


@ALGORITHMS
@pytest.mark.parametrize(
    "action_space", [ARM, Tuple([ARM["elbow"], ARM["shoulder"]])], ids=["Dict", "Tuple"]
)
def test_converted_policy_acts_like_the_algorithm(algorithm, action_space):
    env = for_sb3(Arm(action_space))
    model = make(algorithm, env).learn(15)  # the environment checks each action
    obs = OBSERVATIONS.sample()

    policy = to_policy(model)

    flat_action, _ = model.predict(obs, deterministic=True)
    expected = env.flattening.act(flat_action)
    action = policy.act(obs[None], explore=False).action
    for key in action_space.spaces if isinstance(action_space, Dict) else range(2):
        np.testing.assert_allclose(action[key][0], expected[key], rtol=1e-4, atol=1e-5)


def test_flat_box_reaches_the_bounds_of_each_box():
    env = for_sb3(Arm())

    lowest = env.flattening.act(env.action_space.low)
    highest = env.flattening.act(env.action_space.high)

    for key, space in ARM.spaces.items():
        np.testing.assert_allclose(lowest[key], space.low, atol=1e-6)
        np.testing.assert_allclose(highest[key], space.high, atol=1e-6)


def test_flat_box_equals_that_of_earlier_versions():
    space = for_sb3(Arm()).action_space
    # Before, a Tuple or Dict of Boxes became a Box without bounds.
    largest = np.finfo(np.float32).max
    earlier = Box(np.float32([-largest] * 3), np.float32([largest] * 3))

    assert earlier == space
    assert space != Box(-3, 3, (3,))


@pytest.mark.parametrize(
    "action_space",
    [
        Dict({"a": Box(-1, 1, (1,)), "b": Box(-np.inf, np.inf, (1,))}),
        Dict({"a": Box(-1, 1, (1,)), "b": Discrete(2)}),
    ],
    ids=["unbounded", "a choice"],
)
def test_actions_that_are_not_all_bounded_boxes_are_refused(action_space):
    with pytest.raises(NotServedError, match="Boxes of floats with finite bounds"):
        make(SAC, for_sb3(Arm(action_space)))


# --- files ----------------------------------------------------------------------------------------


@ALGORITHMS
def test_loaded_algorithm_has_the_same_critics(algorithm, tmp_path):
    env = for_sb3(Arm())
    model = make(algorithm, env).learn(15)
    model.save(tmp_path / "model.zip")

    loaded = algorithm.load(tmp_path / "model.zip", env=env)

    obs, actions = flat_rows(model)
    torch.testing.assert_close(
        torch.stack(tuple(loaded.critic(obs, actions))),
        torch.stack(tuple(model.critic(obs, actions))),
    )
    loaded.learn(5)  # training goes on


@ALGORITHMS
def test_loaded_policy_has_the_same_critics(algorithm, tmp_path):
    model = make(algorithm, for_sb3(Arm()))
    model.policy.save(tmp_path / "policy.zip")

    loaded = type(model.policy).load(tmp_path / "policy.zip", device="cpu")

    obs, actions = flat_rows(model)
    torch.testing.assert_close(
        torch.stack(tuple(loaded.critic(obs, actions))),
        torch.stack(tuple(model.policy.critic(obs, actions))),
    )


# --- what is refused ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("policy_kwargs", "cause"),
    [
        ({"net_arch": [8]}, "net_arch"),
        ({"features_extractor_class": nn.Module}, "features_extractor_class"),
        ({"share_features_extractor": True}, "share_features_extractor"),
        ({"model_config": {"critic": {}, "obs_groups": {"policy": ["x"]}}}, "obs_groups"),
        ({"model_config": {"critic": {"use_lstm": True}}}, "the memory 'lstm' is not supported"),
        ({"model_config": {"use_lstm": True}}, "use_lstm"),
    ],
    ids=["net_arch", "extractor", "shared", "groups", "memory of critic", "memory of actor"],
)
def test_critics_refuse_what_they_cannot_have(policy_kwargs, cause):
    with pytest.raises((ConfigError, NotServedError), match=cause):
        SAC("CatalogSACPolicy", "Pendulum-v1", policy_kwargs=policy_kwargs)
