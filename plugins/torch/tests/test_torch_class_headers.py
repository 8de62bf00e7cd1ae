"""The contract on paper: the class headers that the editions of RLlib's page let people write in
PyTorch.
"""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
import torch
from gymnasium import spaces
from gymnasium.spaces import Discrete, Tuple
from torch import nn

import rlcatalog
from rlcatalog import ModelCatalog, ModelV2, one_hot
from rlcatalog.errors import CatalogError, ModelContractError
from rlcatalog_torch import TorchModelV2

pytestmark = pytest.mark.usefixtures("one_thread", "seeded")

BOX, TWO = spaces.Box(-1, 1, (4,), np.float32), Discrete(2)
NESTED = spaces.Dict(
    {"cart": BOX, "task": Tuple([Discrete(3), spaces.Box(0, 1, (2, 2), np.float32)])}
)


def observations(space=BOX, n=6, seed=0):
    space.seed(seed)
    return [space.sample() for _ in range(n)]


class Body:
    """What the examples do once their bases are initialised."""

    def make_layers(self, num_outputs):
        size = (
            sum(leaf.stop - leaf.start for leaf in self.obs_space.preprocessor.leaves())
            if hasattr(self.obs_space, "preprocessor")
            else self.obs_space.shape[0]
        )
        self._hidden_layers = nn.Sequential(nn.Linear(size, 8), nn.Tanh())
        self._logits, self._value_branch = nn.Linear(8, num_outputs), nn.Linear(8, 1)
        self._value_out, self.seen = None, None

    def forward(self, input_dict, state, seq_lens):
        self.seen = input_dict
        features = self._hidden_layers(input_dict["obs_flat"].float())
        self._value_out = self._value_branch(features)
        return self._logits(features), state

    def value_function(self):
        return self._value_out.squeeze(1)


def model_v2_alone():
    class CustomTorchModel(Body, TorchModelV2):
        def __init__(self, obs_space, action_space, num_outputs, model_config, name):
            TorchModelV2.__init__(self, obs_space, action_space, num_outputs, model_config, name)
            self.make_layers(num_outputs)

    return CustomTorchModel


def model_v2_alone_by_super():
    class CustomTorchModel(Body, TorchModelV2):
        def __init__(self, obs_space, action_space, num_outputs, model_config, name):
            super().__init__(obs_space, action_space, num_outputs, model_config, name)
            self.make_layers(num_outputs)

    return CustomTorchModel


def model_v2_first():
    class MyModelClass(Body, TorchModelV2, nn.Module):
        def __init__(self, *args, **kwargs):
            TorchModelV2.__init__(self, *args, **kwargs)
            nn.Module.__init__(self)
            self.make_layers(self.num_outputs)

    return MyModelClass


def model_v2_first_module_initialised_first():
    class MyModelClass(Body, TorchModelV2, nn.Module):
        def __init__(self, *args, **kwargs):
            nn.Module.__init__(self)
            TorchModelV2.__init__(self, *args, **kwargs)
            self.make_layers(self.num_outputs)

    return MyModelClass


def model_v2_first_by_super():
    class MyModelClass(Body, TorchModelV2, nn.Module):
        def __init__(self, obs_space, action_space, num_outputs, model_config, name):
            super(MyModelClass, self).__init__(  # noqa: UP008
                obs_space, action_space, num_outputs, model_config, name
            )
            nn.Module.__init__(self)
            self.make_layers(num_outputs)

    return MyModelClass


def module_first():
    class CustomTorchModel(Body, nn.Module, TorchModelV2):
        def __init__(self, obs_space, action_space, num_outputs, model_config, name):
            nn.Module.__init__(self)
            TorchModelV2.__init__(self, obs_space, action_space, num_outputs, model_config, name)
            self.make_layers(num_outputs)

    return CustomTorchModel


def module_first_model_v2_initialised_first():
    class CustomTorchModel(Body, nn.Module, TorchModelV2):
        def __init__(self, obs_space, action_space, num_outputs, model_config, name):
            TorchModelV2.__init__(self, obs_space, action_space, num_outputs, model_config, name)
            nn.Module.__init__(self)
            self.make_layers(num_outputs)

    return CustomTorchModel


def module_first_by_super():
    class CustomTorchModel(Body, nn.Module, TorchModelV2):
        def __init__(self, obs_space, action_space, num_outputs, model_config, name):
            super().__init__()
            TorchModelV2.__init__(self, obs_space, action_space, num_outputs, model_config, name)
            self.make_layers(num_outputs)

    return CustomTorchModel


def layers_between_the_two_calls():
    class CustomTorchModel(Body, nn.Module, TorchModelV2):
        def __init__(self, obs_space, action_space, num_outputs, model_config, name):
            nn.Module.__init__(self)
            self.obs_space = obs_space
            self.make_layers(num_outputs)
            TorchModelV2.__init__(self, obs_space, action_space, num_outputs, model_config, name)

    return CustomTorchModel


def through_a_base_of_ones_own():
    class Base(Body, TorchModelV2, nn.Module):
        def __init__(self, obs_space, action_space, num_outputs, model_config, name):
            TorchModelV2.__init__(self, obs_space, action_space, num_outputs, model_config, name)
            nn.Module.__init__(self)

    class CustomTorchModel(Base, nn.Module):
        def __init__(self, *args):
            super().__init__(*args)
            self.make_layers(self.num_outputs)

    return CustomTorchModel


