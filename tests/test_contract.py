"""The contract on paper: what the five editions of RLlib's page let people write, and what is promised beside.

Class headers and code samples are the page's, its `...` filled in and its imports changed.
"""

from __future__ import annotations

import contextlib
import copy
import inspect
import sys
from email.message import Message
from types import ModuleType, SimpleNamespace

import gymnasium as gym
import msgspec
import numpy as np
import pytest
import tensorflow as tf
import torch
from gymnasium import spaces
from gymnasium.spaces import Discrete, Tuple
from scipy import special, stats
from torch import nn

import rlcatalog
from rlcatalog import (
    ActionDistribution,
    Catalog,
    Match,
    ModelCatalog,
    ModelSpec,
    ModelV2,
    NoMatch,
    Policy,
    Preprocessor,
    Rank,
    Step,
    TupleActions,
    one_hot,
)
from rlcatalog.adapters import ActionAdapter
from rlcatalog.catalog import default_catalog
from rlcatalog.discovery import scan
from rlcatalog.errors import (
    ActionMaskError,
    CatalogError,
    ConfigError,
    ModelContractError,
    NotServedError,
    StaleOutputError,
)
from rlcatalog.policy import Evaluation, Stepper
from rlcatalog.spaceinfo import SpaceInfo
from rlcatalog.tf import Categorical as TFCategorical
from rlcatalog.tf import FullyConnectedNetwork as TFFullyConnectedNetwork
from rlcatalog.tf import RecurrentTFModelV2, TFModelV2, normc_initializer
from rlcatalog.torch import Categorical, FullyConnectedNetwork, RecurrentNetwork, TorchModelV2

BOX, TWO = spaces.Box(-1, 1, (4,), np.float32), Discrete(2)
NESTED = spaces.Dict({"cart": BOX, "task": Tuple([Discrete(3), spaces.Box(0, 1, (2, 2), np.float32)])})
SMALL = {"fcnet_hiddens": [8]}


def observations(space=BOX, n=6, seed=0):
    space.seed(seed)
    return [space.sample() for _ in range(n)]


@pytest.fixture(autouse=True, scope="module")
def _one_thread():
    """Small tensors gain nothing from a second thread."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(autouse=True)
def _seeded():
    torch.manual_seed(0)
    tf.random.set_seed(0)


@pytest.fixture
def catalog():
    return Catalog(scan(), environ={})


@pytest.fixture
def default():
    """A default catalog of this test's own."""
    default_catalog.cache_clear()
    yield default_catalog()
    default_catalog.cache_clear()


# --- class headers in PyTorch ----------------------------------------------------------------------------------------


class Body:
    """What the examples do once their bases are initialised."""

    def make_layers(self, num_outputs):
        size = sum(leaf.stop - leaf.start for leaf in self.obs_space.preprocessor.leaves()) if hasattr(
            self.obs_space, "preprocessor") else self.obs_space.shape[0]  # fmt: skip
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
            super(MyModelClass, self).__init__(obs_space, action_space, num_outputs, model_config, name)  # noqa: UP008
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
    model_v2_alone, model_v2_alone_by_super, model_v2_first, model_v2_first_module_initialised_first,
    model_v2_first_by_super, module_first, module_first_model_v2_initialised_first, module_first_by_super,
    layers_between_the_two_calls, through_a_base_of_ones_own,
]  # fmt: skip
headers = pytest.mark.parametrize("header", HEADERS, ids=lambda header: header.__name__)


@headers
@pytest.mark.parametrize("space", [BOX, NESTED], ids=["box", "dict"])
def test_a_class_header_builds_acts_and_trains(catalog, header, space):
    policy = catalog.build(space, TWO, {"custom_model": header()})
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
        ModelCatalog.get_preprocessor_for_space(NESTED).observation_space, TWO, 2, {"custom_model": cls}, "torch"
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
    np.testing.assert_array_equal(model.seen["obs"]["task"][0], one_hot([row["task"][0] for row in obs], 3))
    np.testing.assert_array_equal(model.seen["obs"]["task"][1], np.stack([row["task"][1] for row in obs]))


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

    with pytest.raises(ModelContractError, match=r"Forgetful\.__init__ must call its base's __init__\(obs_space, acti"):
        ModelCatalog.get_model_v2(BOX, TWO, 2, {"custom_model": Forgetful}, "torch")


@pytest.mark.parametrize("cls", [nn.Linear, dict, tf.keras.Model, "my_model.MyModel", print])
def test_what_is_no_model_is_refused(cls):
    with pytest.raises(CatalogError, match=r"TorchModelV2|Unknown model"):
        ModelCatalog.get_model_v2(BOX, TWO, 2, {"custom_model": cls}, "torch")


# --- ModelV2.__call__ ------------------------------------------------------------------------------------------------


class Recording(TorchModelV2):
    """Returns what it is told to, and keeps what it was given."""

    answer = None

    def forward(self, input_dict, state, seq_lens):
        self.given = input_dict, state, seq_lens
        input_dict["mine"] = 1
        return (torch.zeros(2, 1), []) if self.answer is None else self.answer


def recording(space=BOX, answer=None):
    model = Recording(space, TWO, 1, {}, "recording")
    model.answer = answer
    return model


def test_state_and_lengths_may_stand_in_the_input():
    model, obs = recording(), torch.zeros(2, 4)
    h, c, lengths = torch.ones(2, 3), torch.ones(2, 5), torch.tensor([1, 1])
    _, state = model({"obs": obs, "state_in_0": h, "state_in_1": c, "seq_lens": lengths})
    assert model.given[1][0] is h
    assert model.given[1][1] is c
    assert model.given[2] is lengths
    assert state == [h, c]  # forward() returned none: the given one
    model({"obs": obs, "state_in_0": h}, [c], torch.tensor([2]))
    assert model.given[1] == [c]
    assert model.given[2].tolist() == [2]


def test_forward_cannot_change_the_callers_input():
    model, given = recording(), {"obs": torch.zeros(2, 4)}
    model(given)
    assert list(given) == ["obs"]


@pytest.mark.parametrize("shape", [(), (4,), (2, 3), (2, 3, 1)])
def test_obs_flat_is_the_observation_in_one_row(shape):
    model, obs = recording(spaces.Box(-1, 1, shape)), torch.rand(5, *shape)
    model({"obs": obs})
    torch.testing.assert_close(model.given[0]["obs_flat"], obs.reshape(5, -1), rtol=0, atol=0)
    assert model.given[0]["obs"] is obs


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (torch.zeros(2, 1), r"must return a tuple \(output, state\), found Tensor"),
        ((torch.zeros(2, 1),), r"must return a tuple \(output, state\), found tuple"),
        ((torch.zeros(2, 1), ()), "must return its state as a list, found tuple"),
        ((torch.zeros(2, 1), None), "must return its state as a list, found NoneType"),
    ],
)
def test_what_forward_returns_is_checked(answer, said):
    with pytest.raises(ModelContractError, match=rf"Recording\.forward\(\) {said}"):
        recording(answer=answer)({"obs": torch.zeros(2, 4)})


def test_forward_runs_in_its_context():
    entered = []

    class InContext(Recording):
        @contextlib.contextmanager
        def context(self):
            entered.append("in")
            yield
            entered.append("out")

        def forward(self, input_dict, state, seq_lens):
            assert entered == ["in"]
            return torch.zeros(2, 1), state

    InContext(BOX, TWO, 1, {}, "n")({"obs": torch.zeros(2, 4)})
    assert entered == ["in", "out"]


def test_what_a_model_need_not_implement():
    model = recording()
    assert model.get_initial_state() == []
    assert model.metrics() == {}
    losses = [torch.tensor(1.0)]
    assert model.custom_loss(losses, {}) is losses
    assert not model.is_time_major()
    with pytest.raises(NotImplementedError, match=r"Recording must implement value_function\(\)"):
        model.value_function()
    with pytest.raises(NotImplementedError, match=r"must implement forward\(input_dict, state, seq_lens\)"):
        TorchModelV2(BOX, TWO, 1, {}, "n")({"obs": torch.zeros(2, 4)})
    with pytest.raises(StaleOutputError, match=r"call the model before last_output\(\)"):
        recording().last_output()


def test_a_policy_over_a_model_without_a_value(catalog):
    class NoValue(TorchModelV2):
        def __init__(self, *args):
            super().__init__(*args)
            self.layer = nn.Linear(4, self.num_outputs)

        def forward(self, input_dict, state, seq_lens):
            return self.layer(input_dict["obs"]), state

    policy = catalog.build(BOX, TWO, {"custom_model": NoValue})
    step = policy.act(observations())
    assert step.value is None
    assert policy.evaluate({"obs": np.zeros((6, 4), np.float32), "raw_action": step.raw_action}).value is None


# --- TensorFlow ------------------------------------------------------------------------------------------------------


