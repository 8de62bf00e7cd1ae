"""Optimiser steps that are the same in PyTorch and TensorFlow, from equal weights and rows."""

import gymnasium as gym
import keras
import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete, MultiDiscrete

from rlcatalog.errors import NonFiniteError
from rlcatalog_ppo import A2C, PG, PPO
from rlcatalog_ppo.minibatches import minibatches
from rlcatalog_ppo.update import PPO_OBJECTIVE, UpdateHyperparameters
from rlcatalog_tf.learner import Adam

pytestmark = pytest.mark.twins

both_frameworks = pytest.mark.parametrize("framework", ["torch", "tf"])
#: Four environments, and rollouts of 16 steps in each.
SMALL = {"num_envs": 4, "rollout_length": 16, "seed": 0, "entropy_coeff": 0.01}
#: Keys that an algorithm has in addition.
OWN_KEYS = {PPO: {"minibatch_size": 16, "vf_loss_coeff": 0.5}, A2C: {"lambda_": 0.9}, PG: {}}
MODELS = {
    "fcnet": {"fcnet_hiddens": [8]},
    "lstm": {
        "fcnet_hiddens": [8],
        "max_seq_len": 5,
        "use_lstm": True,
        "lstm_cell_size": 5,
        "lstm_use_prev_action": True,
    },
    "attention": {
        "fcnet_hiddens": [8],
        "max_seq_len": 5,
        "use_attention": True,
        "attention_dim": 8,
        "attention_head_dim": 4,
        "attention_memory_inference": 6,
        "attention_memory_training": 6,
        "attention_use_n_prev_actions": 2,
        "attention_use_n_prev_rewards": 3,
    },
    "autoregressive": {"fcnet_hiddens": [8], "use_autoregressive": True},
}


class DriftEnv(gym.Env):
    """Drifts with the actions and pays for staying near 0.

    An episode ends far from 0, or is truncated after 11 steps.
    """

    observation_space = Box(-10, 10, (3,), np.float32)
    action_space = Discrete(3)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t = 0
        self.x = self.np_random.normal(size=3).astype(np.float32)
        return self.x.copy(), {}

    def step(self, action):
        self.t += 1
        noise = 0.1 * self.np_random.normal(size=3)
        self.x = (self.x + 0.3 * (np.sum(action) - 1.0) + noise).astype(np.float32)
        distance = np.abs(self.x)
        return self.x.copy(), -float(distance.mean()), bool(distance.max() > 4), self.t == 11, {}


class TwoChoicesEnv(DriftEnv):
    """`DriftEnv` with actions of two parts."""

    action_space = MultiDiscrete([3, 2])


def make_algorithm(framework, model="fcnet", algorithm=PPO, **config):
    env = TwoChoicesEnv if model == "autoregressive" else DriftEnv
    config = {
        **SMALL,
        **OWN_KEYS[algorithm],
        "framework": framework,
        "model": MODELS[model],
        **config,
    }
    return algorithm(env, config)


def collect_minibatches(algo, *, passes=8):
    """Collect a rollout; return the minibatches of 16 rows of several passes over it."""
    batch = algo._batch(algo._collector.collect(16))
    rng = np.random.default_rng(0)
    # Move probability ratios away from 1, so that some are clipped.
    batch["logp"] += rng.normal(scale=0.2, size=64).astype(np.float32)
    all_minibatches = []
    for _ in range(passes):
        all_minibatches.extend(minibatches(batch, 16, rng))
    return all_minibatches


# --- steps in both frameworks ---------------------------------------------------------------------

CONFIGS = {
    "no clipping": (PPO, {"grad_clip": None}),
    "clipping": (PPO, {"grad_clip": 0.05}),
    "KL penalty": (PPO, {"kl_coeff": 0.5}),
    "A2C": (A2C, {}),
    "A2C normalised": (A2C, {"normalize_advantage": True, "grad_clip": None}),
    "PG": (PG, {"grad_clip": None}),
}
#: What `make test` runs: each changes losses or gradients in its own way.
QUICK_MODELS_AND_CONFIGS = [
    ("fcnet", "KL penalty"),
    ("attention", "clipping"),
    ("fcnet", "A2C normalised"),
    ("autoregressive", "PG"),
]
MODELS_AND_CONFIGS = [
    *QUICK_MODELS_AND_CONFIGS,
    *(
        pytest.param(model, config, marks=pytest.mark.slow)
        for model in MODELS
        for config in ("no clipping", "clipping", "KL penalty")
        if (model, config) not in QUICK_MODELS_AND_CONFIGS
    ),
    pytest.param("lstm", "A2C", marks=pytest.mark.slow),
]
MODELS_WITHOUT_CLIPPING = [
    ("fcnet", "A2C normalised"),
    ("autoregressive", "PG"),
    *(pytest.param(model, "no clipping", marks=pytest.mark.slow) for model in MODELS),
]