HEADERS = [
    model_v2_alone, model_v2_alone_by_super, model_v2_first,
    model_v2_first_module_initialised_first, model_v2_first_by_super, module_first,
    module_first_model_v2_initialised_first, module_first_by_super, layers_between_the_two_calls,
    through_a_base_of_ones_own,
]  # fmt: skip
headers = pytest.mark.parametrize("header", HEADERS, ids=lambda header: header.__name__)


@headers
@pytest.mark.parametrize("space", [BOX, NESTED], ids=["box", "dict"])
def test_a_class_header_builds_acts_and_trains(catalog, header, space):
    policy = rlcatalog.build(space, TWO, {"custom_model": header()}, catalog=catalog)
    assert policy.framework == "torch"
    model = policy.model
    assert isinstance(model, nn.Module)
    assert isinstance(model, ModelV2)
    assert len(list(model.parameters())) == 6
    assert len(model.variables()) == len(model.trainable_variables()) == 6
    assert set(model.variables(as_dict=True)) == set(model.state_dict())
    obs = observations(space)
    step = policy.act(obs)
    assert step.action.shape == (6,)
    # One gradient step makes what was done more likely.
    batch = {"obs": policy.preprocess(obs), "raw_action": step.raw_action}
    found = policy.evaluate(batch)
    np.testing.assert_allclose(found.logp.detach(), step.logp, rtol=1e-5)
    np.testing.assert_allclose(found.value.detach(), step.value, rtol=1e-5, atol=1e-6)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    (found.value.square().mean() - found.logp.mean()).backward()
    assert all(parameter.grad is not None for parameter in model.parameters())
    optimizer.step()
    assert policy.evaluate(batch).logp.mean() > found.logp.mean()


@headers
def test_the_call_of_model_v2_is_never_bypassed(header):
    cls = header()
    model = ModelCatalog.get_model_v2(
        ModelCatalog.get_preprocessor_for_space(NESTED).observation_space,
        TWO,
        2,
        {"custom_model": cls},
        "torch",
    )
    assert type(model) is cls
    assert cls.__call__ is ModelV2.__call__
    assert cls.__mro__.index(ModelV2) < cls.__mro__.index(nn.Module)
    ran = []
    model.register_forward_pre_hook(lambda module, arguments: ran.append("before"))
    model.register_forward_hook(lambda module, arguments, output: ran.append("after"))
    obs = observations(NESTED)
    flat = torch.from_numpy(ModelCatalog.get_preprocessor_for_space(NESTED).transform_batch(obs))
    given = {"obs": flat}
    output, state = model(given)
    assert ran == ["before", "after"]
    assert state == []
    assert model.last_output() is output
    assert given == {"obs": flat}
    assert model.seen["obs_flat"] is flat
    assert list(model.seen["obs"]) == ["cart", "task"]
    np.testing.assert_array_equal(model.seen["obs"]["cart"], np.stack([row["cart"] for row in obs]))
    np.testing.assert_array_equal(
        model.seen["obs"]["task"][0], one_hot([row["task"][0] for row in obs], 3)
    )
    np.testing.assert_array_equal(
        model.seen["obs"]["task"][1], np.stack([row["task"][1] for row in obs])
    )


def test_a_model_without_the_nn_module_half_is_one_too():
    # RLlib refused such a class; here TorchModelV2 brings the other half.
    model = model_v2_alone()(BOX, TWO, 2, {}, "name")
    assert isinstance(model, nn.Module)
    assert model.training
    assert (model.num_outputs, model.name, model.framework) == (2, "name", "torch")


def test_a_constructor_that_forgets_its_base_is_told():
    class Forgetful(nn.Module, TorchModelV2):
        def __init__(self, obs_space, action_space, num_outputs, model_config, name):
            super().__init__()

    with pytest.raises(
        ModelContractError,
        match=r"Forgetful\.__init__ must call its base's __init__\(obs_space, acti",
    ):
        ModelCatalog.get_model_v2(BOX, TWO, 2, {"custom_model": Forgetful}, "torch")


#: Of a class that is neither a model's nor a module's, a name, and modules that do not fit.
WHY_NOT = (
    "TorchModelV2|Unknown model|does not fit|no code for framework='torch'|must return a module"
)


@pytest.mark.parametrize("cls", [nn.Linear, dict, tf.keras.Model, "my_model.MyModel", print])
def test_what_is_no_model_is_refused(cls):
    with pytest.raises(CatalogError, match=WHY_NOT):
        ModelCatalog.get_model_v2(BOX, TWO, 2, {"custom_model": cls}, "torch")


def test_acting_switches_to_inference_and_evaluating_to_training(catalog):
    class Modes(model_v2_first()):
        def forward(self, input_dict, state, seq_lens):
            modes.append((self.training, bool(input_dict["is_training"]), torch.is_grad_enabled()))
            return super().forward(input_dict, state, seq_lens)

    modes = []
    policy = rlcatalog.build(BOX, TWO, {"custom_model": Modes}, catalog=catalog)
    step = policy.act(observations())
    policy.evaluate({"obs": np.stack(observations()), "raw_action": step.raw_action})
    policy.act(observations())
    assert modes == [(False, False, False), (True, True, True), (False, False, False)]