class MyKerasModel(TFModelV2):
    """The seeds' MyModelClass(TFModelV2)."""

    def __init__(self, *args, **kwargs):
        super(MyKerasModel, self).__init__(*args, **kwargs)  # noqa: UP008
        input_layer = tf.keras.layers.Input(shape=self.obs_space.shape, name="observations")
        hidden_layer = tf.keras.layers.Dense(16, activation="tanh")(input_layer)
        output_layer = tf.keras.layers.Dense(self.num_outputs, kernel_initializer=normc_initializer(0.01))(hidden_layer)
        value_layer = tf.keras.layers.Dense(1, kernel_initializer=normc_initializer(1.0))(hidden_layer)
        self.base_model = tf.keras.Model(input_layer, [output_layer, value_layer])
        self.register_variables(self.base_model.variables)

    def forward(self, input_dict, state, seq_lens):
        self.seen = input_dict
        model_out, self._value_out = self.base_model(input_dict["obs_flat"])
        return model_out, state

    def value_function(self):
        return tf.reshape(self._value_out, [-1])


@pytest.mark.parametrize("space", [BOX, NESTED], ids=["box", "dict"])
def test_a_keras_model_builds_acts_and_trains(catalog, space):
    policy = catalog.build(space, TWO, {"custom_model": MyKerasModel})
    assert policy.framework == "tf"  # a custom class decides
    model, obs = policy.model, observations(space)
    assert len(model.variables()) == len(model.trainable_variables()) == 6
    assert len(set(model.variables(as_dict=True))) == 6
    step = policy.act(obs)
    batch = {"obs": policy.preprocess(obs), "raw_action": step.raw_action}
    optimizer = tf.keras.optimizers.SGD(0.1)
    with tf.GradientTape() as tape:
        found = policy.evaluate(batch)
        loss = tf.reduce_mean(found.value**2) - tf.reduce_mean(found.logp)
    np.testing.assert_allclose(found.logp, step.logp, rtol=1e-5)
    np.testing.assert_allclose(found.value, step.value, rtol=1e-5, atol=1e-6)
    if space is NESTED:
        assert list(model.seen["obs"]) == ["cart", "task"]
        assert model.seen["obs"]["task"][1].shape == (6, 2, 2)
    gradients = tape.gradient(loss, model.trainable_variables())
    assert all(gradient is not None for gradient in gradients)
    optimizer.apply_gradients(zip(gradients, model.trainable_variables(), strict=True))
    assert tf.reduce_mean(policy.evaluate(batch).logp) > tf.reduce_mean(found.logp)
    # Acting was traced before; it sees the new weights, and makes no variables.
    again = policy.act(obs, explore=False)
    np.testing.assert_allclose(again.dist_inputs, policy.evaluate(batch).dist.inputs, rtol=1e-5, atol=1e-6)
    assert len(model.variables()) == 6


def test_names_of_keras_variables_do_not_depend_on_what_was_built_before():
    one, other = (MyKerasModel(BOX, TWO, 2, {}, "n") for _ in range(2))
    weights = one.get_weights()
    assert list(weights) == list(other.get_weights())
    other.set_weights(weights)
    x = tf.constant(np.stack(observations()))
    np.testing.assert_allclose(one({"obs": x})[0], other({"obs": x})[0], rtol=1e-6)
    # Registered or not, a variable is named by where it stands, and dense kernels are laid out as PyTorch's: [out, in].
    assert all(name.startswith("base_model.") for name in weights)
    assert sorted(array.shape for array in weights.values()) == [(1,), (1, 16), (2,), (2, 16), (16,), (16, 4)]


def test_initialisers_with_rllibs_signature_serve_keras():
    kernel = MyKerasModel(BOX, TWO, 2, {}, "n").base_model.layers[-1].kernel.numpy()  # [in, out]
    np.testing.assert_allclose(np.linalg.norm(kernel, axis=0), 1.0, rtol=1e-5)


class Layers(TFModelV2):
    """Keras layers, a raw variable, and such in lists and dicts, as attributes; nothing is registered."""

    def __init__(self, *args):
        super().__init__(*args)
        self.first = tf.keras.layers.Dense(5)
        self.rest = [tf.keras.layers.Dense(5), {"last": tf.keras.layers.Dense(self.num_outputs)}]
        self.scale = tf.Variable(1.0)
        self.norm = tf.keras.layers.BatchNormalization()

    def forward(self, input_dict, state, seq_lens):
        x = self.norm(self.first(input_dict["obs"]), training=input_dict["is_training"])
        return self.rest[1]["last"](self.rest[0](x)) * self.scale, state


def test_variables_are_found_wherever_they_stand(catalog):
    policy = catalog.build(BOX, TWO, {"custom_model": Layers})
    names = list(policy.model.get_weights())
    assert len(names) == len(set(names)) == 6 + 1 + 4
    assert len(policy.model.trainable_variables()) == 6 + 1 + 2
    policy.act(observations())
    policy.act(observations(), explore=False)
    assert list(policy.model.get_weights()) == names


def test_a_value_of_a_keras_model_outside_its_trace_is_refused(catalog):
    policy = catalog.build(BOX, TWO, {"custom_model": MyKerasModel})
    policy.act(observations())
    with pytest.raises(StaleOutputError, match=r"MyKerasModel\.value_function\(\) belongs to the last forward pass"):
        policy.model.value_function()


def test_a_typed_error_inside_a_function_of_tensorflow_keeps_its_type():
    model = MyKerasModel(BOX, TWO, 2, {}, "n")

    @tf.function  # AutoGraph rewrites errors it cannot rebuild
    def forward(x):
        model({"obs": x})

    @tf.function
    def elsewhere():
        return model.value_function()

    forward(tf.zeros([1, 4]))
    with pytest.raises(StaleOutputError):
        elsewhere()


# --- recurrent models ------------------------------------------------------------------------------------------------


class MyRNNClass(RecurrentTFModelV2):
    """The seeds' MyRNNClass(RecurrentTFModelV2); Keras 3 calls the LSTM in another way."""

    def __init__(self, *args, **kwargs):
        super(MyRNNClass, self).__init__(*args, **kwargs)  # noqa: UP008
        self.cell_size = 6
        input_layer = tf.keras.layers.Input(shape=(None, self.obs_space.shape[0]))
        state_in_h = tf.keras.layers.Input(shape=(self.cell_size,))
        state_in_c = tf.keras.layers.Input(shape=(self.cell_size,))
        seq_in = tf.keras.layers.Input(shape=(), dtype=tf.int32)
        mask = tf.keras.layers.Lambda(lambda both: tf.sequence_mask(both[0], tf.shape(both[1])[1]))(
            [seq_in, input_layer]
        )
        lstm_out, state_h, state_c = tf.keras.layers.LSTM(
            self.cell_size, return_sequences=True, return_state=True, name="lstm"
        )(input_layer, mask=mask, initial_state=[state_in_h, state_in_c])
        output_layer = tf.keras.layers.Dense(self.num_outputs)(lstm_out)
        value_layer = tf.keras.layers.Dense(1)(lstm_out)
        self.rnn_model = tf.keras.Model(
            inputs=[input_layer, seq_in, state_in_h, state_in_c], outputs=[output_layer, value_layer, state_h, state_c]
        )
        self.register_variables(self.rnn_model.variables)

    def forward_rnn(self, inputs, state, seq_lens):
        model_out, self._value_out, h, c = self.rnn_model([inputs, seq_lens, *state])
        return model_out, [h, c]

    def get_initial_state(self):
        return [np.zeros(self.cell_size, np.float32), np.zeros(self.cell_size, np.float32)]

    def value_function(self):
        return tf.reshape(self._value_out, [-1])


class TorchRNN(RecurrentNetwork, nn.Module):
    """RLlib's example of a recurrent model in PyTorch."""

    def __init__(self, obs_space, action_space, num_outputs, model_config, name, fc_size=8, lstm_state_size=6):
        nn.Module.__init__(self)
        super().__init__(obs_space, action_space, num_outputs, model_config, name)
        self.lstm_state_size = lstm_state_size
        self.fc1 = nn.Linear(obs_space.shape[0], fc_size)
        self.lstm = nn.LSTM(fc_size, lstm_state_size, batch_first=True)
        self.action_branch = nn.Linear(lstm_state_size, num_outputs)
        self.value_branch = nn.Linear(lstm_state_size, 1)
        self._features = None

    def get_initial_state(self):
        return [self.fc1.weight.new_zeros(self.lstm_state_size) for _ in range(2)]

    def value_function(self):
        return torch.reshape(self.value_branch(self._features), [-1])

    def forward_rnn(self, inputs, state, seq_lens):
        x = torch.relu(self.fc1(inputs))
        self._features, [h, c] = self.lstm(x, [state[0].unsqueeze(0), state[1].unsqueeze(0)])
        return self.action_branch(self._features), [h.squeeze(0), c.squeeze(0)]


recurrent = pytest.mark.parametrize("cls", [TorchRNN, MyRNNClass])


