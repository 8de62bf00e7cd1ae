"""The transformer in the catalog: its choice, explanation, options, trunks and interfaces."""

from __future__ import annotations

import inspect

import numpy as np
import pytest
import torch
import warm
from gymnasium import spaces
from seed_models import DuelingQModel

import rlcatalog
from rlcatalog import ModelCatalog
from rlcatalog.catalog import default_catalog
from rlcatalog.errors import AmbiguousChoiceError, ConfigError, NotServedError
from rlcatalog_tf import AttentionWrapper as TFWrapper, GTrXLNet as TFNet
from rlcatalog_torch import AttentionWrapper as TorchWrapper, GTrXLNet as TorchNet

pytestmark = pytest.mark.twins

THREE_NUMBERS = spaces.Box(-1, 1, (3,), np.float32)
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


# --- the choice and its explanation ---------------------------------------------------------------


@pytest.mark.parametrize(("framework", "cls"), [("torch", TorchWrapper), ("tf", TFWrapper)])
def test_use_attention_builds_a_transformer_around_a_trunk(framework, cls):
    config = {"use_attention": True, "fcnet_hiddens": [8], "attention_dim": 6}

    model = ModelCatalog.get_model_v2(THREE_NUMBERS, TWO_ACTIONS, 2, config, framework)

    assert type(model) is cls
    assert model.trunk.num_outputs == 8
    assert model.trunk.outputs is None
    parts = {name.split(".")[0] for name in model.get_weights()}
    assert parts == {"trunk", "transformer", "outputs"}


def test_without_use_attention_there_is_no_transformer(framework):
    model = ModelCatalog.get_model_v2(THREE_NUMBERS, TWO_ACTIONS, 2, {}, framework)

    assert type(model).__name__ == "FullyConnectedNetwork"


def test_explanation_says_why_attention_is_chosen():
    memory = rlcatalog.explain(THREE_NUMBERS, TWO_ACTIONS, SMALL_ATTENTION, "torch").as_dict()[
        "memory"
    ]

    assert memory["chosen"] == "attention"
    assert memory["reason"] == "use_attention is set"
    assert "attention_dim" in memory["config_keys"]


def test_explanation_says_why_attention_is_not_chosen():
    memory = rlcatalog.explain(THREE_NUMBERS, TWO_ACTIONS, {}, "torch").as_dict()["memory"]

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

    explanation = rlcatalog.explain(THREE_NUMBERS, TWO_ACTIONS, config, "torch").as_dict()

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


@pytest.mark.skipif(
    "use_lstm" not in rlcatalog.MODEL_DEFAULTS, reason="rlcatalog-lstm is not installed"
)
def test_attention_and_lstm_together_are_an_error():
    with pytest.raises(AmbiguousChoiceError, match=r"'attention' .*'lstm' "):
        rlcatalog.explain(THREE_NUMBERS, TWO_ACTIONS, {"use_attention": True, "use_lstm": True})


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
        rlcatalog.explain(THREE_NUMBERS, TWO_ACTIONS, {**SMALL_ATTENTION, key: value})


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


# --- trunks and interfaces ------------------------------------------------------------------------


def test_recurrent_trunk_is_an_error():
    config = {**SMALL_ATTENTION, "custom_model": "gtrxl"}

    with pytest.raises(NotServedError, match="AttentionWrapper cannot be wrapped") as caught:
        rlcatalog.build(THREE_NUMBERS, TWO_ACTIONS, config)

    assert "GTrXLNet is itself recurrent" in str(caught.value)


def test_interface_class_reads_the_features_of_the_transformer():
    model = default_catalog().model_v2(
        THREE_NUMBERS, TWO_ACTIONS, 2, SMALL_ATTENTION, "torch", "q", DuelingQModel
    )

    output, _ = model({"obs": torch.zeros(5, 3)})

    assert type(model.inner) is TorchWrapper
    assert output.shape == (5, 6)  # 5 rows, the transformer's width
    assert model.get_q_values(output).shape == (5, 2)  # 2 actions


# --- GTrXLNet, without a trunk --------------------------------------------------------------------


@pytest.mark.parametrize("cls", [TorchNet, TFNet])
def test_gtrxl_net_serves_as_custom_model(cls):
    sizes = {"attention_dim": 10, "memory_inference": 5, "memory_training": 2}
    config = {"custom_model": cls, "custom_model_config": sizes}

    policy = rlcatalog.build(THREE_NUMBERS, TWO_ACTIONS, config)

    step = policy.act(np.ones((2, 3), np.float32))
    memory, used = step.state.memory
    assert type(policy.model) is cls
    assert memory.shape == (2, 1, 5, 10)  # 2 rows, 1 unit, 5 slots, width 10
    assert used.tolist() == [1, 1]  # slots after one step


@pytest.mark.parametrize("cls", [TorchNet, TFNet])
def test_default_arguments_are_those_of_rllib(cls):
    parameters = inspect.signature(cls).parameters

    assert parameters["num_transformer_units"].default == 1
    assert parameters["attention_dim"].default == 64
    assert parameters["num_heads"].default == 2
    assert parameters["memory_inference"].default == 50
    assert parameters["memory_training"].default == 50
    assert parameters["head_dim"].default == 32
    assert parameters["position_wise_mlp_dim"].default == 32
    assert parameters["init_gru_gate_bias"].default == 2.0


@pytest.mark.parametrize(("framework", "cls"), [("torch", TorchNet), ("tf", TFNet)])
def test_gtrxl_net_is_registered_as_gtrxl(framework, cls):
    config = {"custom_model": "gtrxl", "custom_model_config": {"num_heads": 3, "head_dim": 4}}

    policy = rlcatalog.build(THREE_NUMBERS, TWO_ACTIONS, config, framework)

    assert type(policy.model) is cls


@pytest.mark.parametrize("cls", [TorchNet, TFNet])
def test_gtrxl_net_as_trunk_has_its_width_as_outputs(cls):
    trunk = cls(THREE_NUMBERS, TWO_ACTIONS, None, {}, "net", attention_dim=10)

    assert trunk.num_outputs == 10


@pytest.mark.parametrize("cls", [TorchNet, TFNet])
@pytest.mark.parametrize(
    ("config", "message"),
    [
        pytest.param(
            {"post_fcnet_hiddens": [8]},
            "GTrXLNet does not support post_fcnet",
            id="post_fcnet_hiddens",
        ),
        pytest.param(
            {"vf_share_layers": False}, "GTrXLNet with vf_share_layers=False", id="separate-value"
        ),
    ],
)
def test_gtrxl_net_rejects_keys_of_dense_layers(cls, config, message):
    with pytest.raises(ConfigError, match=message):
        cls(THREE_NUMBERS, TWO_ACTIONS, 2, config, "net")


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
        cls(THREE_NUMBERS, TWO_ACTIONS, 2, {}, "net", **sizes)
