"""Sound parts in TensorFlow, which planted faults are made of."""

from __future__ import annotations

import math

import tensorflow as tf
from planted_parts import Breakable, TwoKinds

from rlcatalog_tf import TFModelV2, draw_categorical, draw_normal, steps_of

Dense = tf.keras.layers.Dense


class Net(TFModelV2):
    """A linear net; as a trunk it ends with its hidden layer."""

    def __init__(self, obs_space, action_space, num_outputs, model_config, name):
        super().__init__(obs_space, action_space, num_outputs, model_config, name)
        self.hidden = Dense(4, activation="tanh")
        self.logits = None if num_outputs is None else Dense(num_outputs)
        self.value = None if num_outputs is None else Dense(1)
        self.num_outputs = 4 if num_outputs is None else num_outputs

    def forward(self, input_dict, state, seq_lens):
        self.features = self.hidden(tf.cast(input_dict["obs_flat"], tf.float32))
        return (self.features if self.logits is None else self.logits(self.features)), state

    def value_function(self):
        return self.value(self.features)[:, 0]

    @classmethod
    def with_hidden_weight(cls):
        class Hiding(cls):
            def __init__(self, *args):
                super().__init__(*args)
                scale = tf.Variable(1.0, name="scale")
                self.scaled = lambda x: scale * x  # what a function holds is not looked for

            def forward(self, *args):
                found, state = super().forward(*args)
                return self.scaled(found), state

        return Hiding


class Memory(Breakable, TFModelV2):
    """A recurrent layer around its trunk, which it calls its body."""

    is_memory = True

    def __init__(self, obs_space, action_space, num_outputs, model_config, name, trunk):
        super().__init__(obs_space, action_space, num_outputs, model_config, name)
        self.body, self.cell = trunk, Dense(3, activation="tanh")
        self.logits = None if num_outputs is None else Dense(num_outputs)
        self.value = None if num_outputs is None else Dense(1)
        self.num_outputs = num_outputs or 3

    def forward(self, input_dict, state, seq_lens):
        features, _ = self.body(input_dict, [], seq_lens)
        h = self.begun(state[0])
        steps = 1 if input_dict.get("single_steps") else int(steps_of(features, seq_lens))
        features = self.prepared(tf.reshape(features, [-1, steps, features.shape[1]]))
        states = [None] * steps
        for t in range(steps):
            h = states[t] = self.cell(tf.concat([features[:, t], h], axis=1))
        states = tf.stack(states, axis=1)
        self.features = tf.reshape(states, [-1, 3])
        outputs = self.features if self.logits is None else self.logits(self.features)
        last_steps = tf.cast(seq_lens, tf.int32) - 1
        return outputs, [tf.gather(states, last_steps, batch_dims=1)]

    def value_function(self):
        return self.value(self.features)[:, 0]

    def get_initial_state(self):
        return [tf.zeros(3)]


class Head(TFModelV2):
    """One more layer around its trunk, and a value."""

    def __init__(
        self,
        obs_space,
        action_space,
        num_outputs,
        model_config,
        name,
        *,
        trunk,
        value_trunk,
        action_dist,
    ):
        super().__init__(obs_space, action_space, num_outputs, model_config, name)
        self.body, self.layer, self.value = trunk, Dense(num_outputs), Dense(1)

    def forward(self, input_dict, state, seq_lens):
        self.features, state = self.body(input_dict, state, seq_lens)
        return self.layer(self.features), state

    def value_function(self):
        return self.value(self.features)[:, 0]

    def get_initial_state(self):
        return self.body.get_initial_state()


class Dist(TwoKinds):
    """Choices for a Discrete, normal numbers for a Box."""

    framework_of_class = "tf"

    def __init__(self, inputs, model=None, discrete=True):
        super().__init__(inputs, model)
        self.discrete = discrete
        if discrete:
            self.logs = tf.maximum(tf.nn.log_softmax(inputs), inputs.dtype.min)
        else:
            self.means, logs = tf.split(inputs, 2, axis=1)
            self.logs = tf.clip_by_value(logs, -self.limit, self.limit)

    def sample(self):
        self.last_sample = tf.stop_gradient(self.rsample())
        return self.last_sample

    def rsample(self):
        if self.discrete:
            return draw_categorical(self.inputs)[:, 0]
        return self.means + tf.exp(self.logs) * draw_normal(tf.shape(self.means))

    def deterministic_sample(self):
        self.last_sample = tf.argmax(self.inputs, axis=1) if self.discrete else self.means
        return self.last_sample

    def logp(self, actions):
        if self.discrete:
            return tf.gather(self.logs, tf.cast(actions, tf.int64), batch_dims=1)
        z = (actions - self.means) / tf.exp(self.logs)
        return tf.reduce_sum(-0.5 * z**2 - self.logs - 0.5 * math.log(2 * math.pi), axis=1)

    def entropy(self):
        if self.discrete:
            return -tf.reduce_sum(tf.exp(self.logs) * self.logs, axis=1)
        return tf.reduce_sum(self.logs + 0.5 * math.log(2 * math.pi * math.e), axis=1)

    def kl(self, other):
        if self.discrete:
            return tf.reduce_sum(tf.exp(self.logs) * (self.logs - other.logs), axis=1)
        ratio = (tf.exp(2 * self.logs) + (self.means - other.means) ** 2) / (
            2 * tf.exp(2 * other.logs)
        )
        return tf.reduce_sum(other.logs - self.logs + ratio - 0.5, axis=1)


model, memory, head, action_dist = Net, Memory, Head, Dist
