"""Models of other precisions in TensorFlow: Keras' floatx, its mixed precision, variables of
float64.
"""

from __future__ import annotations

import contextlib

import keras
import numpy as np
import pytest
import tensorflow as tf
import torch
from action_kinds import ACTIONS as EVERY_ACTION, PAIR, Anything
from gymnasium.spaces import Box, Dict, Discrete, MultiDiscrete, Tuple

import rlcatalog
from rlcatalog.actions import entropy_of
from rlcatalog.errors import NotServedError
from rlcatalog_tf import RecurrentNetwork, TFModelV2

pytestmark = pytest.mark.usefixtures("one_thread", "seeded")

DOUBLE = Box(-1, 1, (2,), np.float64)
NESTED = Tuple([Discrete(3), Dict({"aim": PAIR, "grip": MultiDiscrete([2, 3])})])
DEPENDENT = {"use_autoregressive": True, "autoregressive_hiddens": [4]}
LSTM = {
    "use_lstm": True,
    "lstm_cell_size": 6,
    "lstm_use_prev_action": True,
    "lstm_use_prev_reward": True,
}
ATTENTION = {
    "use_attention": True,
    "attention_dim": 8,
    "attention_head_dim": 4,
    "attention_memory_inference": 5,
    "attention_memory_training": 5,
    "attention_use_n_prev_actions": 2,
}


@contextlib.contextmanager
def keras_in(precision):
    """Let Keras make its layers in a precision: a floatx, or a policy of mixed precision."""
    keras.utils.set_random_seed(0)  # its initialisers have a seed of their own
    floatx, policy = keras.backend.floatx(), keras.mixed_precision.dtype_policy()
    try:
        if precision.startswith("mixed"):
            keras.mixed_precision.set_dtype_policy(precision)
        else:
            keras.backend.set_floatx(precision)
            keras.mixed_precision.set_dtype_policy(precision)
        yield
    finally:
        keras.backend.set_floatx(floatx)
        keras.mixed_precision.set_dtype_policy(policy)


class InKeras(TFModelV2):
    """Keras layers as they come, which make their variables at their first call."""

    def __init__(self, obs_space, action_space, num_outputs, model_config, name):
        super().__init__(obs_space, action_space, num_outputs, model_config, name)
        self.num_outputs = num_outputs or 5
        self.body = keras.layers.Dense(self.num_outputs, activation="tanh")
        self.value = None if num_outputs is None else keras.layers.Dense(1)

    def forward(self, input_dict, state, seq_lens):
        self.given = input_dict["obs_flat"].dtype
        if self.value is not None:
            self._v = self.value(input_dict["obs_flat"])
        return self.body(input_dict["obs_flat"]), state

    def value_function(self):
        return tf.reshape(self._v, [-1])


class Raw(InKeras):
    """Variables of one's own, in the precision of Keras' floatx; TensorFlow multiplies like with
    like only.
    """

    def __init__(self, obs_space, action_space, num_outputs, model_config, name):
        TFModelV2.__init__(self, obs_space, action_space, num_outputs, model_config, name)
        size, dtype = int(np.prod(obs_space.shape)), keras.backend.floatx()
        self.num_outputs = num_outputs or 5
        self.body = tf.Variable(tf.cast(tf.random.normal([size, self.num_outputs]), dtype))
        self.last = tf.Variable(tf.cast(tf.random.normal([size, 1]), dtype))

    def forward(self, input_dict, state, seq_lens):
        self.given = input_dict["obs_flat"].dtype
        self._v = tf.matmul(input_dict["obs_flat"], self.last)
        return tf.matmul(input_dict["obs_flat"], self.body), state


class Recurrent(RecurrentNetwork):
    """Variables of one's own, and a state that begins as RLlib's models begin it."""

    def __init__(self, obs_space, action_space, num_outputs, model_config, name):
        super().__init__(obs_space, action_space, num_outputs, model_config, name)
        dtype = keras.backend.floatx()
        self.kernel = tf.Variable(tf.cast(tf.random.normal([6, 4]), dtype))
        self.body = tf.Variable(tf.cast(tf.random.normal([4, num_outputs + 1]), dtype))

    def get_initial_state(self):
        return [np.zeros(4, np.float32)]

    def forward_rnn(self, inputs, state, seq_lens):
        h, found = state[0], []
        for t in range(
            2 if inputs.shape[1] is None and tf.executing_eagerly() else inputs.shape[1] or 1
        ):
            h = tf.tanh(tf.matmul(tf.concat([inputs[:, t], h], axis=1), self.kernel))
            found.append(h)
        y = tf.matmul(
            tf.stack(found, axis=1), tf.repeat(self.body[None], tf.shape(inputs)[0], axis=0)
        )
        self._v = tf.reshape(y[..., -1], [-1])
        return y[..., :-1], [h]

    def value_function(self):
        return self._v


