"""The contract on paper: signatures."""

from __future__ import annotations

import inspect

import pytest

import rlcatalog
from rlcatalog import ActionDistribution, ModelCatalog, ModelV2, Policy, Preprocessor, Step
from rlcatalog.frameworks import Evaluation
from rlcatalog_policy import Stepper
from rlcatalog_tf import RecurrentTFModelV2, TFModelV2
from rlcatalog_torch import RecurrentNetwork, TorchModelV2

pytestmark = pytest.mark.usefixtures("one_thread", "seeded")


def signature(function):
    kinds = {
        "POSITIONAL_OR_KEYWORD": "",
        "KEYWORD_ONLY": "*",
        "VAR_KEYWORD": "**",
        "VAR_POSITIONAL": "*args ",
    }
    return [
        f"{kinds[p.kind.name]}{p.name}" + ("" if p.default is p.empty else f"={p.default!r}")
        for p in inspect.signature(function).parameters.values()
    ]


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (
            Policy.act,
            ["self", "obs", "state=None", "*prev_reward=None", "*mask=NOT_GIVEN", "*explore=True"],
        ),
        (Policy.evaluate, ["self", "batch", "*check=True", "*entropy=True"]),
        (Policy.values, ["self", "encoded", "state=None", "*prev_reward=None"]),
        (Policy.stepper, ["self", "n", "autoreset=None"]),
        (Policy.to, ["self", "device"]),
        (Policy.save, ["self", "directory"]),
        (
            Stepper.step,
            ["self", "obs", "*done=None", "*prev_reward=None", "*mask=NOT_GIVEN", "*explore=True"],
        ),
        (
            rlcatalog.build,
            [
                "obs_space=None",
                "action_space=None",
                "config=None",
                "framework=None",
                "*model=None",
                "*env=None",
                "*catalog=None",
                "*pins=None",
                "*defaults=None",
            ],
        ),
        (
            rlcatalog.load,
            [
                "directory",
                "*framework=None",
                "*model=None",
                "*observation_space=None",
                "*action_space=None",
                "*catalog=None",
            ],
        ),
        (rlcatalog.restore_original_dimensions, ["obs", "obs_space", "tensorlib='numpy'"]),
        (
            ModelV2.__init__,
            [
                "self",
                "obs_space",
                "action_space",
                "num_outputs",
                "model_config",
                "name",
                "framework",
            ],
        ),
        (ModelV2.__call__, ["self", "input_dict", "state=None", "seq_lens=None"]),
        (ModelV2.forward, ["self", "input_dict", "state", "seq_lens"]),
        (ModelV2.value_function, ["self"]),
        (ModelV2.custom_loss, ["self", "policy_loss", "loss_inputs"]),
        (ModelV2.metrics, ["self"]),
        (ModelV2.get_initial_state, ["self"]),
        (
            TFModelV2.__init__,
            ["self", "obs_space", "action_space", "num_outputs", "model_config", "name"],
        ),
        (TFModelV2.register_variables, ["self", "variables"]),
        (TFModelV2.variables, ["self", "as_dict=False"]),
        (TFModelV2.trainable_variables, ["self", "as_dict=False"]),
        (TorchModelV2.variables, ["self", "as_dict=False"]),
        (TorchModelV2.trainable_variables, ["self", "as_dict=False"]),
        (RecurrentNetwork.forward_rnn, ["self", "inputs", "state", "seq_lens"]),
        (RecurrentTFModelV2.forward_rnn, ["self", "inputs", "state", "seq_lens"]),
        (Preprocessor.transform, ["self", "observation"]),
        (Preprocessor.write, ["self", "observation", "array", "offset"]),
        (Preprocessor._init_shape, ["self", "obs_space", "options"]),
        (ActionDistribution.__init__, ["self", "inputs", "model=None"]),
        (ActionDistribution.logp, ["self", "actions"]),
        (ActionDistribution.kl, ["self", "other"]),
    ],
)
def test_a_signature(function, expected):
    assert signature(function) == expected


def test_the_constructor_of_a_torch_model_takes_rllibs_arguments_in_order():
    names = [name.partition("=")[0] for name in signature(TorchModelV2.__init__)]
    assert names == ["self", "obs_space", "action_space", "num_outputs", "model_config", "name"]


@pytest.mark.parametrize(
    ("method", "names"),
    [
        ("get_action_dist", ["action_space", "config", "dist_type=None", "framework", "**kwargs"]),
        (
            "get_model_v2",
            [
                "obs_space",
                "action_space",
                "num_outputs",
                "model_config",
                "framework",
                "name='default_model'",
                "model_interface=None",
                "default_model=None",
                "**model_kwargs",
            ],
        ),
        ("get_preprocessor", ["env", "options=None", "include_multi_binary=False"]),
        (
            "get_preprocessor_for_space",
            ["observation_space", "options=None", "include_multi_binary=False"],
        ),
        ("register_custom_model", ["model_name", "model_class"]),
        ("register_custom_action_dist", ["action_dist_name", "action_dist_class"]),
        ("register_custom_preprocessor", ["preprocessor_name", "preprocessor_class"]),
    ],
)
def test_the_model_catalog_keeps_rllibs_positional_order(method, names):
    assert isinstance(inspect.getattr_static(ModelCatalog, method), staticmethod)
    # The framework may be left to the classes of the config here, and a config left out.
    found = [
        name.partition("=")[0] if name.startswith(("framework", "config")) else name
        for name in signature(getattr(ModelCatalog, method))
    ]
    assert found == names


def test_a_step_is_a_tuple_of_six():
    assert Step._fields == ("action", "raw_action", "logp", "value", "dist_inputs", "state")
    assert Evaluation.__match_args__ == ("logp", "entropy", "entropy_kind", "value", "dist", "kl")
