"""Custom models in PyTorch with all the class headers that RLlib's documentation shows."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
import torch
from builders import sample_observations
from gymnasium import spaces
from gymnasium.spaces import Discrete, Tuple
from torch import nn

import rlcatalog
from rlcatalog import ModelCatalog, ModelV2
from rlcatalog.errors import CatalogError, ModelContractError
from rlcatalog_torch import TorchModelV2

pytestmark = pytest.mark.usefixtures("one_thread", "seeded")

FOUR_FEATURES = spaces.Box(-1, 1, (4,), np.float32)
NESTED = spaces.Dict(
    {"cart": FOUR_FEATURES, "task": Tuple([Discrete(3), spaces.Box(0, 1, (2, 2), np.float32)])}
)
TWO_ACTIONS = Discrete(2)


class Body:
    """What all models do once their bases are initialised."""

    def make_layers(self, num_outputs):
        size = self.obs_space.shape[0]
        if hasattr(self.obs_space, "preprocessor"):
            leaves = self.obs_space.preprocessor.leaves()
            size = sum(leaf.stop - leaf.start for leaf in leaves)
        self._hidden_layers = nn.Sequential(nn.Linear(size, 8), nn.Tanh())
        self._logits = nn.Linear(8, num_outputs)
        self._value_branch = nn.Linear(8, 1)
        self._value_out = None
        self.last_input = None

    def forward(self, input_dict, state, seq_lens):
        self.last_input = input_dict
        features = self._hidden_layers(input_dict["obs_flat"].float())
        self._value_out = self._value_branch(features)
        return self._logits(features), state

    def value_function(self):
        return self._value_out.squeeze(1)


# --- class headers: the order of the bases, and how they are initialised --------------------------


class ModelV2Alone(Body, TorchModelV2):
    def __init__(self, obs_space, action_space, num_outputs, model_config, name):
        TorchModelV2.__init__(self, obs_space, action_space, num_outputs, model_config, name)
        self.make_layers(num_outputs)


class ModelV2AloneBySuper(Body, TorchModelV2):
    def __init__(self, obs_space, action_space, num_outputs, model_config, name):
        super().__init__(obs_space, action_space, num_outputs, model_config, name)
        self.make_layers(num_outputs)


class ModelV2First(Body, TorchModelV2, nn.Module):
    def __init__(self, *args, **kwargs):
        TorchModelV2.__init__(self, *args, **kwargs)
        nn.Module.__init__(self)
        self.make_layers(self.num_outputs)


class ModelV2FirstModuleInitialisedFirst(Body, TorchModelV2, nn.Module):
    def __init__(self, *args, **kwargs):
        nn.Module.__init__(self)
        TorchModelV2.__init__(self, *args, **kwargs)
        self.make_layers(self.num_outputs)


class ModelV2FirstBySuper(Body, TorchModelV2, nn.Module):
    def __init__(self, obs_space, action_space, num_outputs, model_config, name):
        super(ModelV2FirstBySuper, self).__init__(  # noqa: UP008
            obs_space, action_space, num_outputs, model_config, name
        )
        nn.Module.__init__(self)
        self.make_layers(num_outputs)


class ModuleFirst(Body, nn.Module, TorchModelV2):
    def __init__(self, obs_space, action_space, num_outputs, model_config, name):
        nn.Module.__init__(self)
        TorchModelV2.__init__(self, obs_space, action_space, num_outputs, model_config, name)
        self.make_layers(num_outputs)


class ModuleFirstModelV2InitialisedFirst(Body, nn.Module, TorchModelV2):
    def __init__(self, obs_space, action_space, num_outputs, model_config, name):
        TorchModelV2.__init__(self, obs_space, action_space, num_outputs, model_config, name)
        nn.Module.__init__(self)
        self.make_layers(num_outputs)


class ModuleFirstBySuper(Body, nn.Module, TorchModelV2):
    def __init__(self, obs_space, action_space, num_outputs, model_config, name):
        super().__init__()
        TorchModelV2.__init__(self, obs_space, action_space, num_outputs, model_config, name)
        self.make_layers(num_outputs)


class LayersBetweenTheCalls(Body, nn.Module, TorchModelV2):
    def __init__(self, obs_space, action_space, num_outputs, model_config, name):
        nn.Module.__init__(self)
        self.obs_space = obs_space
        self.make_layers(num_outputs)
        TorchModelV2.__init__(self, obs_space, action_space, num_outputs, model_config, name)


class OwnBase(Body, TorchModelV2, nn.Module):
    def __init__(self, obs_space, action_space, num_outputs, model_config, name):
        TorchModelV2.__init__(self, obs_space, action_space, num_outputs, model_config, name)
        nn.Module.__init__(self)


class ThroughOwnBase(OwnBase, nn.Module):
    def __init__(self, *args):
        super().__init__(*args)
        self.make_layers(self.num_outputs)


each_class = pytest.mark.parametrize(
    "cls",
    [
        ModelV2Alone,
        ModelV2AloneBySuper,
        ModelV2First,
        ModelV2FirstModuleInitialisedFirst,
        ModelV2FirstBySuper,
        ModuleFirst,
        ModuleFirstModelV2InitialisedFirst,
        ModuleFirstBySuper,
        LayersBetweenTheCalls,
        ThroughOwnBase,
    ],
)
each_space = pytest.mark.parametrize("space", [FOUR_FEATURES, NESTED], ids=["box", "dict"])


# --- building and training ------------------------------------------------------------------------


@each_class
@each_space
def test_model_finds_its_variables_with_any_class_header(catalog, cls, space):
    policy = rlcatalog.build(space, TWO_ACTIONS, {"custom_model": cls}, catalog=catalog)

    # Three layers have a weight and a bias each.
    assert len(list(policy.model.parameters())) == 6
    assert len(policy.model.variables()) == 6
    assert len(policy.model.trainable_variables()) == 6
    assert set(policy.model.variables(as_dict=True)) == set(policy.model.state_dict())


@each_class
@each_space
def test_policy_evaluates_its_actions_with_any_class_header(catalog, cls, space):
    policy = rlcatalog.build(space, TWO_ACTIONS, {"custom_model": cls}, catalog=catalog)
    obs = sample_observations(space, rows=6)

    step = policy.act(obs)
    evaluation = policy.evaluate({"obs": policy.preprocess(obs), "raw_action": step.raw_action})

    assert step.action.shape == (6,)
    np.testing.assert_allclose(evaluation.logp.detach(), step.logp, rtol=1e-5)
    np.testing.assert_allclose(evaluation.value.detach(), step.value, rtol=1e-5, atol=1e-6)


@each_class
@each_space
def test_gradient_step_makes_actions_more_likely(catalog, cls, space):
    policy = rlcatalog.build(space, TWO_ACTIONS, {"custom_model": cls}, catalog=catalog)
    obs = sample_observations(space, rows=6)
    batch = {"obs": policy.preprocess(obs), "raw_action": policy.act(obs).raw_action}
    optimizer = torch.optim.SGD(policy.model.parameters(), lr=0.1)

    before = policy.evaluate(batch)
    loss = before.value.square().mean() - before.logp.mean()
    loss.backward()
    optimizer.step()

    assert all(parameter.grad is not None for parameter in policy.model.parameters())
    assert policy.evaluate(batch).logp.mean() > before.logp.mean()


# --- calls of ModelV2 -----------------------------------------------------------------------------


def make_nested_model(cls):
    """Create a model of NESTED observations, and return it with six flat observations."""
    preprocessor = ModelCatalog.get_preprocessor_for_space(NESTED)
    model = ModelCatalog.get_model_v2(
        preprocessor.observation_space, TWO_ACTIONS, 2, {"custom_model": cls}, "torch"
    )
    obs_flat = preprocessor.transform_batch(sample_observations(NESTED, rows=6))
    return model, torch.from_numpy(obs_flat)


@each_class
def test_call_is_that_of_model_v2(cls):
    model, _ = make_nested_model(cls)

    assert type(model) is cls
    assert cls.__call__ is ModelV2.__call__
    assert cls.__mro__.index(ModelV2) < cls.__mro__.index(nn.Module)


@each_class
def test_call_runs_hooks_of_the_module(cls):
    model, obs_flat = make_nested_model(cls)
    calls = []
    model.register_forward_pre_hook(lambda module, arguments: calls.append("before"))
    model.register_forward_hook(lambda module, arguments, output: calls.append("after"))

    model({"obs": obs_flat})

    assert calls == ["before", "after"]


@each_class
def test_call_returns_and_stores_the_output(cls):
    model, obs_flat = make_nested_model(cls)

    output, state = model({"obs": obs_flat})

    assert state == []
    assert model.last_output() is output


@each_class
def test_call_restores_nested_observations(cls):
    model, obs_flat = make_nested_model(cls)

    model({"obs": obs_flat})

    restored = model.last_input["obs"]
    assert list(restored) == ["cart", "task"]
    carts = [obs["cart"] for obs in sample_observations(NESTED, rows=6)]
    np.testing.assert_array_equal(restored["cart"], carts)
    assert model.last_input["obs_flat"] is obs_flat


def test_model_v2_alone_is_a_module():
    model = ModelV2Alone(FOUR_FEATURES, TWO_ACTIONS, 2, {}, "name")  # an error in RLlib

    assert isinstance(model, nn.Module)
    assert model.training
    assert model.num_outputs == 2
    assert model.name == "name"
    assert model.framework == "torch"


def test_acting_uses_eval_mode_and_evaluating_train_mode(catalog):
    class RecordsMode(ModelV2First):
        def forward(self, input_dict, state, seq_lens):
            self.mode = {
                "training": self.training,
                "is_training": bool(input_dict["is_training"]),
                "has_gradients": torch.is_grad_enabled(),
            }
            return super().forward(input_dict, state, seq_lens)

    obs = sample_observations(FOUR_FEATURES, rows=6)
    policy = rlcatalog.build(
        FOUR_FEATURES, TWO_ACTIONS, {"custom_model": RecordsMode}, catalog=catalog
    )

    step = policy.act(obs)
    assert set(policy.model.mode.values()) == {False}

    policy.evaluate({"obs": np.stack(obs), "raw_action": step.raw_action})
    assert set(policy.model.mode.values()) == {True}

    policy.act(obs)
    assert set(policy.model.mode.values()) == {False}


# --- errors ---------------------------------------------------------------------------------------


def test_constructor_that_does_not_call_its_base_is_an_error():
    class ForgetsBase(nn.Module, TorchModelV2):
        def __init__(self, obs_space, action_space, num_outputs, model_config, name):
            super().__init__()  # of nn.Module

    with pytest.raises(ModelContractError, match="must call its base's __init__") as caught:
        ModelCatalog.get_model_v2(
            FOUR_FEATURES, TWO_ACTIONS, 2, {"custom_model": ForgetsBase}, "torch"
        )

    assert "ForgetsBase.__init__" in str(caught.value)
    # The error shows how to call the base.
    assert "__init__(obs_space, acti" in str(caught.value)


@pytest.mark.parametrize("cls", [nn.Linear, dict, tf.keras.Model, "my_model.MyModel", print])
def test_custom_model_that_is_not_a_model_is_an_error(cls):
    # Classes of other kinds, unknown names, and modules that do not fit.
    messages = "TorchModelV2|Unknown model|does not fit|no code for framework='torch'"

    with pytest.raises(CatalogError, match=f"{messages}|must return a module"):
        ModelCatalog.get_model_v2(FOUR_FEATURES, TWO_ACTIONS, 2, {"custom_model": cls}, "torch")