def make_torch_and_tf(model, config):
    """Return one algorithm in PyTorch and in TensorFlow, with the same weights."""
    algorithm, keys = CONFIGS[config]
    torch_algo = make_algorithm("torch", model, algorithm, **keys)
    tf_algo = make_algorithm("tf", model, algorithm, **keys)
    tf_algo.policy.model.set_weights(torch_algo.policy.model.get_weights())
    return torch_algo, tf_algo


def take_step(algo, minibatch, lr):
    """Take an optimiser step; return the changes of all weights as one vector, and the metrics."""
    before = algo.policy.model.get_weights()
    figures, _ = algo._learner.minibatch_optimizer.step(
        minibatch, UpdateHyperparameters(lr, algo._learner.kl_coeff)
    )
    after = algo.policy.model.get_weights()
    changes = [(after[name].astype(float) - before[name]).ravel() for name in sorted(before)]
    return np.concatenate(changes), np.asarray(figures)


def assert_same_step(torch_algo, tf_algo, minibatch, *, lr):
    torch_change, torch_metrics = take_step(torch_algo, minibatch, lr)
    tf_change, tf_metrics = take_step(tf_algo, minibatch, lr)
    assert np.abs(torch_change).max() > 0.1 * lr
    np.testing.assert_allclose(tf_metrics, torch_metrics, rtol=1e-4, atol=1e-5)
    difference = np.linalg.norm(tf_change - torch_change)
    assert difference <= 1e-4 * np.linalg.norm(torch_change)


@pytest.mark.parametrize(("model", "config"), MODELS_AND_CONFIGS)
def test_thirtieth_step_is_same_from_state_of_other_framework(model, config):
    torch_algo, tf_algo = make_torch_and_tf(model, config)
    *first_29, thirtieth = collect_minibatches(torch_algo)[:30]
    for minibatch in first_29:
        take_step(torch_algo, minibatch, lr=1e-3)

    # What steps change are the weights and the state of the optimiser.
    tf_algo.policy.model.set_weights(torch_algo.policy.model.get_weights())
    tf_algo._learner.minibatch_optimizer.set_state(
        torch_algo._learner.minibatch_optimizer.get_state()
    )

    assert_same_step(torch_algo, tf_algo, thirtieth, lr=2e-4)


@pytest.mark.parametrize(("model", "config"), MODELS_WITHOUT_CLIPPING)
def test_moments_after_step_are_same_in_both_frameworks(model, config):
    torch_algo, tf_algo = make_torch_and_tf(model, config)
    minibatch = collect_minibatches(torch_algo)[0]
    take_step(torch_algo, minibatch, lr=1e-3)
    take_step(tf_algo, minibatch, lr=1e-3)

    expected = torch_algo._learner.minibatch_optimizer.get_state()
    actual = tf_algo._learner.minibatch_optimizer.get_state()

    # Adam has two moments for each weight.
    assert actual["first"].keys() == expected["first"].keys()
    for name, moment in expected["first"].items():
        np.testing.assert_allclose(actual["first"][name], moment, rtol=1e-3, atol=1e-6)
    # The second moments are of squares, which differ by twice as much.
    for name, moment in expected["second"].items():
        np.testing.assert_allclose(actual["second"][name], moment, rtol=2e-3, atol=1e-8)


# --- the state of an optimiser --------------------------------------------------------------------


@both_frameworks
def test_state_of_fresh_optimizer_is_zero(framework):
    algo = make_algorithm(framework, "lstm")

    state = algo._learner.minibatch_optimizer.get_state()

    assert state["step"] == 0
    assert not any(np.any(moment) for moment in state["first"].values())
    assert not any(np.any(moment) for moment in state["second"].values())


