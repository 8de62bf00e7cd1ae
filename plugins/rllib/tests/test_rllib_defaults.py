"""The model config behind an algorithm: what its own nets have, and what the user gave to Ray's
config.
"""

import warnings

import gymnasium as gym
import numpy as np
import pytest
import torch

pytest.importorskip("ray.rllib", reason="Ray RLlib is not installed")

from ray.rllib.algorithms.appo import APPOConfig
from ray.rllib.algorithms.dqn import DQNConfig
from ray.rllib.algorithms.impala import IMPALAConfig
from ray.rllib.algorithms.ppo import PPOConfig
from ray.rllib.algorithms.sac import SACConfig
from ray.rllib.core.rl_module.default_model_config import DefaultModelConfig
from ray.rllib.core.rl_module.rl_module import RLModuleSpec

import rlcatalog_rllib
from rlcatalog.config import RULES
from rlcatalog.errors import ConfigError, NotServedError, UnknownConfigKeyError
from rlcatalog_rllib.recipe import Recipe, build_policy, choose_parts
from rlcatalog_torch import FullyConnectedNetwork

CONFIGS = [PPOConfig, APPOConfig, IMPALAConfig, DQNConfig]


class Refusing(FullyConnectedNetwork):
    """Has no place for a value net of its own, and says so as it likes."""

    def __init__(self, obs_space, action_space, num_outputs, model_config, name):
        assert model_config["vf_share_layers"], "shares all layers"
        super().__init__(obs_space, action_space, num_outputs, model_config, name)


def module(config, env_id="CartPole-v1", **model):
    """Return the module that a configured algorithm would build."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        configured = rlcatalog_rllib.configure(config, env_id, **model)
        return configured.get_rl_module_spec(env=gym.make(env_id)).build()


def shares(made):
    return made.policy.config["vf_share_layers"]


def own_net_shares(make):
    """Whether the algorithm's own net has one encoder for actions and value."""
    config = make().environment("CartPole-v1")
    encoder = config.get_rl_module_spec(env=gym.make("CartPole-v1")).build().encoder
    return getattr(encoder, "critic_encoder", None) is None


@pytest.mark.parametrize("make", [PPOConfig, APPOConfig, IMPALAConfig])
def test_layers_are_shared_as_in_the_algorithms_own_net(make):
    assert shares(module(make())) == own_net_shares(make)


def test_dqn_shares_them():
    assert shares(module(DQNConfig()))


@pytest.mark.parametrize("asked", [True, False])
@pytest.mark.parametrize("make", CONFIGS)
def test_a_given_key_wins(make, asked):
    config = {"vf_share_layers": asked}
    assert shares(module(make(), model=config)) is asked
    assert shares(module(make().rl_module(model_config=config))) is asked


def test_it_gives_way_where_a_part_refuses_it():
    assert shares(module(PPOConfig(), model={"custom_model": Refusing}))
    with pytest.raises(AssertionError, match="shares all layers"):
        module(PPOConfig(), model={"custom_model": Refusing, "vf_share_layers": False})


def test_a_spec_by_itself_leaves_it_to_the_algorithm():
    env = gym.make("CartPole-v1")
    made = rlcatalog_rllib.spec(env.observation_space, env.action_space, {"fcnet_hiddens": [8]})
    for make, expected in ((PPOConfig, False), (IMPALAConfig, True)):
        config = make().environment("CartPole-v1").rl_module(rl_module_spec=made)
        assert shares(config.get_rl_module_spec(env=env).build()) is expected


@pytest.mark.parametrize("make", CONFIGS)
def test_a_config_as_ray_makes_it_gives_nothing(make):
    made = module(make())
    known = {
        *RULES,
        "max_seq_len",
        "vf_share_layers",
        "fcnet_weights_initializer",
        "fcnet_bias_initializer",
    }
    assert made.policy.resolution.config.explicit.keys() <= known


def test_dense_layers_begin_as_those_of_rays_own_net():
    env = gym.make("CartPole-v1")
    own = PPOConfig().environment("CartPole-v1").get_rl_module_spec(env=env).build()
    theirs = [
        layer for layer in own.encoder.actor_encoder.modules() if isinstance(layer, torch.nn.Linear)
    ]
    assert len(theirs) == 2
    for made in (
        module(PPOConfig()),
        rlcatalog_rllib.spec(env.observation_space, env.action_space).build(),
    ):
        for layer, one in zip(made.model.hidden.layers, theirs, strict=True):
            assert layer.weight.shape == one.weight.shape
            bound = layer.weight.shape[1] ** -0.5
            for found in (layer.weight, layer.bias, one.weight, one.bias):
                assert 0.9 * bound < found.abs().max() <= bound
    assert (
        module(PPOConfig(), model={"fcnet_weights_initializer": "zeros"})
        .model.hidden.layers[0]
        .weight.abs()
        .max()
        == 0
    )


