"""The plain modules of `plain_nets` in Keras."""

from __future__ import annotations

import math

from plain_nets import width_of

from rlcatalog_tf import keras, tf


class PlainNet(keras.Model):
    """All that is observed side by side, of images the mean of each of three channels, and one
    layer.
    """

    def __init__(self, space, hidden=6):
        super().__init__()
        self.layer = keras.layers.Dense(hidden, activation="tanh")
        self.layer.build((None, width_of(space)))

    def call(self, obs):
        return self.layer(self.joined(obs))

    def joined(self, obs):
        if tf.is_tensor(obs):
            return (
                tf.reduce_mean(obs, [1, 2])
                if len(obs.shape) == 4
                else tf.reshape(obs, [-1, math.prod(obs.shape[1:])])
            )
        parts = obs.values() if isinstance(obs, dict) else obs
        return tf.concat([self.joined(part) for part in parts], axis=1)


class PlainPair(keras.Model):
    """A plain module that gives logits and value itself."""

    def __init__(self, space, num_outputs):
        super().__init__()
        self.layer = keras.layers.Dense(num_outputs + 1)

    def call(self, obs):
        both = self.layer(obs)
        return both[:, :-1], both[:, -1:]


class PlainMemory(keras.layers.Layer):
    """A memory of one step, whose state is a dict."""

    def __init__(self, width, hidden=5):
        super().__init__()
        self.hidden = hidden
        self.layer = keras.layers.Dense(hidden)
        self.layer.build((None, width + hidden))

    def initial_state(self, batch_size):
        return {"h": tf.zeros([batch_size, self.hidden])}

    def call(self, x, state):
        h = tf.tanh(self.layer(tf.concat([x, state["h"]], axis=1)))
        return h, {"h": h}