@both_frameworks
def test_state_of_optimizer_has_moment_for_each_weight(framework):
    algo = make_algorithm(framework, "lstm")
    optimizer = algo._learner.minibatch_optimizer

    for minibatch in collect_minibatches(algo)[:3]:
        optimizer.step(minibatch, UpdateHyperparameters(lr=1e-3))

    state = optimizer.get_state()
    weights = algo.policy.model.get_weights()
    assert state["step"] == 3
    assert state["first"].keys() == weights.keys()
    for name, weight in weights.items():
        assert state["first"][name].shape == weight.shape


# --- Adam and clipping ----------------------------------------------------------------------------


def adam_of_paper(weight, gradients, *, lr, epsilon):
    """Return the weight after some steps of Kingma and Ba 2015, algorithm 1."""
    first = np.zeros_like(weight)
    second = np.zeros_like(weight)
    for t, gradient in enumerate(gradients, 1):
        first = 0.9 * first + 0.1 * gradient
        second = 0.999 * second + 0.001 * gradient**2
        corrected_first = first / (1 - 0.9**t)
        corrected_second = second / (1 - 0.999**t)
        weight = weight - lr * corrected_first / (np.sqrt(corrected_second) + epsilon)
    return weight


@pytest.mark.parametrize(("dtype", "precision"), [("float32", 1e-5), ("float64", 1e-11)])
def test_tensorflow_adam_equals_paper(dtype, precision):
    # 20 gradients of five weights, about as large as epsilon, so that epsilon matters.
    gradients = np.random.default_rng(0).normal(scale=1e-3, size=(20, 5))
    variable = keras.Variable(np.ones(5, dtype), dtype=dtype)
    optimizer = Adam(learning_rate=0.125, epsilon=1e-3)  # 0.125 is exact in float32
    optimizer.build([variable])

    for gradient in gradients:
        optimizer.apply([gradient.astype(dtype)], [variable])

    expected = adam_of_paper(np.ones(5), gradients, lr=0.125, epsilon=1e-3)
    np.testing.assert_allclose(variable.numpy(), expected, rtol=precision)


def test_keras_constraint_holds_after_step():
    layer = keras.layers.Dense(3, kernel_constraint="non_neg")
    layer.build((None, 2))
    optimizer = Adam(learning_rate=2.0)
    optimizer.build([layer.kernel, layer.bias])
    kernel_gradient = np.ones((2, 3), np.float32)
    bias_gradient = np.ones(3, np.float32)

    optimizer.apply([kernel_gradient, bias_gradient], [layer.kernel, layer.bias])

    # Adam's first step is the learning rate; the kernel may not become negative.
    np.testing.assert_allclose(layer.bias.numpy(), -2.0, rtol=1e-5)
    np.testing.assert_array_equal(layer.kernel.numpy(), 0.0)


@both_frameworks
@pytest.mark.parametrize("grad_clip", [None, 0.02, 1e6])
def test_gradient_is_clipped_to_largest_norm(framework, grad_clip):
    algo = make_algorithm(framework, grad_clip=grad_clip)
    optimizer = algo._learner.minibatch_optimizer

    figures, _ = optimizer.step(collect_minibatches(algo)[0], UpdateHyperparameters(lr=1e-3))

    # Adam's first moment after one step is a tenth of the gradient.
    moments = optimizer.get_state()["first"].values()
    gradient = np.concatenate([10.0 * moment.ravel() for moment in moments])
    norm_before_clipping = figures[PPO_OBJECTIVE.metric_names.index("grad_norm")]
    if grad_clip == 0.02:
        assert norm_before_clipping > 0.1  # so the gradient must be clipped
        expected = 0.02
    else:
        expected = norm_before_clipping  # nothing to clip
    np.testing.assert_allclose(np.linalg.norm(gradient), expected, rtol=1e-3)


@pytest.mark.parametrize("measure", [True, False])
def test_error_of_nan_loss_shows_entropy(measure):
    algo = make_algorithm("torch", entropy_coeff=0.0)
    minibatch = collect_minibatches(algo)[0]
    minibatch["target"] = np.full_like(minibatch["target"], np.nan)

    # The entropy of three about equally likely actions is log(3) = 1.0986.
    with pytest.raises(NonFiniteError, match=r"vf_loss nan, entropy 1\.09"):
        algo._learner.minibatch_optimizer.step(
            minibatch, UpdateHyperparameters(lr=1e-3), check_rows=False, measure=measure
        )