@recurrent
def test_a_recurrent_model_acts_and_trains_alike(catalog, cls):
    policy = catalog.build(BOX, TWO, {"custom_model": cls})
    rows, steps = 3, 4
    obs = np.stack(observations(n=rows * steps)).reshape(rows, steps, 4)
    state, taken = None, []
    for t in range(steps):
        taken.append(policy.act(obs[:, t], state))
        state = taken[-1].state
        assert [part.shape for part in state] == [(rows, 6)] * 2
    # Training sees whole sequences, row after row.
    batch = {
        "obs": policy.preprocess(obs.reshape(-1, 4)),
        "raw_action": np.stack([step.raw_action for step in taken], axis=1).reshape(-1, 1),
        "seq_lens": np.full(rows, steps, np.int32),
    }
    for start in (None, policy.initial_state(rows)):
        found = policy.evaluate({**batch, "state": start})
        logp, value = (np.asarray(x.detach() if cls is TorchRNN else x) for x in (found.logp, found.value))
        np.testing.assert_allclose(logp.reshape(rows, steps).T, [step.logp for step in taken], rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(value.reshape(rows, steps).T, [step.value for step in taken], rtol=1e-4, atol=1e-5)
    # The control: the memory matters.
    without = policy.act(obs[:, -1])
    assert not np.allclose(without.dist_inputs, taken[-1].dist_inputs, atol=1e-4)
    # A later start.
    late = {"obs": batch["obs"].reshape(rows, steps, 4)[:, 2:].reshape(-1, 4), "seq_lens": np.full(rows, 2, np.int32)}
    late["raw_action"] = batch["raw_action"].reshape(rows, steps)[:, 2:].reshape(-1, 1)
    found = policy.evaluate({**late, "state": taken[1].state})
    logp = np.asarray(found.logp.detach() if cls is TorchRNN else found.logp)
    np.testing.assert_allclose(logp.reshape(rows, 2).T, [step.logp for step in taken[2:]], rtol=1e-4, atol=1e-5)


def test_the_state_of_a_padded_sequence_is_the_one_at_its_end():
    model = MyRNNClass(BOX, TWO, 2, {}, "n")
    obs, lengths = np.stack(observations(n=8)).reshape(2, 4, 4), [2, 4]
    start = [tf.zeros([2, 6]), tf.zeros([2, 6])]
    _, padded = model({"obs": tf.constant(obs.reshape(-1, 4))}, start, tf.constant(lengths, tf.int32))
    for row, length in enumerate(lengths):
        alone = [part[:1] for part in start]
        _, expected = model({"obs": tf.constant(obs[row, :length])}, alone, tf.constant([length], tf.int32))
        for found, one in zip(padded, expected, strict=True):
            np.testing.assert_allclose(found[row], one[0], rtol=1e-5, atol=1e-6)


@recurrent
def test_a_stepper_keeps_the_state_and_starts_done_rows_anew(catalog, cls):
    policy = catalog.build(BOX, TWO, {"custom_model": cls})
    obs = np.stack(observations(n=9)).reshape(3, 3, 4)
    stepper = policy.stepper(3)
    stepper.step(obs[:, 0])
    second = stepper.step(obs[:, 1], done=[False, True, False], explore=False)
    fresh = policy.act(obs[:, 1], explore=False)
    continued = policy.act(obs[:, 1], policy.act(obs[:, 0]).state, explore=False)
    np.testing.assert_allclose(second.dist_inputs[1], fresh.dist_inputs[1], rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(second.dist_inputs[[0, 2]], continued.dist_inputs[[0, 2]], rtol=1e-4, atol=1e-6)
    assert not np.allclose(second.dist_inputs[0], fresh.dist_inputs[0], atol=1e-5)
    stepper.reset()
    again = stepper.step(obs[:, 1], explore=False)
    np.testing.assert_allclose(again.dist_inputs, fresh.dist_inputs, rtol=1e-4, atol=1e-6)
    for rows in ([2], np.array([False, False, True])):
        stepper = policy.stepper(3)
        stepper.step(obs[:, 0])
        stepper.reset(rows)
        third = stepper.step(obs[:, 1], explore=False)
        np.testing.assert_allclose(third.dist_inputs[2], fresh.dist_inputs[2], rtol=1e-4, atol=1e-6)
        np.testing.assert_allclose(third.dist_inputs[:2], continued.dist_inputs[:2], rtol=1e-4, atol=1e-6)


def test_a_stepper_over_a_model_without_memory(catalog):
    policy = catalog.build(BOX, TWO, SMALL)
    stepper = policy.stepper(6)
    assert policy.initial_state(6) is None
    step = stepper.step(np.stack(observations()), done=np.ones(6, bool))
    assert step.state is None
    stepper.reset([0])


def test_keyword_arguments_of_a_custom_model(catalog):
    policy = catalog.build(BOX, TWO, {"custom_model": TorchRNN, "custom_model_config": {"lstm_state_size": 9}})
    assert policy.model.lstm_state_size == 9
    with pytest.raises(ConfigError, match=r"TorchRNN takes no 'lstm_size'.*'lstm_state_size'.*Accepted: fc_size, ls"):
        catalog.build(BOX, TWO, {"custom_model": TorchRNN, "custom_model_config": {"lstm_size": 9}})
    model = ModelCatalog.get_model_v2(BOX, TWO, 2, {"custom_model": TorchRNN}, "torch", fc_size=3)
    assert model.fc1.out_features == 3


# --- preprocessors and environments of the page ----------------------------------------------------------------------


class MyPreprocessorClass(Preprocessor):
    def _init_shape(self, obs_space, options):
        self.scale = options["custom_options"].get("scale", 1.0)
        return (obs_space.shape[0] + 1,)

    def transform(self, observation):
        return np.append(self.scale * observation, 1.0).astype(np.float32)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("named", ["my_prep", MyPreprocessorClass], ids=["name", "class"])
def test_a_custom_preprocessor_serves_a_policy(default, named):
    ModelCatalog.register_custom_preprocessor("my_prep", MyPreprocessorClass)
    config = {"custom_preprocessor": named, "custom_options": {"scale": 2.0}, **SMALL}
    policy = rlcatalog.build(env=gym.make("CartPole-v1"), config=config)
    obs = np.stack([np.array([0.1, 0.2, 0.3, 0.4], np.float32)] * 2)
    np.testing.assert_allclose(policy.preprocess(obs), [[0.2, 0.4, 0.6, 0.8, 1.0]] * 2, rtol=1e-6)
    assert policy.act(obs).action.shape == (2,)


def test_the_pages_wrapper_around_an_environment(default):
    class OneHotEnv(gym.ObservationWrapper):
        def __init__(self, env):
            super().__init__(env)
            self.observation_space = spaces.Box(0, 1, (16,), np.float32)

        def observation(self, observation):
            return one_hot(observation, depth=16)

    env = OneHotEnv(gym.make("FrozenLake-v1"))
    policy = rlcatalog.build(env=env, config={**SMALL, "check_observations": "always"})
    obs, _ = env.reset(seed=0)
    assert policy.act([obs]).action.shape == (1,)


# --- action distributions of the page --------------------------------------------------------------------------------


class MyActionDist(ActionDistribution):
    """The seeds' example: seven outputs, of which the first few are logits."""

    @staticmethod
    def required_model_output_shape(action_space, model_config):
        return 7  # controls model output feature vector size

    def __init__(self, inputs, model):
        super(MyActionDist, self).__init__(inputs, model)  # noqa: UP008
        assert model.num_outputs == 7
        self.logits = Categorical(inputs[:, : model.action_space.n], model)

    def sample(self):
        return self.logits.sample()

    def logp(self, actions):
        return self.logits.logp(actions)

    def entropy(self):
        return self.logits.entropy()


@pytest.mark.parametrize("named", ["my_dist", MyActionDist], ids=["name", "class"])
def test_a_custom_action_distribution(default, named):
    ModelCatalog.register_custom_action_dist("my_dist", MyActionDist)
    config = {"custom_action_dist": named, **SMALL}
    assert ModelCatalog.get_action_dist(TWO, config, framework="torch") == (MyActionDist, 7)
    assert ModelCatalog.get_action_dist(TWO, {}, named, "torch") == (MyActionDist, 7)
    policy = rlcatalog.build(BOX, TWO, config)
    step = policy.act(observations())
    assert step.dist_inputs.shape == (6, 7)
    found = policy.evaluate({"obs": policy.preprocess(observations()), "raw_action": step.raw_action})
    np.testing.assert_allclose(found.logp.detach(), step.logp, rtol=1e-5)
    expected = stats.entropy(special.softmax(step.dist_inputs[:, :2], axis=1), axis=1)
    np.testing.assert_allclose(found.entropy.detach(), expected, rtol=1e-5)
    assert found.entropy_kind == "exact"


@pytest.mark.parametrize(("size", "number"), [((2, 3), 6), ([4], 4), (np.int64(5), 5)])
def test_a_size_may_be_a_shape(size, number):
    class Sized(MyActionDist):
        @staticmethod
        def required_model_output_shape(action_space, model_config):
            return size

    found = ModelCatalog.get_action_dist(TWO, {"custom_action_dist": Sized})[1]
    assert found == number
    assert type(found) is int


def test_a_sample_of_the_wrong_width_is_refused(catalog):
    class Wide(MyActionDist):
        def sample(self):
            return torch.zeros(len(self.inputs), 3)

        def logp(self, actions):
            return torch.zeros(len(self.inputs))

    policy = catalog.build(BOX, TWO, {"custom_action_dist": Wide, **SMALL})
    with pytest.raises(ModelContractError, match=r"Wide\.sample\(\) gave 3 values per action; Discrete\(2\) takes 1"):
        policy.act(observations())


class BinaryAutoregressiveOutput(ActionDistribution):
    """Action distribution P(a1, a2) = P(a1) * P(a2 | a1)"""

    @staticmethod
    def required_model_output_shape(self, model_config):
        return 16  # controls model output feature vector size

    def sample(self):
        # first, sample a1
        a1_dist = self._a1_distribution()
        a1 = a1_dist.sample()

        # sample a2 conditioned on a1
        a2_dist = self._a2_distribution(a1)
        a2 = a2_dist.sample()

        # return the action tuple
        return TupleActions([a1, a2])

    def logp(self, actions):
        a1, a2 = actions[:, 0], actions[:, 1]
        a1_vec = tf.expand_dims(tf.cast(a1, tf.float32), 1)
        a1_logits, a2_logits = self.model.action_model([self.inputs, a1_vec])
        return TFCategorical(a1_logits, None).logp(a1) + TFCategorical(a2_logits, None).logp(a2)

    def _a1_distribution(self):
        BATCH = tf.shape(self.inputs)[0]
        a1_logits, _ = self.model.action_model([self.inputs, tf.zeros((BATCH, 1))])
        a1_dist = TFCategorical(a1_logits, None)
        return a1_dist

    def _a2_distribution(self, a1):
        a1_vec = tf.expand_dims(tf.cast(a1, tf.float32), 1)
        _, a2_logits = self.model.action_model([self.inputs, a1_vec])
        a2_dist = TFCategorical(a2_logits, None)
        return a2_dist


class AutoregressiveActionsModel(TFModelV2):
    """Implements the `.action_model` branch required above."""

    def __init__(self, obs_space, action_space, num_outputs, model_config, name):
        super(AutoregressiveActionsModel, self).__init__(  # noqa: UP008
            obs_space, action_space, num_outputs, model_config, name
        )
        if action_space != Tuple([Discrete(2), Discrete(2)]):
            raise ValueError("This model only supports the [2, 2] action space")

        # Inputs
        obs_input = tf.keras.layers.Input(shape=obs_space.shape, name="obs_input")
        a1_input = tf.keras.layers.Input(shape=(1,), name="a1_input")
        ctx_input = tf.keras.layers.Input(shape=(num_outputs,), name="ctx_input")

        # Output of the model (normally 'logits', but for an autoregressive
        # dist this is more like a context/feature layer encoding the obs)
        context = tf.keras.layers.Dense(
            num_outputs, name="hidden", activation=tf.nn.tanh, kernel_initializer=normc_initializer(1.0)
        )(obs_input)

        # P(a1 | obs)
        a1_logits = tf.keras.layers.Dense(
            2, name="a1_logits", activation=None, kernel_initializer=normc_initializer(0.01)
        )(ctx_input)

        # P(a2 | a1)
        a2_context = a1_input
        a2_hidden = tf.keras.layers.Dense(
            16, name="a2_hidden", activation=tf.nn.tanh, kernel_initializer=normc_initializer(1.0)
        )(a2_context)
        a2_logits = tf.keras.layers.Dense(
            2, name="a2_logits", activation=None, kernel_initializer=normc_initializer(0.01)
        )(a2_hidden)

        # Base layers
        self.base_model = tf.keras.Model(obs_input, context)
        self.register_variables(self.base_model.variables)
        self.base_model.summary()

        # Autoregressive action sampler
        self.action_model = tf.keras.Model([ctx_input, a1_input], [a1_logits, a2_logits])
        self.action_model.summary()
        self.register_variables(self.action_model.variables)

    def forward(self, input_dict, state, seq_lens):
        return self.base_model(input_dict["obs"]), state


PAIR = Tuple([Discrete(2), Discrete(2)])


@pytest.fixture
def autoregressive(default):
    ModelCatalog.register_custom_model("autoregressive_model", AutoregressiveActionsModel)
    ModelCatalog.register_custom_action_dist("binary_autoreg_dist", BinaryAutoregressiveOutput)
    config = {"custom_model": "autoregressive_model", "custom_action_dist": "binary_autoreg_dist"}
    policy = rlcatalog.build(BOX, PAIR, config)
    # Weights that make the second action depend on the first one, visibly.
    random = np.random.default_rng(0)
    policy.model.set_weights({n: random.normal(0, 0.5, a.shape) for n, a in policy.model.get_weights().items()})
    return policy


def test_the_pages_autoregressive_actions(autoregressive):
    policy, rows = autoregressive, 4000
    assert policy.framework == "tf"
    obs = np.tile(observations(n=1)[0], (rows, 1))
    step = policy.act(obs)
    assert isinstance(step.action, tuple)
    assert step.raw_action.shape == (rows, 2)
    assert step.dist_inputs.shape == (rows, 16)
    assert all(pair in PAIR for pair in zip(*step.action, strict=True))
    # By hand: the joint distribution over the four pairs, from the two conditionals.
    context = step.dist_inputs[:1]
    first = special.softmax(policy.model.action_model([context, np.zeros((1, 1), np.float32)])[0].numpy()[0])
    second = [special.softmax(policy.model.action_model([context, np.full((1, 1), a, np.float32)])[1].numpy()[0])
              for a in (0, 1)]  # fmt: skip
    joint = np.array([[first[a] * second[a][b] for b in (0, 1)] for a in (0, 1)], np.float64)
    joint /= joint.sum()
    assert abs(second[0][0] - second[1][0]) > 0.05
    a1, a2 = step.raw_action.T.astype(int)
    np.testing.assert_allclose(step.logp, np.log(joint[a1, a2]), rtol=1e-4)
    counts = np.bincount(2 * a1 + a2, minlength=4)
    assert stats.chisquare(counts, rows * joint.ravel()).pvalue > 1e-3
    # The stored raw actions score the same in training, from inputs alone too.
    batch = {"obs": policy.preprocess(obs), "raw_action": step.raw_action}
    rebuilt = policy.dist_class(tf.constant(step.dist_inputs), policy.model)
    np.testing.assert_allclose(rebuilt.logp(tf.constant(step.raw_action)), step.logp, rtol=1e-5)
    assert len(policy.model.trainable_variables()) == 8
    assert batch["obs"].shape == (rows, 4)


def test_training_the_pages_autoregressive_actions(autoregressive):
    policy, obs = autoregressive, np.stack(observations(n=3000))
    step = policy.act(obs)
    batch = {"obs": policy.preprocess(obs), "raw_action": step.raw_action}
    with tf.GradientTape() as tape:
        found = policy.evaluate(batch)
        loss = -tf.reduce_mean(found.logp)
    np.testing.assert_allclose(found.logp, step.logp, rtol=1e-4, atol=1e-6)
    assert all(gradient is not None for gradient in tape.gradient(loss, policy.model.trainable_variables()))
    # The class has no entropy(): an estimate stands in, and is said to be one.
    assert found.entropy_kind == "estimate"
    assert found.entropy.shape == (3000,)
    assert abs(float(tf.reduce_mean(found.entropy)) + float(step.logp.mean())) < 0.1


def test_the_pages_model_refuses_another_space(default):
    with pytest.raises(ValueError, match=r"only supports the \[2, 2\] action space"):
        rlcatalog.build(BOX, Tuple([Discrete(2), Discrete(3)]), {
            "custom_model": AutoregressiveActionsModel, "custom_action_dist": BinaryAutoregressiveOutput})  # fmt: skip


class ParametricActionsModel(TFModelV2):
    """The seeds' model over embeddings of the available actions; `tf.log` is called `tf.math.log` now."""

    def __init__(self, obs_space, action_space, num_outputs, model_config, name, true_obs_shape=(4,),
                 action_embed_size=2):  # fmt: skip
        super(ParametricActionsModel, self).__init__(  # noqa: UP008
            obs_space, action_space, num_outputs, model_config, name
        )
        self.action_embed_model = TFFullyConnectedNetwork(
            spaces.Box(-1, 1, true_obs_shape), action_space, action_embed_size, model_config, name + "_action_embed"
        )

    def forward(self, input_dict, state, seq_lens):
        # Extract the available actions tensor from the observation.
        avail_actions = input_dict["obs"]["avail_actions"]
        action_mask = input_dict["obs"]["action_mask"]
        # Compute the predicted action embedding
        action_embed, _ = self.action_embed_model({"obs": input_dict["obs"]["cart"]})
        # Expand the model output to [BATCH, 1, EMBED_SIZE].
        intent_vector = tf.expand_dims(action_embed, 1)
        # Batch dot product => shape of logits is [BATCH, MAX_ACTIONS].
        action_logits = tf.reduce_sum(avail_actions * intent_vector, axis=2)
        # Mask out invalid actions (use tf.float32.min for stability)
        inf_mask = tf.maximum(tf.math.log(action_mask), tf.float32.min)
        return action_logits + inf_mask, state

    def value_function(self):
        return self.action_embed_model.value_function()


def test_the_pages_parametric_actions(catalog):
    n = 5
    space = spaces.Dict({
        "action_mask": spaces.Box(0, 1, (n,)), "avail_actions": spaces.Box(-1, 1, (n, 2)), "cart": BOX,
    })  # fmt: skip
    policy = catalog.build(space, Discrete(n), {"custom_model": ParametricActionsModel, **SMALL})
    obs = observations(space, 500)
    random = np.random.default_rng(0)
    for row in obs:
        row["action_mask"] = (random.random(n) < 0.4).astype(np.float32)
        row["action_mask"][random.integers(n)] = 1
    step = policy.act(obs)
    mask = np.stack([row["action_mask"] for row in obs])
    assert mask[np.arange(500), step.action].all()
    assert np.isfinite(step.logp).all()
    found = policy.evaluate({"obs": policy.preprocess(obs), "raw_action": step.raw_action})
    assert np.isfinite(found.entropy).all()
    np.testing.assert_allclose(found.logp, step.logp, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(found.value, step.value, rtol=1e-5, atol=1e-6)


# --- registered by name and written as a class -----------------------------------------------------------------------


@pytest.mark.parametrize("cls", [model_v2_first(), MyKerasModel, TorchRNN])
def test_a_model_by_name_and_by_class(default, cls):
    ModelCatalog.register_custom_model("my_model", cls)
    for named in ("my_model", cls):
        for framework in (None, cls.framework_of_class):
            policy = rlcatalog.build(BOX, TWO, {"custom_model": named}, framework)
            assert type(policy.model) is cls
            assert policy.framework == cls.framework_of_class
            assert policy.explain().as_dict()["model"]["reason"] == "named in the config"
    model = ModelCatalog.get_model_v2(BOX, TWO, 3, {"custom_model": "my_model"}, cls.framework_of_class, "her_name")
    assert (type(model), model.num_outputs, model.name) == (cls, 3, "her_name")
    other = {"torch": "tf", "tf": "torch"}[cls.framework_of_class]
    with pytest.raises(NotServedError, match=f"'my_model'.*has no code for framework='{other}'"):
        rlcatalog.build(BOX, TWO, {"custom_model": "my_model"}, other)


def test_registering_again_replaces(default):
    ModelCatalog.register_custom_model("my_model", model_v2_first())
    ModelCatalog.register_custom_model("my_model", TorchRNN)
    assert type(rlcatalog.build(BOX, TWO, {"custom_model": "my_model"}).model) is TorchRNN


def test_a_default_model_is_used_where_the_config_names_none(default):
    cls = model_v2_first()
    model = ModelCatalog.get_model_v2(BOX, TWO, 2, {}, "torch", default_model=cls)
    assert type(model) is cls
    model = ModelCatalog.get_model_v2(BOX, TWO, 2, {"custom_model": "fcnet"}, "torch", default_model=cls)
    assert type(model) is FullyConnectedNetwork


# --- signatures ------------------------------------------------------------------------------------------------------


def signature(function):
    kinds = {"POSITIONAL_OR_KEYWORD": "", "KEYWORD_ONLY": "*", "VAR_KEYWORD": "**", "VAR_POSITIONAL": "*args "}
    return [
        f"{kinds[p.kind.name]}{p.name}" + ("" if p.default is p.empty else f"={p.default!r}")
        for p in inspect.signature(function).parameters.values()
    ]


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (Policy.act, ["self", "obs", "state=None", "*prev_reward=None", "*mask=None", "*explore=True"]),
        (Policy.evaluate, ["self", "batch"]),
        (Policy.stepper, ["self", "n"]),
        (Policy.to, ["self", "device"]),
        (Policy.save, ["self", "directory"]),
        (Stepper.step, ["self", "obs", "*done=None", "*prev_reward=None", "*mask=None", "*explore=True"]),
        (rlcatalog.build, ["obs_space=None", "action_space=None", "config=None", "framework=None", "*env=None"]),
        (rlcatalog.load, ["directory", "*observation_space=None", "*action_space=None"]),
        (rlcatalog.restore_original_dimensions, ["obs", "obs_space", "tensorlib='numpy'"]),
        (ModelV2.__init__, ["self", "obs_space", "action_space", "num_outputs", "model_config", "name", "framework"]),
        (ModelV2.__call__, ["self", "input_dict", "state=None", "seq_lens=None"]),
        (ModelV2.forward, ["self", "input_dict", "state", "seq_lens"]),
        (ModelV2.value_function, ["self"]),
        (ModelV2.custom_loss, ["self", "policy_loss", "loss_inputs"]),
        (ModelV2.metrics, ["self"]),
        (ModelV2.get_initial_state, ["self"]),
        (TFModelV2.__init__, ["self", "obs_space", "action_space", "num_outputs", "model_config", "name"]),
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
            ["obs_space", "action_space", "num_outputs", "model_config", "framework", "name='default_model'",
             "model_interface=None", "default_model=None", "**model_kwargs"],
        ),
        ("get_preprocessor", ["env", "options=None", "include_multi_binary=False"]),
        ("get_preprocessor_for_space", ["observation_space", "options=None", "include_multi_binary=False"]),
        ("register_custom_model", ["model_name", "model_class"]),
        ("register_custom_action_dist", ["action_dist_name", "action_dist_class"]),
        ("register_custom_preprocessor", ["preprocessor_name", "preprocessor_class"]),
    ],
)  # fmt: skip
def test_the_model_catalog_keeps_rllibs_positional_order(method, names):
    assert isinstance(inspect.getattr_static(ModelCatalog, method), staticmethod)
    # The framework's default is PyTorch here, and a config may be left out.
    found = [name.partition("=")[0] if name.startswith(("framework", "config")) else name
             for name in signature(getattr(ModelCatalog, method))]  # fmt: skip
    assert found == names


