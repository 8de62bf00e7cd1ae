"""The transformer through the catalog: chosen, explained, refused."""

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

BOX, TWO = spaces.Box(-1, 1, (3,), np.float32), spaces.Discrete(2)
SMALL = {
    "use_attention": True,
    "fcnet_hiddens": [8],
    "attention_dim": 6,
    "attention_head_dim": 4,
    "attention_memory_inference": 4,
    "attention_memory_training": 4,
}
frameworks = pytest.mark.parametrize("framework", ["torch", "tf"])


@frameworks
def test_use_attention_chooses_it(framework):
    model = ModelCatalog.get_model_v2(BOX, TWO, 2, SMALL, framework)
    assert type(model) is {"torch": TorchWrapper, "tf": TFWrapper}[framework]
    assert model.trunk.num_outputs == 8
    assert model.trunk.outputs is None
    names = {name.split(".")[0] for name in model.get_weights()}
    assert names == {"trunk", "transformer", "outputs"}
    assert (
        type(ModelCatalog.get_model_v2(BOX, TWO, 2, {}, framework)).__name__
        == "FullyConnectedNetwork"
    )


def test_it_is_explained():
    config = {
        **SMALL,
        "attention_num_transformer_units": 2,
        "attention_num_heads": 3,
        "attention_use_n_prev_actions": 3,
        "attention_use_n_prev_rewards": 1,
    }
    found = rlcatalog.explain(BOX, TWO, config, "torch").as_dict()
    assert (found["memory"]["chosen"], found["memory"]["reason"]) == (
        "attention",
        "use_attention is set",
    )
    assert "attention_dim" in found["memory"]["config_keys"]
    stages = {
        s["stage"]: s["shape"] for s in found["shapes"] if s["stage"].startswith("attention: ")
    }
    assert stages == {
        "attention: features, 3 past actions, 1 past rewards": [15],
        "attention: input (linear)": [6],
        "attention: unit 1 (3 x 4)": [6],
        "attention: unit 2 (3 x 4)": [6],
        "attention: value": [],
        "attention: logits (linear)": [2],
    }
    without = rlcatalog.explain(BOX, TWO, {}, "torch").as_dict()["memory"]
    assert without["chosen"] is None
    assert ("attention", "use_attention is not set") in [
        (c["name"], c["reason"]) for c in without["candidates"]
    ]


REFUSED = {
    "attention_num_heads": (0, "'attention_num_heads'"),
    "attention_memory_training": (-1, "'attention_memory_training'"),
    "attention_dim": (6.5, "'attention_dim'"),
}


@pytest.mark.parametrize("key", REFUSED)
def test_what_has_no_place_is_refused_before_anything_is_built(key):
    value, message = REFUSED[key]
    with pytest.raises(ConfigError, match=message):
        rlcatalog.explain(BOX, TWO, {**SMALL, key: value})
    with pytest.raises(ConfigError, match="free_log_std needs an even number of outputs"):
        ModelCatalog.get_model_v2(BOX, TWO, 3, {**SMALL, "free_log_std": True}, "torch")


@pytest.mark.parametrize("framework", ["torch", "tf"])
def test_no_final_linear_has_no_effect_and_one_warning(framework):
    plain = rlcatalog.build(BOX, TWO, SMALL, framework)
    with pytest.warns(UnreadKeysWarning, match="no_final_linear"):
        policy = rlcatalog.build(BOX, TWO, {**SMALL, "no_final_linear": True}, framework)
    policy.model.set_weights(plain.model.get_weights())
    obs = np.random.default_rng(0).normal(size=(3, *BOX.shape)).astype(np.float32)
    for one, other in zip(
        plain.act(obs, explore=False)[2:5], policy.act(obs, explore=False)[2:5], strict=True
    ):
        np.testing.assert_array_equal(one, other)


def test_refusing_imports_no_framework(tmp_path):
    code = (
        "import sys, gymnasium as gym, rlcatalog\n"
        "try: rlcatalog.build(gym.spaces.Box(-1, 1, (3,)), gym.spaces.Discrete(2),"
        " {'use_attention': True, 'attention_num_heads': 0})\n"
        "except ValueError: print(sorted({'torch', 'tensorflow'} & set(sys.modules)))"
    )
    done = warm.run(["-c", code], tmp_path, frameworks=False)
    assert done.stdout.strip() == "[]"


class OtherConfig(msgspec.Struct, frozen=True, kw_only=True):
    other_memory: bool = False


class OtherPlugin:
    """A second memory, of another package."""

    @rlcatalog.hookimpl
    def rlcatalog_models(self):
        why = Match(Rank.SPECIFIC, "other_memory is set")
        return [
            ModelSpec(
                "other", {"torch": "nowhere:Other"}, "a memory", match=lambda r: why, slot="memory"
            )
        ]


def test_two_memories_switched_on_at_once_are_an_error():
    installed = (
        "rlcatalog-attention",
        "rlcatalog-fcnet",
        "rlcatalog-categorical",
        "rlcatalog-preprocessors",
    )
    catalog = isolated_catalog(PluginEntryPoint(OtherPlugin(), "made-up-other"), *installed)
    # Memories of packages outside the public index are not asked.
    candidates = catalog.explain(BOX, TWO, SMALL).as_dict()["memory"]["candidates"]
    assert [(c["name"], c["rank"]) for c in candidates[:2]] == [
        ("attention", "SPECIFIC"),
        ("other", None),
    ]
    assert (
        catalog.explain(BOX, TWO, {**SMALL, "use_attention": False}).as_dict()["memory"]["chosen"]
        is None
    )
    if "use_lstm" in rlcatalog.MODEL_DEFAULTS:
        with pytest.raises(AmbiguousChoiceError, match=r"'attention' .*'lstm' "):
            rlcatalog.explain(BOX, TWO, {**SMALL, "use_lstm": True})


