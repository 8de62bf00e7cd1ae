"""The toy trunk of `faulty_parts` in TensorFlow, and the same with one line broken."""

from __future__ import annotations

import math

import tensorflow as tf
from faulty_parts import AcmeConfig

from rlcatalog.config import read_config
from rlcatalog.models import DenseSpec, output_spec
from rlcatalog_tf import Dense, TFModelV2


class Net(TFModelV2):
    """One layer, logits and value."""

    def __init__(self, obs_space, action_space, num_outputs, model_config, name):
        super().__init__(obs_space, action_space, num_outputs, model_config, name)
        self.width = read_config(self.model_config, AcmeConfig).acme_width
        self.layer = Dense(
            math.prod(obs_space.shape), DenseSpec(self.width, weights="xavier_uniform")
        )
        self.logits = self.value = None
        if num_outputs is None:
            self.num_outputs = self.width
        else:
            self.logits, self.value = (
                Dense(self.width, output_spec(num_outputs)),
                Dense(self.width, output_spec(1)),
            )

    def features(self, input_dict):
        return tf.tanh(self.layer(tf.cast(input_dict["obs_flat"], tf.float32)))

    def forward(self, input_dict, state, seq_lens):
        self.last = self.features(input_dict)
        return (self.last if self.logits is None else self.logits(self.last)), state

    def value_function(self):
        return self.value(self.last)[:, 0]


class AnotherActivation(Net):
    def features(self, input_dict):
        return tf.nn.relu(self.layer(tf.cast(input_dict["obs_flat"], tf.float32)))


class EagerBranch(Net):
    def features(self, input_dict):
        found = super().features(input_dict)
        return found if tf.executing_eagerly() else -found
