"""The contract on paper: interfaces over a default model."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
import torch
from gymnasium import spaces
from gymnasium.spaces import Discrete
from seed_models import DuelingQModel
from torch import nn

from rlcatalog import ModelCatalog
from rlcatalog.catalog import default_catalog
from rlcatalog.errors import ModelContractError
from rlcatalog_tf import TFModelV2
from rlcatalog_torch import FullyConnectedNetwork, TorchModelV2

pytestmark = pytest.mark.usefixtures("one_thread", "seeded")

BOX, TWO = spaces.Box(-1, 1, (4,), np.float32), Discrete(2)
SMALL = {"fcnet_hiddens": [8]}


def observations(space=BOX, n=6, seed=0):
    space.seed(seed)
    return [space.sample() for _ in range(n)]


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


@pytest.mark.parametrize(
    ("framework", "interface"), [("torch", DuelingQModel), ("tf", TFDuelingQModel)]
)
def test_an_interface_over_the_default_model(framework, interface):
    model = ModelCatalog.get_model_v2(
        obs_space=BOX,
        action_space=TWO,
        num_outputs=2,
        model_config={"fcnet_hiddens": [8, 6]},
        framework=framework,
        model_interface=interface,
        name="my_dueling_model",
    )
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
        x = np.tanh(
            x @ weights[f"inner.hidden.layers.{i}.weight"].T
            + weights[f"inner.hidden.layers.{i}.bias"]
        )
    np.testing.assert_allclose(
        output.detach() if framework == "torch" else output, x, rtol=1e-4, atol=1e-5
    )
    if framework == "torch":
        a, v = (x @ weights[f"{name}.weight"].T + weights[f"{name}.bias"] for name in "AV")
        np.testing.assert_allclose(
            q.detach(), v + a - a.mean(axis=1, keepdims=True), rtol=1e-4, atol=1e-5
        )
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
    from rlcatalog_torch.model import TorchHost

    model = build_interface(DuelingQModel)
    assert type(model).__mro__[1:3] == (DuelingQModel, TorchHost)
    assert isinstance(model, TorchHost)
    assert type(model.inner) is FullyConnectedNetwork  # no class was made for it
    assert TorchHost.__doc__
    ran = []
    model.register_forward_hook(lambda *_: ran.append(1))
    model({"obs": torch.zeros(1, 4)})
    assert ran == [1]


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


def test_an_interface_over_a_model_without_a_width_says_so():
    class Nameless(TorchModelV2):
        def forward(self, input_dict, state, seq_lens):
            return input_dict["obs"], state

    with pytest.raises(
        ModelContractError,
        match=r"Nameless was built as the trunk of DuelingQModel, .*did not set self.num_outputs",
    ):
        ModelCatalog.get_model_v2(
            BOX, TWO, None, {"custom_model": Nameless}, model_interface=DuelingQModel
        )
