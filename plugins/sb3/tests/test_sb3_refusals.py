"""What Stable-Baselines3 cannot carry is refused, by the name of the key that asks for it."""

import gymnasium as gym
import numpy as np
import pytest

pytest.importorskip("stable_baselines3", reason="Stable-Baselines3 is not installed")
pytest.importorskip("sb3_contrib", reason="sb3-contrib is not installed")

import torch
from gymnasium.spaces import Box, Dict, Discrete, MultiDiscrete, Tuple
from sb3_contrib import QRDQN, TQC, TRPO, CrossQ, RecurrentPPO
from stable_baselines3 import A2C, DDPG, DQN, PPO, SAC, TD3
from stable_baselines3.common.env_util import make_vec_env

from rlcatalog import ActionCodecSpec
from rlcatalog.actions import ActionCodec
from rlcatalog.errors import ConfigError, ModelContractError, NotServedError
from rlcatalog_sb3 import (
    CatalogExtractor,
    CatalogMaskablePolicy,
    CatalogPolicy,
    CatalogRecurrentPolicy,
    for_sb3,
)
from rlcatalog_testing import PluginEntryPoint, isolated_catalog, plugin_of
from rlcatalog_torch import Categorical, TorchModelV2


class Still(gym.Env):
    """Never stepped."""

    def __init__(self, observation_space, action_space):
        self.observation_space, self.action_space = observation_space, action_space

    def reset(self, *, seed=None, options=None):
        return self.observation_space.sample(), {}


class Plain(TorchModelV2):
    """A model with a loss of its own, or without a value branch."""

    def __init__(self, obs_space, action_space, num_outputs, model_config, name):
        super().__init__(obs_space, action_space, num_outputs, model_config, name)
        self.layer = torch.nn.Linear(obs_space.shape[0], num_outputs)

    def forward(self, input_dict, state, seq_lens):
        return self.layer(input_dict["obs_flat"]), state


class WithLoss(Plain):
    def value_function(self):
        return torch.zeros(1)

    def custom_loss(self, policy_loss, loss_inputs):
        return policy_loss + self.layer.weight.square().sum()


class LooksBack(WithLoss):
    custom_loss = TorchModelV2.custom_loss

    def __init__(self, *args):
        from rlcatalog import ViewRequirement

        super().__init__(*args)
        self.view_requirements["past"] = ViewRequirement("obs", shift="-2:-1")


LSTM = {"use_lstm": True}
REFUSED = [
    (
        PPO,
        LSTM,
        NotServedError,
        "^use_lstm: PPO keeps no state .* RecurrentPPO.CatalogRecurrentPolicy, ",
    ),
    (
        PPO,
        {**LSTM, "lstm_cell_size": 8, "max_seq_len": 4},
        NotServedError,
        "^use_lstm, lstm_cell_size: PPO keeps",
    ),
    (
        A2C,
        {"use_attention": True},
        NotServedError,
        "^use_attention: A2C keeps no state .* rlcatalog-ppo",
    ),
    (
        PPO,
        {"observation_filter": "MeanStdFilter"},
        NotServedError,
        "observation_filter='MeanStdFilter'.*VecNormalize",
    ),
    (PPO, {"custom_model": WithLoss}, NotServedError, "WithLoss.custom_loss"),
    (PPO, {"custom_model": LooksBack}, NotServedError, "LooksBack requests the views past"),
    (PPO, {"custom_model": Plain}, ModelContractError, r"Plain has no value_function\(\)"),
    (
        RecurrentPPO,
        {"use_attention": True},
        NotServedError,
        "^use_attention: RecurrentPPO supports .*; the memory 'attention' has",
    ),
    (
        RecurrentPPO,
        {**LSTM, "lstm_use_prev_action": True},
        NotServedError,
        "^use_lstm, lstm_use_prev_action: the memory 'lstm' requests the views past_actions, .*"
        " only the current step",
    ),
    (
        RecurrentPPO,
        {**LSTM, "lstm_use_prev_reward": True},
        NotServedError,
        "^use_lstm, lstm_use_prev_reward: the memory 'lstm' requests the views past_rewards, .*"
        " only the current step",
    ),
    (RecurrentPPO, {}, ConfigError, "the model has no memory. Set use_lstm"),
    (PPO, {"fcnet_hidens": [8]}, ConfigError, "Did you mean 'fcnet_hiddens'"),
]


@pytest.mark.parametrize(("algorithm", "config", "kind", "message"), REFUSED)
def test_a_config_that_cannot_be_carried_is_refused(algorithm, config, kind, message):
    policy = CatalogRecurrentPolicy if algorithm is RecurrentPPO else CatalogPolicy
    with pytest.raises(kind, match=message):
        algorithm(policy, "CartPole-v1", policy_kwargs={"model_config": config}, device="cpu")