class Sized(FullyConnectedNetwork):
    """A custom trunk with a keyword argument."""

    def __init__(self, obs_space, action_space, num_outputs, model_config, name, width):
        super().__init__(
            obs_space, action_space, num_outputs, {**model_config, "fcnet_hiddens": [width]}, name
        )


def test_around_a_custom_trunk_with_keyword_arguments():
    config = {**SMALL, "custom_model": Sized, "custom_model_config": {"width": 11}}
    policy = rlcatalog.build(BOX, TWO, config)
    assert type(policy.model) is TorchWrapper
    assert policy.model.trunk.num_outputs == 11
    assert policy.act(np.zeros((2, 3), np.float32)).dist_inputs.shape == (2, 2)
    with pytest.raises(ConfigError, match="Sized does not accept 'widht'"):
        rlcatalog.build(BOX, TWO, {**config, "custom_model_config": {"widht": 11}})


def test_a_recurrent_trunk_is_refused():
    class Trunk(TorchRNN):
        def __init__(self, obs_space, action_space, num_outputs, model_config, name):
            super().__init__(obs_space, action_space, num_outputs or 3, model_config, name)

    for trunk in (Trunk, "gtrxl"):
        with pytest.raises(
            NotServedError, match=r"is itself recurrent.*AttentionWrapper cannot be"
        ):
            rlcatalog.build(BOX, TWO, {**SMALL, "custom_model": trunk}, "torch")


def test_as_a_trunk_for_an_interface():
    model = default_catalog().model_v2(BOX, TWO, 2, SMALL, "torch", "q", DuelingQModel)
    assert type(model.inner) is TorchWrapper
    assert model.A.in_features == model.num_outputs == 6
    assert model.inner.outputs is None
    output, state = model({"obs": torch.zeros(5, 3)}, [], torch.ones(5))
    assert model.get_q_values(output).shape == (5, 2)
    assert [part.shape for part in state] == [(5, 1, 4, 6), (5,)]
    with pytest.raises(StaleOutputError, match="it was built as a trunk"):
        model.inner.value_function()


@frameworks
def test_free_log_std_is_honoured(framework):
    policy = rlcatalog.build(
        BOX, spaces.Box(-1, 1, (2,)), {**SMALL, "free_log_std": True}, framework
    )
    weights = policy.model.get_weights()
    assert weights["outputs.logits.weight"].shape == (2, 6)
    weights["outputs.free_log_std.log_std"][:] = [0.25, -0.5]
    policy.model.set_weights(weights)
    found = policy.act(np.ones((3, 3), np.float32)).dist_inputs[:, 2:]
    np.testing.assert_array_equal(found, np.tile(np.float32([0.25, -0.5]), (3, 1)))


@pytest.mark.parametrize("cls", [TorchNet, TFNet])
def test_the_net_by_itself(cls):
    sizes = {
        "num_heads": 3,
        "head_dim": 4,
        "attention_dim": 10,
        "memory_inference": 5,
        "memory_training": 2,
    }
    policy = rlcatalog.build(BOX, TWO, {"custom_model": cls, "custom_model_config": sizes})
    assert type(policy.model) is cls
    obs = np.ones((2, 3), np.float32)
    step = policy.act(obs, policy.act(obs).state)
    assert [part.shape for part in step.state.memory] == [(2, 1, 5, 10), (2,)]
    assert step.value.shape == (2,)
    named = rlcatalog.build(
        BOX, TWO, {"custom_model": "gtrxl", "custom_model_config": sizes}, policy.framework
    )
    assert type(named.model) is cls
    default = rlcatalog.build(BOX, TWO, {"custom_model": cls}).model.transformer.sizes
    assert (default.attention_num_heads, default.attention_dim, default.slots) == (2, 64, 50)
    assert cls(BOX, TWO, None, {}, "net", attention_dim=10).num_outputs == 10


@pytest.mark.parametrize("cls", [TorchNet, TFNet])
def test_the_net_by_itself_refuses_what_it_has_no_place_for(cls):
    for config, message in (
        (
            {"post_fcnet_hiddens": [8]},
            "GTrXLNet does not support post_fcnet_hiddens: it has no dense layers",
        ),
        ({"vf_share_layers": False}, "GTrXLNet with vf_share_layers=False"),
    ):
        with pytest.raises(ConfigError, match=message):
            cls(BOX, TWO, 2, config, "net")
    for sizes, message in (
        ({"num_heads": 0}, "attention_num_heads"),
        ({"memory_training": -1}, "memory_training"),
    ):
        with pytest.raises(ConfigError, match=message):
            cls(BOX, TWO, 2, {}, "net", **sizes)
    with pytest.raises(
        ConfigError, match=r"GTrXLNet does not accept 'heads'.*Accepted: num_transformer_units"
    ):
        rlcatalog.build(BOX, TWO, {"custom_model": cls, "custom_model_config": {"heads": 2}})