def check(policy, wide, steps=2):
    """Act, and score what was done: all finite and of the promised precision, and the scores those
    of acting.
    """
    rng = np.random.default_rng(0)
    encoded, state, found = policy.preprocess(rng.uniform(-1, 1, (3, 2))), None, []
    for _ in range(steps):
        found.append(policy.act_encoded(encoded, state, prev_reward=np.ones(3)))
        state = found[-1].state
    for step in found:
        for name in ("logp", "value", "dist_inputs"):
            assert getattr(step, name).dtype == wide, name
            assert np.isfinite(getattr(step, name)).all(), name
        assert step.raw_action.dtype in (wide, np.int64)
    np.testing.assert_allclose(
        policy.values(encoded, prev_reward=np.ones(3)), found[0].value, rtol=1e-6
    )
    rows = lambda name: np.stack([getattr(s, name) for s in found], 1).reshape(3 * steps, -1)  # noqa: E731
    batch = {
        "obs": np.repeat(encoded, steps, axis=0),
        **{n: rows(n) for n in ("raw_action", "dist_inputs")},
    }
    if policy.memory:
        batch["seq_lens"] = np.full(3, steps)
    if state is not None and state.seen:
        batch["views"] = {
            name: tf.nest.map_structure(
                lambda *x: np.stack(x, 1).reshape(3 * steps, *x[0].shape[1:]),
                *[step.state.seen[name] for step in found],
            )
            for name in state.seen
        }
    with tf.GradientTape() as tape:
        result = policy.evaluate(batch)
        loss = tf.reduce_sum(result.logp) + tf.reduce_sum(result.value) + tf.reduce_sum(result.kl)
    # Half precision rounds otherwise in another batch.
    tolerance = 1e-10 if wide == np.float64 else 0.1
    np.testing.assert_allclose(result.logp, rows("logp")[:, 0], rtol=0, atol=tolerance)
    np.testing.assert_allclose(result.value, rows("value")[:, 0], rtol=0, atol=tolerance)
    variables = policy.model.trainable_variables()
    gradients = tape.gradient(loss, variables, unconnected_gradients="zero")
    assert all(np.isfinite(tf.cast(g, tf.float32)).all() for g in gradients)
    return policy.model


CASES = [
    (InKeras, "float64", tf.float64, Discrete(3), {}),
    (InKeras, "float16", tf.float16, NESTED, {}),
    (InKeras, "bfloat16", tf.bfloat16, PAIR, {}),
    (InKeras, "mixed_float16", tf.float32, NESTED, {}),
    (InKeras, "mixed_bfloat16", tf.float32, PAIR, {}),
    (Raw, "float64", tf.float64, NESTED, {}),
    (Raw, "float16", tf.float16, Discrete(3), {}),
    (Recurrent, "float64", tf.float64, PAIR, {}),
    (Recurrent, "float16", tf.float16, Discrete(3), {}),
]


def label(value):
    return getattr(value, "__name__", None) or (value if isinstance(value, str) else "")


@pytest.mark.parametrize(("model", "precision", "given", "action", "config"), CASES, ids=label)
def test_models_of_ones_own_are_given_what_their_variables_are(
    model, precision, given, action, config
):
    with keras_in(precision):
        policy = rlcatalog.build(DOUBLE, action, {"custom_model": model, **config})
        made = check(policy, np.float64 if given == tf.float64 else np.float32)
    if model is not Recurrent:
        assert made.given == given


@pytest.mark.parametrize(
    ("config", "precision"),
    [
        pytest.param(LSTM, "float64", id="lstm-float64"),
        pytest.param(LSTM, "mixed_float16", id="lstm-mixed_float16"),
        pytest.param(ATTENTION, "float64", id="attention-float64", marks=pytest.mark.attack),
        pytest.param(DEPENDENT, "float64", id="autoregressive-float64"),
        pytest.param(
            ATTENTION, "mixed_float16", id="attention-mixed_float16", marks=pytest.mark.attack
        ),
        pytest.param(
            DEPENDENT, "mixed_float16", id="autoregressive-mixed_float16", marks=pytest.mark.attack
        ),
    ],
)
def test_custom_trunk_of_another_precision_works_with_ours(config, precision):
    model = Raw if precision == "float64" else InKeras
    with keras_in(precision):
        check(rlcatalog.build(DOUBLE, NESTED, {"custom_model": model, **config}), np.float32)