def test_a_refusal_names_the_algorithm_that_was_asked_for():
    class Mine(PPO):
        """A user's algorithm."""

    keywords = {"policy_kwargs": {"model_config": LSTM}, "device": "cpu"}
    with pytest.raises(NotServedError, match=r"^use_lstm: Mine keeps no state"):
        Mine(CatalogPolicy, "CartPole-v1", **keywords)
    spaces = Box(-1, 1, (3,)), Discrete(2)
    # Built by no algorithm.
    with pytest.raises(NotServedError, match=r"^use_lstm: CatalogPolicy keeps no state"):
        CatalogPolicy(*spaces, lambda _: 1e-3, model_config=LSTM)


def test_a_policy_of_the_other_kind_is_refused():
    with pytest.raises(
        NotServedError,
        match=r"^RecurrentPPO does not accept CatalogPolicy.*CatalogRecurrentPolicy, with",
    ):
        RecurrentPPO(CatalogPolicy, "CartPole-v1")
    with pytest.raises(
        NotServedError, match=r"^PPO does not accept CatalogRecurrentPolicy.*sb3.RecurrentPPO"
    ):
        PPO(CatalogRecurrentPolicy, "CartPole-v1", policy_kwargs={"model_config": LSTM})


def test_spaces_flattened_otherwise_are_told_apart_in_messages():
    model = PPO(CatalogPolicy, for_sb3("Pendulum-v1", {"action_bounds": "clip"}))
    with pytest.raises(ValueError, match=r"action_bounds='clip'.* != .*action_bounds='affine'"):
        model.set_env(for_sb3("Pendulum-v1"))


@pytest.mark.parametrize(
    ("states", "shapes"),
    [
        ([torch.zeros(3), torch.zeros(2, 2)], r"\[\(3,\), \(2, 2\)\]"),
        ([torch.zeros(3, dtype=torch.int64)], r"\[\(3,\)\]"),
        ([torch.zeros(3), torch.ones(3)], r"\[\(3,\), \(3,\)\]"),
        ([torch.zeros(3, 2), torch.zeros(3, 2)], r"\[\(3, 2\), \(3, 2\)\]"),
    ],
)
def test_states_that_are_no_vectors_of_zeros_are_refused(states, shapes):
    from rlcatalog_torch import RecurrentNetwork

    class Other(RecurrentNetwork):
        def get_initial_state(self):
            return states

        def value_function(self):
            return torch.zeros(1)

    with pytest.raises(
        NotServedError, match=f"initially zero, as in an LSTM; Other has states of shapes {shapes}"
    ):
        RecurrentPPO(
            CatalogRecurrentPolicy,
            "CartPole-v1",
            policy_kwargs={"model_config": {"custom_model": Other}},
        )
    with pytest.raises(
        NotServedError, match=r"Other is recurrent .*: PPO keeps no state .* rlcatalog-ppo"
    ):
        PPO(CatalogPolicy, "CartPole-v1", policy_kwargs={"model_config": {"custom_model": Other}})


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        (
            {"net_arc": [8]},
            "CatalogPolicy does not accept 'net_arc'. Did you mean 'net_arch'.*keys of"
            " model_config",
        ),
        (
            {"model_confg": {}},
            "CatalogPolicy does not accept 'model_confg'. Did you mean 'model_config'?",
        ),
        (
            {"ortho_init": False},
            "CatalogPolicy does not accept 'ortho_init'.*fcnet_weights_initializer='orthogonal'",
        ),
        (
            {"share_features_extractor": False},
            "does not accept 'share_features_extractor': in model_config, vf_share",
        ),
    ],
)
def test_policy_kwargs_without_a_use_are_refused(kwargs, message):
    with pytest.raises(ConfigError, match=message):
        PPO(CatalogPolicy, "CartPole-v1", policy_kwargs=kwargs, device="cpu")


def test_state_dependent_exploration_is_refused():
    with pytest.raises(ConfigError, match="use_sde=True"):
        PPO(CatalogPolicy, "Pendulum-v1", use_sde=True, device="cpu")
    policy = PPO(CatalogPolicy, "Pendulum-v1", device="cpu").policy
    with pytest.raises(NotServedError, match="reset_noise"):
        policy.reset_noise()
    with pytest.raises(NotServedError, match="no features extractor"):
        policy.extract_features(torch.zeros(1, 3))