def test_a_step_is_a_tuple_of_six():
    assert Step._fields == ("action", "raw_action", "logp", "value", "dist_inputs", "state")
    assert Evaluation.__match_args__ == ("logp", "entropy", "entropy_kind", "value", "dist")


# --- what act returns ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("framework", ["torch", "tf"])
def test_a_step_holds_arrays(catalog, framework):
    policy = catalog.build(BOX, TWO, SMALL, framework)
    step = policy.act(observations())
    shapes = {"action": (6,), "raw_action": (6, 1), "logp": (6,), "value": (6,), "dist_inputs": (6, 2)}
    assert {name: getattr(step, name).shape for name in shapes} == shapes
    assert all(type(getattr(step, name)) is np.ndarray for name in shapes)
    assert step.logp.dtype == step.value.dtype == step.dist_inputs.dtype == np.float32
    assert step.state is None


@pytest.mark.parametrize("framework", ["torch", "tf"])
def test_observations_in_any_form(catalog, framework):
    policy = catalog.build(BOX, TWO, SMALL, framework)
    rows = observations()
    expected = policy.act(rows, explore=False).dist_inputs
    array = np.stack(rows)
    locked = array.copy()
    locked.flags.writeable = False
    wide = np.zeros((6, 8), np.float32)
    wide[:, ::2] = array
    for form in (array, array.astype(np.float64), locked, np.asfortranarray(array), wide[:, ::2], array[::-1][::-1]):
        np.testing.assert_allclose(policy.act(form, explore=False).dist_inputs, expected, rtol=1e-6)
    np.testing.assert_allclose(policy.act(array[::-1], explore=False).dist_inputs, expected[::-1], rtol=1e-6)
    np.testing.assert_allclose(policy.act(array[:1], explore=False).dist_inputs, expected[:1], rtol=1e-5)