@pytest.mark.parametrize("make", [PPOConfig, APPOConfig, IMPALAConfig, SACConfig])
@pytest.mark.parametrize(
    ("normalize", "given"), [(True, None), (False, None), (True, "clip"), (False, "affine")]
)
def test_actions_meet_their_bounds_as_ray_normalizes_them(make, normalize, given):
    from ray.rllib.utils.spaces.space_utils import unsquash_action

    config = make().environment(normalize_actions=normalize)
    policy = module(config, "Pendulum-v1", model={"action_bounds": given} if given else {}).policy
    assert policy.config["action_bounds"] == (given or ("affine" if normalize else "clip"))
    if make is SACConfig:  # its distribution draws within the bounds
        return
    raw = np.linspace(-3, 3, 13, dtype=np.float32)[:, None]
    scaled = unsquash_action(raw, policy.action_space)
    expected = scaled if policy.config["action_bounds"] == "affine" else raw
    np.testing.assert_allclose(policy.action_codec.adapt(raw), np.clip(expected, -2, 2), rtol=1e-6)


def test_a_spec_by_itself_scales_actions_as_ray_does_by_default():
    env = gym.make("Pendulum-v1")
    for model, expected in (({}, "affine"), ({"action_bounds": "clip"}, "clip")):
        made = rlcatalog_rllib.spec(env.observation_space, env.action_space, model).build()
        assert made.policy.config["action_bounds"] == expected


@pytest.mark.parametrize(
    "give",
    [
        lambda config, keys: config.training(model=keys),
        lambda config, keys: config.rl_module(model_config=keys),
        lambda config, keys: config.rl_module(model_config=DefaultModelConfig(**keys)),
        lambda config, keys: config.rl_module(rl_module_spec=RLModuleSpec(model_config=keys)),
    ],
    ids=["training", "rl_module", "DefaultModelConfig", "spec"],
)
def test_what_the_user_gave_ray_is_read(give):
    config = PPOConfig()
    give(config, {"fcnet_hiddens": [7], "fcnet_activation": "relu"})
    made = module(config)
    assert (made.policy.config["fcnet_hiddens"], made.policy.config["fcnet_activation"]) == (
        [7],
        "relu",
    )
    # What configure() is told goes before it.
    again = module(config, model={"fcnet_activation": "elu"})
    assert (again.policy.config["fcnet_hiddens"], again.policy.config["fcnet_activation"]) == (
        [7],
        "elu",
    )


def test_rays_new_names_are_read():
    given = DefaultModelConfig(
        head_fcnet_hiddens=[5],
        head_fcnet_activation="relu",
        fcnet_kernel_initializer="zeros_",
        fcnet_bias_initializer="constant_",
        fcnet_bias_initializer_kwargs={"val": 0.25},
    )
    made = module(PPOConfig().rl_module(model_config=given))
    layers = made.model.hidden.layers
    assert [tuple(layer.weight.shape) for layer in layers] == [(256, 4), (256, 256), (5, 256)]
    assert not layers[0].weight.any()
    assert (layers[1].bias == 0.25).all()
    assert made.model.value_hidden.layers[2].weight.shape == (5, 256)


def test_what_no_net_here_has_is_refused():
    for field, value, way_out in (
        ("fcnet_use_layernorm", True, "Remove it"),
        ("fusionnet_hiddens", [3], "Remove it"),
        ("log_std_clip_param", 2.0, "clip in your own distribution"),
    ):
        if field not in DefaultModelConfig.__dataclass_fields__:
            continue  # Ray 2.54 does not have all of them
        with pytest.raises(ConfigError, match=f"{field}.*{way_out}"):
            module(PPOConfig().rl_module(model_config=DefaultModelConfig(**{field: value})))
    with pytest.raises(
        ConfigError,
        match=r"head_fcnet_hiddens=\[5\] with vf_share_layers=True.*vf_share_layers=False",
    ):
        module(IMPALAConfig().rl_module(model_config={"head_fcnet_hiddens": [5]}))
    with pytest.raises(UnknownConfigKeyError, match="fcnet_hidens"):
        module(PPOConfig().rl_module(model_config={"fcnet_hidens": [5]}))


def test_a_module_of_the_users_own_is_not_put_aside_in_silence():
    from ray.rllib.examples.rl_modules.classes.tiny_atari_cnn_rlm import TinyAtariCNN

    config = PPOConfig().rl_module(rl_module_spec=RLModuleSpec(module_class=TinyAtariCNN))
    with pytest.raises(NotServedError, match=r"would replace TinyAtariCNN .*custom_model"):
        module(config)


def test_recipe_of_an_earlier_version_keeps_its_rules():
    box = gym.spaces.Box(-2, 2, (1,), np.float32)
    recipe, _ = choose_parts(box, box, {"fcnet_hiddens": [4]}, None, {})
    assert build_policy(recipe, box, box).config["action_bounds"] == "affine"
    # Recipes of earlier versions did not name rules that had their defaults.
    earlier = {key: value for key, value in recipe.model.items() if key not in RULES}
    old = Recipe.of(Recipe(earlier, recipe.pins).model_config())
    policy = build_policy(old, box, box)
    assert policy.config["action_bounds"] == "clip"
    assert policy.config["scale_integers"] is False