BOX = Box(-1, 1, (2,))
DIRECT = [
    (PPO, Discrete(3, start=1), {}, "values do not start at 0"),
    (PPO, MultiDiscrete([2, 2], start=[0, 1]), {}, "values do not start at 0"),
    (PPO, MultiDiscrete([[2, 2], [2, 2]]), {}, "more than one axis"),
    (PPO, Box(-3, 3, (2,), np.int16), {}, "stored as int16"),
    (PPO, Discrete(3), {"custom_action_dist": "gumbel_softmax"}, "draws one-hots"),
    (
        RecurrentPPO,
        BOX,
        {**LSTM, "action_bounds": "affine"},
        "action_bounds='affine' would not be applied",
    ),
]


@pytest.mark.parametrize(("algorithm", "actions", "config", "why"), DIRECT)
# Stable-Baselines3's own remarks on such spaces.
@pytest.mark.filterwarnings("ignore:.*:UserWarning")
def test_actions_that_would_reach_the_environment_raw_are_refused(algorithm, actions, config, why):
    policy = CatalogRecurrentPolicy if algorithm is RecurrentPPO else CatalogPolicy
    env = Still(BOX, actions)
    with pytest.raises(NotServedError, match=rf"{why}.*for_sb3\(env, model_config\)"):
        algorithm(policy, env, policy_kwargs={"model_config": config}, device="cpu")
    algorithm(policy, for_sb3(env, config), device="cpu")


class Winds(Discrete):
    """Choices with names."""


class WindsCodec(ActionCodec):
    """Hands the environment the names."""

    scalar = whole = True

    def __init__(self, info, *others):
        super().__init__(info, *others)
        self.counts, self.choices, self.input_width = (2,), [(info.path, 2)], 2

    def adapt(self, raw):
        return np.array(["calm", "storm"])[raw[:, 0].astype(int)]


def test_choices_that_a_codec_gives_names_are_refused_unless_the_environment_takes_raw_ones():
    spec = ActionCodecSpec(
        "winds", {"numpy": f"{__name__}:WindsCodec"}, "winds", kinds=(f"{__name__}.Winds",)
    )
    ours = ("rlcatalog-preprocessors", "rlcatalog-fcnet", "rlcatalog-categorical")
    catalog = isolated_catalog(
        *ours, PluginEntryPoint(plugin_of(rlcatalog_action_codecs=[spec]), "acme")
    )
    env, kwargs = Still(BOX, Winds(2)), {"catalog": catalog}
    with pytest.raises(
        NotServedError,
        match=r"its codec, WindsCodec, changes raw actions.*for_sb3\(env, model_config\)",
    ):
        PPO(CatalogPolicy, env, policy_kwargs=kwargs, device="cpu")
    PPO(CatalogPolicy, for_sb3(env, catalog=catalog), policy_kwargs=kwargs, device="cpu")


@pytest.mark.parametrize(
    ("flattened", "asked", "key"),
    [
        ({}, {"action_bounds": "clip"}, "action_bounds='affine'"),
        ({"custom_action_dist": "squashed_gaussian"}, {}, "raw_kinds="),
    ],
)
def test_a_policy_that_reads_flat_spaces_otherwise_is_refused(flattened, asked, key):
    env = for_sb3(Still(BOX, BOX), flattened)
    with pytest.raises(ConfigError, match=f"flattened with {key}.*Pass the same config to both"):
        PPO(CatalogPolicy, env, policy_kwargs={"model_config": asked}, device="cpu")
    # Keys that shape neither observations nor actions may differ.
    PPO(
        CatalogPolicy,
        env,
        policy_kwargs={"model_config": {**flattened, "fcnet_hiddens": [8]}},
        device="cpu",
    )


def test_vector_environments_and_filters_are_refused_by_the_wrapper():
    with pytest.raises(ModelContractError, match="make_vec_env"):
        for_sb3(make_vec_env("CartPole-v1", 1))
    with pytest.raises(NotServedError, match="VecNormalize"):
        for_sb3("CartPole-v1", {"observation_filter": "MeanStdFilter"})


MASKED = Dict({"x": BOX, "action_mask": Box(0, 1, (3,), np.int8)})
EXTRACTORS = [
    (BOX, {"use_lstm": True}, NotServedError, "^use_lstm: .* cannot use a memory"),
    (BOX, {"observation_filter": "MeanStdFilter"}, NotServedError, "VecNormalize"),
    (
        BOX,
        {"custom_action_dist": "gumbel_softmax"},
        ConfigError,
        "custom_action_dist: .*DQN, SAC and TD3 choose",
    ),
    (MASKED, {}, NotServedError, "^action_mask: .*DQN, SAC and TD3 do not mask actions"),
]