@pytest.mark.parametrize("framework", ["torch", "tf"])
def test_a_step_stays_as_it_was(catalog, framework):
    policy = catalog.build(BOX, TWO, {"fcnet_hiddens": []}, framework)
    obs = np.stack(observations())
    step = policy.act(obs)
    before = copy.deepcopy(step)
    obs += 1
    policy.act(obs)
    policy.model.set_weights({name: array + 1 for name, array in policy.model.get_weights().items()})
    policy.act(obs)
    for found, expected in zip(step[:5], before[:5], strict=True):
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("framework", ["torch", "tf"])
@pytest.mark.parametrize("space", [TWO, Discrete(2, start=3), spaces.Box(-9, 9, (2,), np.float32)], ids=str)
def test_changing_an_action_leaves_the_raw_one_alone(catalog, framework, space):
    step = catalog.build(BOX, space, SMALL, framework).act(observations())
    before = step.raw_action.copy()
    step.action[...] = 0  # as a caller overrules some of them
    np.testing.assert_array_equal(step.raw_action, before)


def test_acting_switches_to_inference_and_evaluating_to_training(catalog):
    class Modes(model_v2_first()):
        def forward(self, input_dict, state, seq_lens):
            modes.append((self.training, bool(input_dict["is_training"]), torch.is_grad_enabled()))
            return super().forward(input_dict, state, seq_lens)

    modes = []
    policy = catalog.build(BOX, TWO, {"custom_model": Modes})
    step = policy.act(observations())
    policy.evaluate({"obs": np.stack(observations()), "raw_action": step.raw_action})
    policy.act(observations())
    assert modes == [(False, False, False), (True, True, True), (False, False, False)]


