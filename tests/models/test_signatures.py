"""Signatures of public functions and methods."""

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


def read_signature(function):
    """Return the signature of a function without annotations, such as `(obs, *, mask=None)`."""
    signature = inspect.signature(function)
    parameters = []
    for parameter in signature.parameters.values():
        parameters.append(parameter.replace(annotation=parameter.empty))
    return str(signature.replace(parameters=parameters, return_annotation=signature.empty))


SIGNATURES = {
    Policy.act: "(self, obs, state=None, *, prev_reward=None, mask=NOT_GIVEN, explore=True)",
    Policy.evaluate: "(self, batch, *, check=True, entropy=True)",
    Policy.values: "(self, encoded, state=None, *, prev_reward=None)",
    Policy.stepper: "(self, n, autoreset=None)",
    Policy.to: "(self, device)",
    Policy.save: "(self, directory)",
    Stepper.step: ("(self, obs, *, done=None, prev_reward=None, mask=NOT_GIVEN, explore=True)"),
    rlcatalog.build: (
        "(obs_space=None, action_space=None, config=None, framework=None,"
        " *, model=None, memory=None, env=None, catalog=None, pins=None, defaults=None)"
    ),
    rlcatalog.load: (
        "(directory, *, framework=None, model=None, memory=None, critic=None,"
        " observation_space=None, action_space=None, catalog=None)"
    ),
    rlcatalog.restore_original_dimensions: "(obs, obs_space, tensorlib='numpy')",
    ModelV2.__init__: (
        "(self, obs_space, action_space, num_outputs, model_config, name, framework)"
    ),
    ModelV2.__call__: "(self, input_dict, state=None, seq_lens=None)",
    ModelV2.forward: "(self, input_dict, state, seq_lens)",
    ModelV2.value_function: "(self)",
    ModelV2.custom_loss: "(self, policy_loss, loss_inputs)",
    ModelV2.metrics: "(self)",
    ModelV2.get_initial_state: "(self)",
    TFModelV2.__init__: "(self, obs_space, action_space, num_outputs, model_config, name)",
    TFModelV2.register_variables: "(self, variables)",
    TFModelV2.variables: "(self, as_dict=False)",
    TFModelV2.trainable_variables: "(self, as_dict=False)",
    TorchModelV2.variables: "(self, as_dict=False)",
    TorchModelV2.trainable_variables: "(self, as_dict=False)",
    RecurrentNetwork.forward_rnn: "(self, inputs, state, seq_lens)",
    RecurrentTFModelV2.forward_rnn: "(self, inputs, state, seq_lens)",
    Preprocessor.transform: "(self, observation)",
    Preprocessor.write: "(self, observation, array, offset)",
    Preprocessor._init_shape: "(self, obs_space, options)",
    ActionDistribution.__init__: "(self, inputs, model=None)",
    ActionDistribution.logp: "(self, actions)",
    ActionDistribution.kl: "(self, other)",
}


@pytest.mark.parametrize(
    ("function", "signature"),
    SIGNATURES.items(),
    ids=[function.__qualname__ for function in SIGNATURES],
)
def test_signature_is_stable(function, signature):
    assert read_signature(function) == signature


def test_torch_model_takes_arguments_in_rllib_order():
    names = list(inspect.signature(TorchModelV2.__init__).parameters)
    assert names == ["self", "obs_space", "action_space", "num_outputs", "model_config", "name"]


#: Unlike in RLlib, the framework and the config have defaults.
SIGNATURES_OF_MODEL_CATALOG = {
    "get_action_dist": "(action_space, config=None, dist_type=None, framework=None, **kwargs)",
    "get_model_v2": (
        "(obs_space, action_space, num_outputs, model_config, framework=None,"
        " name='default_model', model_interface=None, default_model=None, **model_kwargs)"
    ),
    "get_preprocessor": "(env, options=None, include_multi_binary=False)",
    "get_preprocessor_for_space": ("(observation_space, options=None, include_multi_binary=False)"),
    "register_custom_model": "(model_name, model_class)",
    "register_custom_action_dist": "(action_dist_name, action_dist_class)",
    "register_custom_preprocessor": "(preprocessor_name, preprocessor_class)",
}


@pytest.mark.parametrize(("method", "signature"), SIGNATURES_OF_MODEL_CATALOG.items())
def test_model_catalog_takes_arguments_in_rllib_order(method, signature):
    assert isinstance(inspect.getattr_static(ModelCatalog, method), staticmethod)
    assert read_signature(getattr(ModelCatalog, method)) == signature


def test_step_has_six_fields():
    assert Step._fields == ("action", "raw_action", "logp", "value", "dist_inputs", "state")


def test_evaluation_has_six_fields():
    assert Evaluation.__match_args__ == ("logp", "entropy", "entropy_kind", "value", "dist", "kl")