@pytest.mark.grid
@pytest.mark.parametrize("precision", ["float64", "float16", "mixed_float16"])
@pytest.mark.parametrize("config", [{}, LSTM], ids=["fcnet", "lstm"])
def test_our_own_models_are_as_they_were(config, precision):
    with keras_in(precision):
        policy = rlcatalog.build(DOUBLE, NESTED, {"fcnet_hiddens": [8], **config}, "tf")
        made = check(policy, np.float32)
        assert {v.dtype for v in made.variables()} == {tf.float32}


def test_whole_numbers_stay_whole():
    with keras_in("float64"):
        policy = rlcatalog.build(
            Box(0, 255, (2, 2, 3), np.uint8), Discrete(3), {"custom_model": Whole}
        )
        policy.act(np.full((2, 2, 2, 3), 7, np.uint8))
    assert policy.model.given == tf.uint8


class Whole(InKeras):
    """Casts whole numbers itself, as models of images do."""

    def forward(self, input_dict, state, seq_lens):
        given = input_dict["obs_flat"].dtype
        found = super().forward(
            {"obs_flat": tf.cast(input_dict["obs_flat"], self.body.compute_dtype)}, state, seq_lens
        )
        self.given = given
        return found


@pytest.mark.parametrize("kind", list(EVERY_ACTION))
def test_every_distribution_is_the_same_in_double_precision(kind):
    """The other framework is the truth; one of them in float32 anywhere would show."""
    space, config = EVERY_ACTION[kind]
    classes = {
        fw: rlcatalog.build(PAIR, space, {"fcnet_hiddens": [2], **config}, fw)
        for fw in ("torch", "tf")
    }
    width = classes["torch"].model.num_outputs
    rng = np.random.default_rng(0)
    first, second = rng.normal(size=(2, 5, width))
    ours, other = (classes["tf"].dist_class(tf.constant(x)) for x in (first, second))
    truth, against = (classes["torch"].dist_class(torch.from_numpy(x)) for x in (first, second))
    drawn = truth.sample()
    flat = lambda x: x if isinstance(x, torch.Tensor) else truth.join(x)  # noqa: E731
    raw = flat(drawn).numpy()
    np.testing.assert_allclose(
        ours.logp(tf.constant(raw)), truth.logp(flat(drawn)), rtol=1e-10, atol=1e-10
    )
    entropy, kind_of = entropy_of(ours, lambda x: x)
    if kind_of == "exact":
        np.testing.assert_allclose(entropy, truth.entropy(), rtol=1e-10, atol=1e-10)
    if config.get("custom_action_dist") != "gumbel_softmax":
        np.testing.assert_allclose(ours.kl(other), truth.kl(against), rtol=1e-10, atol=1e-10)
    sample = ours.sample()
    assert np.isfinite(ours.logp(sample)).all()
    assert entropy.dtype == tf.float64


@pytest.mark.parametrize(
    ("model", "precision"),
    [
        pytest.param(None, "float64", marks=pytest.mark.attack),
        pytest.param(InKeras, "float64", marks=pytest.mark.attack),
        (InKeras, "mixed_float16"),
    ],
    ids=label,
)
def test_ppo_trains(model, precision):
    from rlcatalog_ppo import PPO

    settings = {"fcnet_hiddens": [8]} if model is None else {"custom_model": model}
    config = {
        "num_envs": 2,
        "rollout_length": 16,
        "minibatch_size": 16,
        "num_epochs": 1,
        "seed": 0,
        "kl_coeff": 0.2,
        "lr": 0.01,
        "grad_clip": 0.5,
        "framework": "tf",
        "model": settings,
    }
    with keras_in(precision):
        algo = PPO(env=lambda: Anything(NESTED), config=config)
        before = algo.policy.model.get_weights()
        result = algo.train()
    assert np.isfinite(
        [v for v in result["info"]["learner"].values() if isinstance(v, float)]
    ).all()
    after = algo.policy.model.get_weights()
    assert all(np.isfinite(value).all() for value in after.values())
    assert any((before[name] != value).any() for name, value in after.items())


@pytest.mark.parametrize("precision", ["float16", "bfloat16"])
def test_ppo_refuses_weights_that_adam_cannot_train(precision):
    """1 - 0.999 is 0 in bfloat16, and squares of gradients are 0 in float16."""
    from rlcatalog_ppo import PPO

    config = {"num_envs": 2, "framework": "tf", "model": {"custom_model": InKeras}}
    with keras_in(precision), pytest.raises(NotServedError, match=f"{precision}.*mixed_precision"):
        PPO(env=lambda: Anything(NESTED), config=config)