# --- raw and environment actions -------------------------------------------------------------------------------------

HUGE = 3e38
ACTION_SPACES = [
    (Discrete(3), {}),
    (Discrete(3, start=-4), {}),
    (Discrete(4, start=10, dtype=np.int32), {}),
    (spaces.Box(-0.5, 0.5, (2,), np.float32), {}),
    (spaces.Box(-0.5, 0.5, (2,), np.float32), {"action_bounds": "affine"}),
    (spaces.Box(np.float32([-1, 5, -np.inf]), np.float32([3, 6, 0.5])), {}),
    (spaces.Box(np.float32([-1, 5, -np.inf]), np.float32([3, 6, 0.5])), {"action_bounds": "affine"}),
    (spaces.Box(-np.inf, np.inf, (2,), np.float32), {"action_bounds": "affine"}),
    (spaces.Box(0, 0.1, (2,), np.float64), {}),
    (spaces.Box(0, 0.1, (2,), np.float64), {"action_bounds": "affine"}),
    (spaces.Box(-0.1, 0.1, (2,), np.float16), {"action_bounds": "affine"}),
    (spaces.Box(-1, 1, (), np.float32), {}),
    (spaces.Box(-1, 1, (2, 2), np.float32), {"action_bounds": "affine"}),
    (spaces.Box(-HUGE, HUGE, (2,), np.float32), {"action_bounds": "affine"}),
]


def by_hand(space, raw, bounds):
    if isinstance(space, Discrete):
        return raw[:, 0] + space.start
    low, high = space.low.astype(np.float64), space.high.astype(np.float64)
    value = raw.reshape(-1, *space.shape).astype(np.float64)
    if bounds == "affine":
        both = np.isfinite(low) & np.isfinite(high)
        value = np.where(both, low + (value + 1) / 2 * (np.where(both, high, 0) - np.where(both, low, 0)), value)
    return np.clip(value, low, high)


@pytest.mark.parametrize("framework", ["torch", "tf"])
@pytest.mark.parametrize(("space", "config"), ACTION_SPACES, ids=lambda value: str(value)[:30])
def test_every_action_lies_in_its_space_and_its_raw_form_keeps_its_density(catalog, framework, space, config):
    policy = catalog.build(BOX, space, {**SMALL, **config}, framework)
    obs = np.stack(observations(n=300))
    for explore in (True, False):
        step = policy.act(obs, explore=explore)
        assert step.action.dtype == space.dtype
        assert step.action.shape == (300, *space.shape)
        for action in step.action:
            assert space.contains(action if isinstance(space, Discrete) else np.asarray(action))
        expected = by_hand(space, step.raw_action, policy.config["action_bounds"])
        np.testing.assert_allclose(step.action, expected, rtol=2e-3 if space.dtype == np.float16 else 1e-5, atol=1e-6)
        found = policy.evaluate({"obs": policy.preprocess(obs), "raw_action": step.raw_action})
        logp = found.logp.detach() if framework == "torch" else found.logp
        np.testing.assert_allclose(logp, step.logp, rtol=1e-4, atol=1e-5)
    assert len(np.unique(policy.act(obs).raw_action)) > 1


@pytest.mark.parametrize("start", [0, -4, 10])
def test_the_offset_can_be_taken_back(start):
    adapter = ActionAdapter(SpaceInfo.read(Discrete(3, start=start)))
    raw = np.array([[0], [2], [1]])
    np.testing.assert_array_equal(adapter(raw), raw[:, 0] + start)
    np.testing.assert_array_equal(adapter.invert(adapter(raw)), raw)


def test_an_affine_map_can_be_taken_back_and_clipping_cannot():
    space = spaces.Box(np.float32([-1, 5]), np.float32([3, 6]))
    raw = np.array([[-1, -1], [1, 1], [0.5, -0.25]], np.float32)
    adapter = ActionAdapter(SpaceInfo.read(space), "affine")
    np.testing.assert_allclose(adapter(raw), [[-1, 5], [3, 6], [2, 5.375]])
    np.testing.assert_allclose(adapter.invert(adapter(raw)), raw)
    with pytest.raises(NotServedError, match="clipping has no inverse"):
        ActionAdapter(SpaceInfo.read(space), "clip").invert(np.zeros((1, 2)))


def test_a_structure_is_joined_in_the_spaces_order():
    pair = Tuple([spaces.Box(-1, 1, (2, 1), np.float32), spaces.MultiDiscrete([2, 4])])
    space = spaces.Dict([("z", Discrete(3, start=1)), ("a", pair)])
    adapter = ActionAdapter(SpaceInfo.read(space))
    assert adapter.width == 5
    raw = np.array([[2, 0.5, -3, 1, 3], [0, 7, 0.25, 0, 0]], np.float32)
    found = adapter(raw)
    assert list(found) == ["z", "a"]
    np.testing.assert_array_equal(found["z"], [3, 1])
    np.testing.assert_array_equal(found["a"][0], [[[0.5], [-1]], [[1], [0.25]]])
    np.testing.assert_array_equal(found["a"][1], [[1, 3], [0, 0]])
    for row in range(2):
        assert space.contains({"z": found["z"][row], "a": (found["a"][0][row], found["a"][1][row])})


@pytest.mark.parametrize(
    "space",
    [
        spaces.Box(3, 9, (2,), np.uint8),
        spaces.Box(-(2**31), 2**31 - 1, (2,), np.int32),
        spaces.Box(-(2**40), 2**40, (2,), np.int64),
    ],
    ids=str,
)
def test_whole_numbers_are_counted_from_the_lowest(space):
    adapter = ActionAdapter(SpaceInfo.read(space))
    low = int(space.low[0])
    np.testing.assert_array_equal(adapter(np.array([[0, 5]]))[0], [low, low + 5])
    for raw in (np.array([[0.0, 2.4]]), np.array([[-7.0, 1e30]]), np.array([[0, 2**50]])):
        assert space.contains(adapter(raw)[0])


# --- masks, and inputs that carry everything -------------------------------------------------------------------------

FIVE = Discrete(5, start=2)


def rebuilt_logp(policy, step):
    """The log densities of a step's raw actions from its inputs alone: without model, without mask."""
    if policy.framework == "torch":
        dist = policy.dist_class(torch.from_numpy(step.dist_inputs.copy()), None)
        return dist.logp(torch.from_numpy(step.raw_action.copy())).numpy()
    dist = policy.dist_class(tf.constant(step.dist_inputs), None)
    return dist.logp(tf.constant(step.raw_action)).numpy()


def masks(rows, n=5, seed=0):
    random = np.random.default_rng(seed)
    mask = random.random((rows, n)) < 0.4
    mask[np.arange(rows), random.integers(n, size=rows)] = True
    return mask


