"""The transformer in the catalog: its choice, explanation, options, trunks and interfaces."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest
import torch
import warm
from gymnasium import spaces
from seed_models import DuelingQModel, TorchRNN

import rlcatalog
from rlcatalog import Match, ModelCatalog, ModelSpec, Rank
from rlcatalog.catalog import default_catalog
from rlcatalog.errors import (
    AmbiguousChoiceError,
    ConfigError,
    NotServedError,
    StaleOutputError,
    UnreadKeysWarning,
)
from rlcatalog_testing import PluginEntryPoint, isolated_catalog
from rlcatalog_tf import AttentionWrapper as TFWrapper, GTrXLNet as TFNet
from rlcatalog_torch import (
    AttentionWrapper as TorchWrapper,
    FullyConnectedNetwork,
    GTrXLNet as TorchNet,
)

pytestmark = pytest.mark.twins

BOX = spaces.Box(-1, 1, (3,), np.float32)
TWO_ACTIONS = spaces.Discrete(2)
#: A transformer of width 6 over 8 features, which remembers 4 steps.
SMALL_ATTENTION = {
    "use_attention": True,
    "fcnet_hiddens": [8],
    "attention_dim": 6,
    "attention_head_dim": 4,
    "attention_memory_inference": 4,
    "attention_memory_training": 4,
}
both_frameworks = pytest.mark.parametrize("framework", ["torch", "tf"])


# --- the choice and its explanation ---------------------------------------------------------------


@pytest.mark.parametrize(("framework", "cls"), [("torch", TorchWrapper), ("tf", TFWrapper)])
def test_use_attention_builds_a_transformer_around_a_trunk(framework, cls):
    config = {"use_attention": True, "fcnet_hiddens": [8], "attention_dim": 6}

    model = ModelCatalog.get_model_v2(BOX, TWO_ACTIONS, 2, config, framework)

    assert type(model) is cls
    assert model.trunk.num_outputs == 8
    assert model.trunk.outputs is None
    parts = {name.split(".")[0] for name in model.get_weights()}
    assert parts == {"trunk", "transformer", "outputs"}


@both_frameworks
def test_without_use_attention_there_is_no_transformer(framework):
    model = ModelCatalog.get_model_v2(BOX, TWO_ACTIONS, 2, {}, framework)

    assert type(model).__name__ == "FullyConnectedNetwork"


def test_explanation_says_why_attention_is_chosen():
    memory = rlcatalog.explain(BOX, TWO_ACTIONS, SMALL_ATTENTION, "torch").as_dict()["memory"]

    assert memory["chosen"] == "attention"
    assert memory["reason"] == "use_attention is set"
    assert "attention_dim" in memory["config_keys"]


def test_explanation_says_why_attention_is_not_chosen():
    memory = rlcatalog.explain(BOX, TWO_ACTIONS, {}, "torch").as_dict()["memory"]

    assert memory["chosen"] is None
    reasons = {candidate["name"]: candidate["reason"] for candidate in memory["candidates"]}
    assert reasons["attention"] == "use_attention is not set"


def test_explanation_lists_the_stages_of_the_transformer():
    config = {
        "use_attention": True,
        "fcnet_hiddens": [8],
        "attention_num_transformer_units": 2,
        "attention_dim": 6,
        "attention_num_heads": 3,
        "attention_head_dim": 4,
        "attention_use_n_prev_actions": 3,
        "attention_use_n_prev_rewards": 1,
    }

    explanation = rlcatalog.explain(BOX, TWO_ACTIONS, config, "torch").as_dict()

    stages = {}
    for row in explanation["shapes"]:
        if row["stage"].startswith("attention: "):
            stages[row["stage"]] = row["shape"]
    assert stages == {
        "attention: features, 3 past actions, 1 past rewards": [8 + 3 * 2 + 1],
        "attention: input (linear)": [6],
        "attention: unit 1 (3 x 4)": [6],
        "attention: unit 2 (3 x 4)": [6],
        "attention: value": [],
        "attention: logits (linear)": [2],
    }


class OtherMemoryConfig(msgspec.Struct, frozen=True, kw_only=True):
    other_memory: bool = False


class OtherMemoryPlugin:
    """A second memory, of another package."""

    @rlcatalog.hookimpl
    def rlcatalog_models(self):
        match = Match(Rank.SPECIFIC, "other_memory is set")
        return [
            ModelSpec(
                "other",
                {"torch": "nowhere:Other"},
                "a memory",
                match=lambda request: match,
                slot="memory",
            )
        ]


@pytest.fixture
def catalog_with_other_memory():
    """A catalog in which a package outside the public index has a memory, too."""
    return isolated_catalog(
        PluginEntryPoint(OtherMemoryPlugin(), "made-up-other"),
        "rlcatalog-attention",
        "rlcatalog-fcnet",
        "rlcatalog-categorical",
        "rlcatalog-preprocessors",
    )


def test_memory_outside_the_public_index_is_not_asked(catalog_with_other_memory):
    memory = catalog_with_other_memory.explain(BOX, TWO_ACTIONS, SMALL_ATTENTION).as_dict()[
        "memory"
    ]

    attention, other = memory["candidates"][:2]
    assert attention["name"] == "attention"
    assert attention["rank"] == "SPECIFIC"
    assert other["name"] == "other"
    assert other["rank"] is None


def test_memory_outside_the_public_index_is_not_chosen(catalog_with_other_memory):
    config = {**SMALL_ATTENTION, "use_attention": False}

    memory = catalog_with_other_memory.explain(BOX, TWO_ACTIONS, config).as_dict()["memory"]

    assert memory["chosen"] is None


@pytest.mark.skipif(
    "use_lstm" not in rlcatalog.MODEL_DEFAULTS, reason="rlcatalog-lstm is not installed"
)
def test_attention_and_lstm_together_are_an_error():
    with pytest.raises(AmbiguousChoiceError, match=r"'attention' .*'lstm' "):
        rlcatalog.explain(BOX, TWO_ACTIONS, {"use_attention": True, "use_lstm": True})


# --- options --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("attention_num_heads", 0),
        ("attention_memory_training", -1),
        ("attention_dim", 6.5),
    ],
)
def test_invalid_option_is_an_error(key, value):
    with pytest.raises(ConfigError, match=f"'{key}'"):
        rlcatalog.explain(BOX, TWO_ACTIONS, {**SMALL_ATTENTION, key: value})


#: Prints which frameworks are imported when the error is raised.
BUILD_WITH_ZERO_HEADS = """
import sys, gymnasium as gym, rlcatalog