@pytest.mark.parametrize(("space", "config", "kind", "message"), EXTRACTORS)
@pytest.mark.parametrize("wrapped", [False, True], ids=["own", "flat"])
def test_what_a_features_extractor_cannot_do_is_refused(space, config, kind, message, wrapped):
    env = Still(space, Discrete(3))
    shown = for_sb3(env) if wrapped else env
    kwargs = {
        "features_extractor_class": CatalogExtractor,
        "features_extractor_kwargs": {"model_config": config},
    }
    policy = "MultiInputPolicy" if isinstance(shown.observation_space, Dict) else "MlpPolicy"
    with pytest.raises(kind, match=message):
        DQN(policy, shown, policy_kwargs=kwargs, device="cpu")


def test_features_extractors_refuse_actions_no_algorithm_takes():
    space = for_sb3(Still(BOX, Tuple([Discrete(2), BOX]))).observation_space
    with pytest.raises(
        NotServedError, match="DQN needs a Discrete, SAC and TD3 need a Box of floats"
    ):
        CatalogExtractor(space)


class Moving(Still):
    """Steps without end."""

    def step(self, action):
        return self.observation_space.sample(), 0.0, False, False, {}


class Own(CatalogPolicy):
    """A policy of the user's, with a constructor of its own."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)


POLICIES = [CatalogPolicy, CatalogMaskablePolicy, CatalogRecurrentPolicy, Own]
OTHERS = {
    DQN: Discrete(3),
    SAC: BOX,
    TD3: BOX,
    DDPG: BOX,
    QRDQN: Discrete(3),
    TQC: BOX,
    CrossQ: BOX,
    TRPO: BOX,
}
OFF_POLICY, TRUST_REGION = (
    {"buffer_size": 10, "learning_starts": 2},
    {"n_steps": 16, "batch_size": 16},
)


@pytest.mark.grid
@pytest.mark.parametrize("algorithm", OTHERS)
@pytest.mark.parametrize("space", [BOX, Dict({"a": BOX})], ids=["MlpPolicy", "MultiInputPolicy"])
def test_algorithms_with_nets_of_their_own_refuse_our_policies_and_show_the_call(algorithm, space):
    env, settings = (
        Moving(space, OTHERS[algorithm]),
        TRUST_REGION if algorithm is TRPO else OFF_POLICY,
    )
    for policy in [*POLICIES, "CatalogPolicy"]:
        name = policy if isinstance(policy, str) else policy.__name__
        with pytest.raises(
            NotServedError, match=rf"^{algorithm.__name__} does not accept {name}: "
        ) as caught:
            algorithm(policy, env, device="cpu", **settings)
    call = str(caught.value).partition("catalog trunk: ")[2].partition(", with CatalogExtractor")[0]
    call = call.replace("{...}", '{"fcnet_hiddens": [8]}').replace(
        ", policy_kwargs", ', device="cpu", **settings, policy_kwargs'
    )
    # What the message shows is what works.
    made = eval(call, {**globals(), "env": env, "settings": settings})
    (trunk, *_) = (
        module for module in made.policy.modules() if isinstance(module, CatalogExtractor)
    )
    before = [weight.detach().clone() for weight in trunk.parameters()]
    made.learn(16 if algorithm is TRPO else 6)
    assert not all(
        torch.equal(old, new) for old, new in zip(before, trunk.parameters(), strict=True)
    )


def test_a_policy_made_elsewhere_is_not_refused():
    model = PPO(Own, Still(BOX, Discrete(3)), device="cpu")
    assert not [
        name for name in ("q_net", "actor", "critic", "quantile_net") if hasattr(model.policy, name)
    ]
    assert CatalogPolicy(BOX, Discrete(3), lambda _: 1e-3).catalog_policy.has_value


class InNumPy(Categorical):
    """Samples arrays."""

    def sample(self):
        return super().sample().numpy()


def test_a_distribution_that_samples_arrays_is_named():
    kwargs = {"model_config": {"custom_action_dist": InNumPy}}
    model = PPO(CatalogPolicy, Still(BOX, Discrete(3)), policy_kwargs=kwargs, device="cpu")
    with pytest.raises(
        ModelContractError,
        match=r"InNumPy\.sample\(\) must return tensors .*'torch'; found ndarray",
    ):
        model.predict(np.zeros(BOX.shape, np.float32))


@pytest.mark.parametrize("name", ["PPO", "DQN", "MaskablePPO"])
def test_importing_an_algorithm_from_here_shows_the_lines_that_work(name):
    with pytest.raises(ImportError, match=f"rlcatalog_sb3 has no {name}; .* Write:") as caught:
        exec(f"from rlcatalog_sb3 import {name}")
    names = {
        "env": "CartPole-v1" if name == "DQN" else for_sb3(Still(Box(-1, 1, (2,)), Discrete(2)))
    }
    exec(str(caught.value).partition("Write:\n")[2], names)
    assert type(names["model"]).__name__ == name
    with pytest.raises(ImportError, match="cannot import name 'Nothing'"):
        from rlcatalog_sb3 import Nothing  # noqa: F401