@pytest.mark.parametrize("framework", ["torch", "tf"])
@pytest.mark.parametrize("space", [FIVE, spaces.Box(-1, 1, (3,), np.float32)], ids=str)
def test_a_distribution_can_be_rebuilt_from_its_inputs(catalog, framework, space):
    policy = catalog.build(BOX, space, SMALL, framework)
    step = policy.act(observations(n=50))
    policy.model.set_weights({name: array + 1 for name, array in policy.model.get_weights().items()})
    np.testing.assert_allclose(rebuilt_logp(policy, step), step.logp, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("framework", ["torch", "tf"])
def test_a_mask_stands_in_the_inputs(catalog, framework):
    policy, rows = catalog.build(BOX, FIVE, SMALL, framework), 3000
    obs, mask = np.stack(observations(n=rows)), masks(rows)
    for step in (policy.act(obs, mask=mask), policy.act(obs, mask=mask.astype(np.int8), explore=False)):
        chosen = step.action - 2
        assert mask[np.arange(rows), chosen].all()
        np.testing.assert_allclose(rebuilt_logp(policy, step), step.logp, rtol=1e-5, atol=1e-6)
        np.testing.assert_array_equal(step.dist_inputs[~mask], np.finfo(np.float32).min)
        # By hand: a softmax over the allowed logits.
        free = policy.act(obs, explore=False).dist_inputs
        expected = special.log_softmax(np.where(mask, free, -np.inf), axis=1)[np.arange(rows), chosen]
        np.testing.assert_allclose(step.logp, expected, rtol=1e-4, atol=1e-5)
        batch = {"obs": policy.preprocess(obs), "raw_action": step.raw_action}
        found, blind = policy.evaluate({**batch, "mask": mask}), policy.evaluate(batch)
        logp, other = ((x.logp.detach() if framework == "torch" else x.logp) for x in (found, blind))
        np.testing.assert_allclose(logp, step.logp, rtol=1e-4, atol=1e-5)
        assert not np.allclose(other, step.logp, atol=1e-3)  # the control
        assert np.isfinite(np.asarray(found.entropy.detach() if framework == "torch" else found.entropy)).all()


def test_masks_in_any_form(catalog):
    policy, obs, mask = catalog.build(BOX, FIVE, SMALL), observations(n=4), masks(4)
    for form in (mask, mask.astype(np.int8), mask.astype(np.float32), mask.tolist()):
        step = policy.act(obs, mask=form)
        assert mask[np.arange(4), step.action - 2].all()


def test_a_row_that_allows_nothing_is_named(catalog):
    policy, mask = catalog.build(BOX, FIVE, SMALL), masks(4)
    mask[2] = False
    with pytest.raises(ActionMaskError, match="mask: row 2 allows no action; each row must allow at least one"):
        policy.act(observations(n=4), mask=mask)


@pytest.mark.parametrize("shape", [(5,), (4, 4), (3, 5), (4, 5, 1)])
def test_a_mask_of_the_wrong_shape_is_refused(catalog, shape):
    with pytest.raises(ActionMaskError, match=r"mask: expected shape \(4, 5\), found"):
        catalog.build(BOX, FIVE, SMALL).act(observations(n=4), mask=np.ones(shape, bool))


def test_a_mask_for_a_box_is_refused(catalog):
    with pytest.raises(NotServedError, match=r"action: masks are served for Discrete actions so far, found Box\(2,\)"):
        catalog.build(BOX, spaces.Box(-1, 1, (2,)), SMALL).act(observations(n=1), mask=np.ones((1, 2)))


# --- trunk, memory, head ---------------------------------------------------------------------------------------------


class RecallConfig(msgspec.Struct, frozen=True, kw_only=True):
    __module__ = "made_up_recall"

    recall_cell: int = 0
    recall_head: bool = False


BUILT = []


class Recall(TorchModelV2):
    """A memory: a cell around its trunk."""

    is_memory = True

    def __init__(self, obs_space, action_space, num_outputs, model_config, name, trunk):
        super().__init__(obs_space, action_space, num_outputs, model_config, name)
        BUILT.append(("memory", num_outputs, trunk))
        self.trunk, self.size = trunk, model_config["recall_cell"]
        self.cell = nn.GRUCell(trunk.num_outputs, self.size)
        self.num_outputs = self.size if num_outputs is None else num_outputs
        self.logits = self.value = None
        if num_outputs is not None:
            self.logits, self.value = nn.Linear(self.size, num_outputs), nn.Linear(self.size, 1)

    def forward(self, input_dict, state, seq_lens):
        features, _ = self.trunk(input_dict)
        self.features = self.cell(features, state[0])
        return (self.features if self.logits is None else self.logits(self.features)), [self.features]

    def value_function(self):
        return self.value(self.features)[:, 0]

    def get_initial_state(self):
        return [torch.zeros(self.size)]


class Head(TorchModelV2):
    """A head: one more layer around what it holds."""

    def __init__(self, obs_space, action_space, num_outputs, model_config, name, trunk):
        super().__init__(obs_space, action_space, num_outputs, model_config, name)
        BUILT.append(("head", num_outputs, trunk))
        self.trunk = trunk
        self.layer = nn.Linear(trunk.num_outputs, num_outputs)

    def forward(self, input_dict, state, seq_lens):
        features, new_state = self.trunk(input_dict, state, seq_lens)
        return self.layer(features), new_state

    def get_initial_state(self):
        return self.trunk.get_initial_state()


class Noted(FullyConnectedNetwork):
    """A trunk that says how it was built."""

    def __init__(self, obs_space, action_space, num_outputs, model_config, name):
        BUILT.append(("trunk", num_outputs, None))
        super().__init__(obs_space, action_space, num_outputs, model_config, name)


class EntryPoint:
    """What discovery would find for an installed plugin."""

    name, value = "recall", "made_up_recall.plugin"

    def __init__(self, plugin):
        metadata = Message()
        metadata["Name"], metadata["Version"] = "made-up-recall", "1.0"
        self.dist, self.plugin = SimpleNamespace(metadata=metadata), plugin

    def load(self):
        return self.plugin


@pytest.fixture
def recall(monkeypatch):
    """A catalog with a plugin that declares a memory and a head."""
    module = ModuleType("made_up_recall")
    vars(module).update(Recall=Recall, Head=Head, RecallConfig=RecallConfig)
    monkeypatch.setitem(sys.modules, "made_up_recall", module)

    def when(key):
        return lambda r: Match(Rank.SPECIFIC, f"{key} is set") if r.config[key] else NoMatch(f"{key} is not set")

    config = "made_up_recall:RecallConfig"
    specs = [
        ModelSpec("recall", {"torch": "made_up_recall:Recall"}, "a cell", match=when("recall_cell"), config=config,
                  slot="memory"),
        ModelSpec("recall_head", {"torch": "made_up_recall:Head"}, "a layer", match=when("recall_head"), config=config,
                  slot="head"),
    ]  # fmt: skip
    plugin = ModuleType("made_up_plugin")
    plugin.rlcatalog_models = rlcatalog.hookimpl(lambda: specs)
    BUILT.clear()
    return Catalog([*scan(), EntryPoint(plugin)], environ={"RLCATALOG_STRICT_PLUGINS": "1"})


def test_a_trunk_announces_its_width():
    for hiddens, width in (([], 4), ([8], 8), ([8, 6], 6)):
        for framework in ("torch", "tf"):
            model = ModelCatalog.get_model_v2(BOX, TWO, None, {"fcnet_hiddens": hiddens}, framework)
            assert model.num_outputs == width
            convert = torch.from_numpy if framework == "torch" else tf.constant
            output, _ = model({"obs": convert(np.stack(observations()))})
            assert tuple(output.shape) == (6, width)


def test_a_memory_holds_its_trunk_and_is_built_after_it(recall):
    policy = recall.build(BOX, TWO, {"custom_model": Noted, "recall_cell": 5, **SMALL})
    model = policy.model
    assert type(model) is Recall
    assert type(model.trunk) is Noted
    assert [entry[:2] for entry in BUILT] == [("trunk", None), ("memory", 2)]
    assert BUILT[1][2] is model.trunk
    assert model.trunk.num_outputs == 8
    assert model.trunk.logits is None  # logits and value belong to the outermost part
    found = policy.explain().as_dict()
    assert (found["memory"]["chosen"], found["memory"]["distribution"]) == ("recall", "made-up-recall")
    assert found["memory"]["config_keys"] == ["recall_cell", "recall_head"]
    assert found["head"]["chosen"] is None
    # Acting and training, as with any recurrent model; parameters of the trunk are the memory's.
    obs = np.stack(observations(n=2))
    first = policy.act(obs)
    second = policy.act(obs, first.state)
    assert first.state[0].shape == (2, 5)
    assert not np.allclose(first.dist_inputs, second.dist_inputs)
    evaluation = policy.evaluate({"obs": obs, "raw_action": second.raw_action, "state": first.state})
    np.testing.assert_allclose(evaluation.logp.detach(), second.logp, rtol=1e-5)
    (evaluation.logp.sum() + evaluation.value.sum()).backward()
    assert all(p.grad is not None for p in model.parameters())
    assert {name.split(".")[0] for name, _ in model.named_parameters()} == {"trunk", "cell", "logits", "value"}


def test_a_head_is_built_after_the_memory(recall):
    policy = recall.build(BOX, TWO, {"custom_model": Noted, "recall_cell": 5, "recall_head": True, **SMALL})
    model = policy.model
    assert [type(part) for part in (model, model.trunk, model.trunk.trunk)] == [Head, Recall, Noted]
    assert [entry[:2] for entry in BUILT] == [("trunk", None), ("memory", None), ("head", 2)]
    assert model.layer.in_features == 5
    step = policy.act(observations())
    assert step.dist_inputs.shape == (6, 2)
    assert step.value is None
    assert step.state[0].shape == (6, 5)


def test_a_head_without_a_memory(recall):
    policy = recall.build(BOX, TWO, {"recall_head": True, **SMALL})
    assert type(policy.model) is Head
    assert type(policy.model.trunk) is FullyConnectedNetwork
    assert policy.act(observations()).state is None


def test_without_their_keys_neither_is_chosen(recall):
    policy = recall.build(BOX, TWO, SMALL)
    assert type(policy.model) is FullyConnectedNetwork
    found = policy.explain().as_dict()["memory"]
    assert found["chosen"] is None
    assert [(c["name"], c["reason"]) for c in found["candidates"]] == [("recall", "recall_cell is not set")]


def test_a_recurrent_trunk_is_refused_by_a_memory(recall):
    class Trunk(TorchRNN):
        def __init__(self, obs_space, action_space, num_outputs, model_config, name):
            super().__init__(obs_space, action_space, num_outputs or 3, model_config, name)

    with pytest.raises(NotServedError, match=r"Trunk is recurrent itself \(get_initial_state\(\) is not em"):
        recall.build(BOX, TWO, {"custom_model": Trunk, "recall_cell": 5})
    # A head takes it.
    policy = recall.build(BOX, TWO, {"custom_model": Trunk, "recall_head": True})
    assert [part.shape for part in policy.act(observations()).state] == [(6, 6)] * 2


def test_a_trunk_that_does_not_announce_its_width_is_refused(recall):
    class Silent(TorchModelV2):
        def forward(self, input_dict, state, seq_lens):
            return input_dict["obs"], state

    with pytest.raises(ModelContractError, match=r"Silent was built as the trunk of Recall.*self\.num_outputs"):
        recall.build(BOX, TWO, {"custom_model": Silent, "recall_cell": 5})


def test_a_wrapped_custom_model_gets_its_keyword_arguments(recall):
    # RLlib dropped them all once an LSTM was wrapped around the model.
    class Sized(FullyConnectedNetwork):
        def __init__(self, obs_space, action_space, num_outputs, model_config, name, width):
            super().__init__(obs_space, action_space, num_outputs, {**model_config, "fcnet_hiddens": [width]}, name)

    config = {"custom_model": Sized, "custom_model_config": {"width": 11}, "recall_cell": 5}
    assert recall.build(BOX, TWO, config).model.trunk.num_outputs == 11


# --- interfaces ------------------------------------------------------------------------------------------------------


class DuelingQModel(TorchModelV2):
    """The page's example of an API on top of a default model: a dueling head."""

    def __init__(self, obs_space, action_space, num_outputs, model_config, name):
        # Pass num_outputs=None into super constructor (so that no action/logits output layer is built).
        super(DuelingQModel, self).__init__(obs_space, action_space, None, model_config, name)  # noqa: UP008
        self.A = nn.Linear(self.num_outputs, action_space.n)
        self.V = nn.Linear(self.num_outputs, 1)

    def get_q_values(self, underlying_output):
        v, a = self.V(underlying_output), self.A(underlying_output)
        return v + (a - a.mean(dim=1, keepdim=True))


class TFDuelingQModel(TFModelV2):
    """The same in TensorFlow."""

    def __init__(self, obs_space, action_space, num_outputs, model_config, name):
        super(TFDuelingQModel, self).__init__(obs_space, action_space, None, model_config, name)  # noqa: UP008
        x = tf.keras.layers.Input(shape=(self.num_outputs,))
        # Keras 3 takes no NumPy integer, which Discrete.n is.
        a, v = tf.keras.layers.Dense(int(action_space.n))(x), tf.keras.layers.Dense(1)(x)
        self.heads = tf.keras.Model(x, [a, v])

    def get_q_values(self, underlying_output):
        a, v = self.heads(underlying_output)
        return v + (a - tf.reduce_mean(a, axis=1, keepdims=True))


class PlainMixin:
    """An interface need not be a model."""

    def __init__(self, obs_space, action_space, num_outputs, model_config, name):
        super().__init__(obs_space, action_space, None, model_config, name)
        self.doubled_width = 2 * self.num_outputs

    def doubled(self, output):
        return 2 * output


def build_interface(interface, framework="torch", config=None, catalog=None):
    catalog = catalog or default_catalog()
    return catalog.model_v2(BOX, TWO, 2, config or SMALL, framework, "my_dueling_model", interface)


@pytest.mark.parametrize(("framework", "interface"), [("torch", DuelingQModel), ("tf", TFDuelingQModel)])
def test_an_interface_over_the_default_model(framework, interface):
    model = ModelCatalog.get_model_v2(
        obs_space=BOX, action_space=TWO, num_outputs=2, model_config={"fcnet_hiddens": [8, 6]}, framework=framework,
        model_interface=interface, name="my_dueling_model",
    )  # fmt: skip
    assert isinstance(model, interface)
    assert model.num_outputs == 6
    assert model.name == "my_dueling_model"
    x = np.stack(observations())
    convert = torch.from_numpy if framework == "torch" else tf.constant
    output, state = model({"obs": convert(x)})
    assert state == []
    q = model.get_q_values(output)
    assert model.last_output() is output
    # By hand.
    weights = model.get_weights()
    for i in range(2):
        x = np.tanh(x @ weights[f"inner.hidden.layers.{i}.weight"].T + weights[f"inner.hidden.layers.{i}.bias"])
    np.testing.assert_allclose(output.detach() if framework == "torch" else output, x, rtol=1e-4, atol=1e-5)
    if framework == "torch":
        a, v = (x @ weights[f"{name}.weight"].T + weights[f"{name}.bias"] for name in "AV")
        np.testing.assert_allclose(q.detach(), v + a - a.mean(axis=1, keepdims=True), rtol=1e-4, atol=1e-5)
        q.sum().backward()
        assert all(p.grad is not None for p in model.parameters())
        assert set(weights) == set(model.state_dict())
    else:
        assert q.shape == (6, 2)
        assert len(model.trainable_variables()) == 4 + 4
        # Advantages sum to zero: what is left of the sum of q is n times the state's value.
        _, v = model.heads(output)
        np.testing.assert_allclose(tf.reduce_sum(q, axis=1), 2 * v[:, 0], rtol=1e-4, atol=1e-5)


def test_an_interface_is_mixed_over_one_documented_host():
    from rlcatalog.torch.host import TorchHost

    model = build_interface(DuelingQModel)
    assert type(model).__mro__[1:4] == (DuelingQModel, TorchHost, TorchModelV2)
    assert isinstance(model, TorchHost)
    assert type(model.inner) is FullyConnectedNetwork  # no class was made for it
    assert TorchHost.__doc__
    ran = []
    model.register_forward_hook(lambda *_: ran.append(1))
    model({"obs": torch.zeros(1, 4)})
    assert ran == [1]


def test_an_interface_over_a_custom_model():
    model = build_interface(DuelingQModel, config={"custom_model": Noted, "fcnet_hiddens": [5]})
    assert type(model.inner) is Noted
    assert model.A.in_features == 5


def test_an_interface_is_the_last_of_all(recall):
    config = {"custom_model": Noted, "recall_cell": 5, "recall_head": False, **SMALL}
    model = build_interface(DuelingQModel, config=config, catalog=recall)
    assert [type(model.inner), type(model.inner.trunk)] == [Recall, Noted]
    assert [entry[:2] for entry in BUILT] == [("trunk", None), ("memory", None)]
    # RLlib could not build this one: the dueling head over a memory, on the memory's width.
    assert model.A.in_features == model.num_outputs == 5
    assert [part.shape for part in model.get_initial_state()] == [(5,)]
    output, state = model({"obs": torch.zeros(3, 4)}, [torch.zeros(3, 5)], torch.ones(3, dtype=torch.int32))
    assert model.get_q_values(output).shape == (3, 2)
    assert state[0].shape == (3, 5)


def test_an_interface_that_is_a_plain_mixin():
    model = build_interface(PlainMixin)
    output, _ = model({"obs": torch.zeros(1, 4)})
    torch.testing.assert_close(model.doubled(output), 2 * output)
    assert model.doubled_width == 16


def test_a_model_that_has_the_interface_already_is_left_alone():
    class Whole(DuelingQModel):
        def __init__(self, obs_space, action_space, num_outputs, model_config, name):
            TorchModelV2.__init__(self, obs_space, action_space, num_outputs, model_config, name)
            self.A, self.V = nn.Linear(4, 2), nn.Linear(4, 1)

        def forward(self, input_dict, state, seq_lens):
            return input_dict["obs"], state

    model = build_interface(DuelingQModel, config={"custom_model": Whole})
    assert type(model) is Whole
    assert model.get_q_values(model({"obs": torch.zeros(3, 4)})[0]).shape == (3, 2)


class ContActionQModel(TorchModelV2):
    """The page's second example: one Q-value for an observation and an action."""

    def __init__(self, obs_space, action_space, num_outputs, model_config, name):
        super(ContActionQModel, self).__init__(obs_space, action_space, None, model_config, name)  # noqa: UP008
        combined = spaces.Box(-1.0, 1.0, (self.num_outputs + action_space.shape[0],))
        self.q_head = FullyConnectedNetwork(combined, action_space, 1, model_config, "q_head")

    def get_single_q_value(self, underlying_output, action):
        q_out, _ = self.q_head({"obs": torch.cat([underlying_output, action], dim=-1)})
        return q_out


def test_the_pages_single_q_value():
    actions = spaces.Box(-1, 1, (2,), np.float32)
    model = ModelCatalog.get_model_v2(BOX, actions, 4, SMALL, "torch", "q", ContActionQModel)
    output, _ = model({"obs": torch.zeros(3, 4)})
    q = model.get_single_q_value(output, torch.zeros(3, 2))
    assert q.shape == (3, 1)
    assert not torch.allclose(model.get_single_q_value(output, torch.ones(3, 2)), q)