try:
    rlcatalog.build(
        gym.spaces.Box(-1, 1, (3,)),
        gym.spaces.Discrete(2),
        {"use_attention": True, "attention_num_heads": 0},
    )
except ValueError:
    print(sorted({"torch", "tensorflow"} & set(sys.modules)))
"""


def test_invalid_option_is_an_error_before_frameworks_load(tmp_path):
    process = warm.run(["-c", BUILD_WITH_ZERO_HEADS], tmp_path, frameworks=False)

    assert process.stdout.strip() == "[]"


def test_free_log_std_rejects_an_odd_number_of_outputs():
    config = {**SMALL_ATTENTION, "free_log_std": True}

    with pytest.raises(ConfigError, match="free_log_std needs an even number of outputs"):
        ModelCatalog.get_model_v2(BOX, TWO_ACTIONS, 3, config, "torch")


@both_frameworks
def test_free_log_std_is_appended_to_the_means(framework):
    actions = spaces.Box(-1, 1, (2,))
    policy = rlcatalog.build(BOX, actions, {**SMALL_ATTENTION, "free_log_std": True}, framework)
    weights = policy.model.get_weights()
    weights["outputs.free_log_std.log_std"][:] = [0.25, -0.5]

    policy.model.set_weights(weights)

    dist_inputs = policy.act(np.ones((3, 3), np.float32)).dist_inputs
    assert weights["outputs.logits.weight"].shape == (2, 6)  # 2 means of width 6
    np.testing.assert_array_equal(dist_inputs[:, 2:], np.tile(np.float32([0.25, -0.5]), (3, 1)))


@both_frameworks
def test_no_final_linear_is_warned_of_and_has_no_effect(framework):
    obs = np.random.default_rng(0).normal(size=(3, 3)).astype(np.float32)
    plain = rlcatalog.build(BOX, TWO_ACTIONS, SMALL_ATTENTION, framework)
    expected = plain.act(obs, explore=False)

    with pytest.warns(UnreadKeysWarning, match="no_final_linear"):
        policy = rlcatalog.build(
            BOX, TWO_ACTIONS, {**SMALL_ATTENTION, "no_final_linear": True}, framework
        )

    policy.model.set_weights(plain.model.get_weights())
    step = policy.act(obs, explore=False)
    np.testing.assert_array_equal(step.logp, expected.logp)
    np.testing.assert_array_equal(step.value, expected.value)
    np.testing.assert_array_equal(step.dist_inputs, expected.dist_inputs)


# --- trunks and interfaces ------------------------------------------------------------------------


class FcnetOfWidth(FullyConnectedNetwork):
    """A fully connected network with one hidden layer of this width."""

    def __init__(self, obs_space, action_space, num_outputs, model_config, name, width):
        config = {**model_config, "fcnet_hiddens": [width]}
        super().__init__(obs_space, action_space, num_outputs, config, name)


def test_custom_trunk_receives_its_keyword_arguments():
    config = {
        **SMALL_ATTENTION,
        "custom_model": FcnetOfWidth,
        "custom_model_config": {"width": 11},
    }

    policy = rlcatalog.build(BOX, TWO_ACTIONS, config)

    assert type(policy.model) is TorchWrapper
    assert policy.model.trunk.num_outputs == 11
    assert policy.act(np.zeros((2, 3), np.float32)).dist_inputs.shape == (2, 2)  # 2 actions


def test_unknown_keyword_argument_of_a_custom_trunk_is_an_error():
    config = {
        **SMALL_ATTENTION,
        "custom_model": FcnetOfWidth,
        "custom_model_config": {"widht": 11},
    }

    with pytest.raises(ConfigError, match="FcnetOfWidth does not accept 'widht'"):
        rlcatalog.build(BOX, TWO_ACTIONS, config)


class RecurrentTrunk(TorchRNN):
    """A model with a state of its own."""

    def __init__(self, obs_space, action_space, num_outputs, model_config, name):
        super().__init__(obs_space, action_space, num_outputs or 3, model_config, name)


@pytest.mark.parametrize("trunk", [RecurrentTrunk, "gtrxl"], ids=["class", "gtrxl"])
def test_recurrent_trunk_is_an_error(trunk):
    with pytest.raises(NotServedError, match=r"is itself recurrent.*AttentionWrapper cannot be"):
        rlcatalog.build(BOX, TWO_ACTIONS, {**SMALL_ATTENTION, "custom_model": trunk}, "torch")


@pytest.fixture
def dueling_model():
    """A transformer of width 6 with the head of a dueling Q network for 2 actions."""
    return default_catalog().model_v2(
        BOX, TWO_ACTIONS, 2, SMALL_ATTENTION, "torch", "q", DuelingQModel
    )


def test_interface_class_reads_the_features_of_the_transformer(dueling_model):
    output, state = dueling_model({"obs": torch.zeros(5, 3)}, [], torch.ones(5))

    memory, used = state
    assert type(dueling_model.inner) is TorchWrapper
    assert dueling_model.num_outputs == 6
    assert dueling_model.A.in_features == 6
    assert dueling_model.get_q_values(output).shape == (5, 2)  # 2 actions
    assert memory.shape == (5, 1, 4, 6)  # 5 rows, 1 unit, 4 slots, width 6
    assert used.shape == (5,)


def test_transformer_below_an_interface_has_no_value(dueling_model):
    dueling_model({"obs": torch.zeros(5, 3)}, [], torch.ones(5))

    assert dueling_model.inner.outputs is None
    with pytest.raises(StaleOutputError, match="it was built as a trunk"):
        dueling_model.inner.value_function()


# --- GTrXLNet, without a trunk --------------------------------------------------------------------


@pytest.mark.parametrize("cls", [TorchNet, TFNet])
def test_gtrxl_net_is_a_custom_model(cls):
    sizes = {
        "num_heads": 3,
        "head_dim": 4,
        "attention_dim": 10,
        "memory_inference": 5,
        "memory_training": 2,
    }
    policy = rlcatalog.build(BOX, TWO_ACTIONS, {"custom_model": cls, "custom_model_config": sizes})
    obs = np.ones((2, 3), np.float32)

    step = policy.act(obs, policy.act(obs).state)

    memory, used = step.state.memory
    assert type(policy.model) is cls
    assert step.value.shape == (2,)
    assert memory.shape == (2, 1, 5, 10)  # 2 rows, 1 unit, 5 slots, width 10
    assert used.shape == (2,)


@pytest.mark.parametrize(("framework", "cls"), [("torch", TorchNet), ("tf", TFNet)])
def test_gtrxl_net_is_registered_as_gtrxl(framework, cls):
    config = {"custom_model": "gtrxl", "custom_model_config": {"num_heads": 3, "head_dim": 4}}

    policy = rlcatalog.build(BOX, TWO_ACTIONS, config, framework)

    assert type(policy.model) is cls


@pytest.mark.parametrize("cls", [TorchNet, TFNet])
def test_gtrxl_net_without_arguments_has_default_sizes(cls):
    sizes = rlcatalog.build(BOX, TWO_ACTIONS, {"custom_model": cls}).model.transformer.sizes

    assert sizes.attention_num_heads == 2
    assert sizes.attention_dim == 64
    assert sizes.slots == 50


@pytest.mark.parametrize("cls", [TorchNet, TFNet])
def test_gtrxl_net_as_trunk_has_its_width_as_outputs(cls):
    assert cls(BOX, TWO_ACTIONS, None, {}, "net", attention_dim=10).num_outputs == 10


@pytest.mark.parametrize("cls", [TorchNet, TFNet])
@pytest.mark.parametrize(
    ("config", "message"),
    [
        pytest.param(
            {"post_fcnet_hiddens": [8]},
            "GTrXLNet does not support post_fcnet_hiddens: it has no dense layers",
            id="post_fcnet_hiddens",
        ),
        pytest.param(
            {"vf_share_layers": False}, "GTrXLNet with vf_share_layers=False", id="separate-value"
        ),
    ],
)
def test_gtrxl_net_rejects_keys_of_dense_layers(cls, config, message):
    with pytest.raises(ConfigError, match=message):
        cls(BOX, TWO_ACTIONS, 2, config, "net")


@pytest.mark.parametrize("cls", [TorchNet, TFNet])
@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        pytest.param({"num_heads": 0}, "attention_num_heads", id="no-heads"),
        pytest.param({"memory_training": -1}, "memory_training", id="negative-memory"),
    ],
)
def test_gtrxl_net_rejects_invalid_sizes(cls, sizes, message):
    with pytest.raises(ConfigError, match=message):
        cls(BOX, TWO_ACTIONS, 2, {}, "net", **sizes)


@pytest.mark.parametrize("cls", [TorchNet, TFNet])
def test_gtrxl_net_rejects_unknown_arguments(cls):
    config = {"custom_model": cls, "custom_model_config": {"heads": 2}}

    with pytest.raises(ConfigError, match="GTrXLNet does not accept 'heads'") as caught:
        rlcatalog.build(BOX, TWO_ACTIONS, config)

    assert "Accepted: num_transformer_units" in str(caught.value)
