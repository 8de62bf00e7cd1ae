"""Each algorithm is one: the same weights, rows and config give the same optimiser step in PyTorch
and TensorFlow.
"""

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete, MultiDiscrete

from rlcatalog.errors import NonFiniteError
from rlcatalog_ppo import A2C, PG, PPO
from rlcatalog_ppo.learner import minibatches, optimizer_of
from rlcatalog_ppo.loss import Rates
from rlcatalog_tf.learner import Adam

pytestmark = pytest.mark.twins

SMALL = {"num_envs": 4, "rollout_length": 16, "seed": 0, "entropy_coeff": 0.01}
OWN = {PPO: {"minibatch_size": 16, "vf_loss_coeff": 0.5}, A2C: {"lambda_": 0.9}, PG: {}}
NET = {"fcnet_hiddens": [8]}
MODELS = {
    "fcnet": NET,
    "lstm": {
        **NET,
        "max_seq_len": 5,
        "use_lstm": True,
        "lstm_cell_size": 5,
        "lstm_use_prev_action": True,
    },
    "attention": {
        **NET,
        "max_seq_len": 5,
        "use_attention": True,
        "attention_dim": 8,
        "attention_head_dim": 4,
        "attention_memory_inference": 6,
        "attention_memory_training": 6,
        "attention_use_n_prev_actions": 2,
        "attention_use_n_prev_rewards": 3,
    },
    "autoregressive": {**NET, "use_autoregressive": True},
}
CONFIGS = {
    "plain": (PPO, {"grad_clip": None}),
    "clipped": (PPO, {"grad_clip": 0.05}),
    "divergence": (PPO, {"kl_coeff": 0.5}),
    "A2C": (A2C, {}),
    "A2C normalised": (A2C, {"normalize_advantage": True, "grad_clip": None}),
    "PG": (PG, {"grad_clip": None}),
}
#: Each way to change the loss or the gradients once; `make attack` runs the other pairs.
CASES = [
    *(
        (model, config)
        if (model, config) in [("fcnet", "divergence"), ("attention", "clipped")]
        else pytest.param(model, config, marks=pytest.mark.attack)
        for model in MODELS
        for config, (algorithm, _) in CONFIGS.items()
        if algorithm is PPO
    ),
    ("fcnet", "A2C normalised"),
    pytest.param("lstm", "A2C", marks=pytest.mark.attack),
    ("autoregressive", "PG"),
]


class Drift(gym.Env):
    """Drifts with the actions; pays for staying near 0; is cut after some steps, or
    ends by itself.
    """

    observation_space = Box(-10, 10, (3,), np.float32)

    def __init__(self, config=None):
        self.action_space = MultiDiscrete([3, 2]) if (config or {}).get("parts") else Discrete(3)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t, self.x = 0, self.np_random.normal(size=3).astype(np.float32)
        return self.x.copy(), {}

    def step(self, action):
        self.t += 1
        self.x = (
            self.x + 0.3 * (np.sum(action) - 1.0) + 0.1 * self.np_random.normal(size=3)
        ).astype(np.float32)
        return (
            self.x.copy(),
            -float(np.abs(self.x).mean()),
            bool(np.abs(self.x).max() > 4),
            self.t == 11,
            {},
        )


def pair(model, config, algorithm=PPO):
    """Return an algorithm in each framework, with the same weights, and minibatches
    of one rollout.
    """
    env_config = {"parts": True} if model == "autoregressive" else {"parts": False}
    config = {**SMALL, **OWN[algorithm], **config, "model": MODELS[model], "env_config": env_config}
    algos = [
        algorithm(lambda config: Drift(config), {**config, "framework": framework})
        for framework in ("torch", "tf")
    ]
    algos[1].policy.model.set_weights(algos[0].policy.model.get_weights())
    batch = algos[0]._batch(algos[0]._collector.collect(16))
    rng = np.random.default_rng(0)
    # Ratios away from 1, some of them cut off.
    batch["logp"] += rng.normal(scale=0.2, size=64).astype(np.float32)
    return algos, [list(minibatches(batch, 16, rng)) for _ in range(8)]


def difference(algos, minibatch, lr):
    """Take a step in each framework; return the norm of the difference of the weight changes,
    relative to theirs.
    """
    moves, figures = [], []
    for algo in algos:
        before = algo.policy.model.get_weights()
        figures.append(
            np.asarray(
                algo._learner.optimizer.step(minibatch, Rates(lr, algo._learner.kl_coeff))[0]
            )
        )
        after = algo.policy.model.get_weights()
        moves.append(
            np.concatenate(
                [(after[name].astype(float) - before[name]).ravel() for name in sorted(before)]
            )
        )
    assert np.abs(moves[0]).max() > 0.1 * lr
    # Losses, entropy, norm and the rest.
    np.testing.assert_allclose(figures[1], figures[0], rtol=1e-4, atol=1e-5)
    return np.linalg.norm(moves[1] - moves[0]) / np.linalg.norm(moves[0])


def assert_same_moments(ours, theirs):
    """Moments are those of the names in `get_weights`; in TensorFlow kernels lie the other way
    round.
    """
    assert ours["first"].keys() == theirs["first"].keys()
    for part, rtol, atol in (("first", 1e-3, 1e-6), ("second", 2e-3, 1e-8)):
        for name, moment in ours[part].items():
            np.testing.assert_allclose(
                theirs[part][name], moment, rtol=rtol, atol=atol, err_msg=name
            )


@pytest.mark.parametrize(("model", "config"), CASES)
def test_step_is_the_same_in_both_frameworks(model, config):
    """The first, and the thirtieth from the same weights and state of the optimiser; the learning
    rate falls.
    """
    algorithm, own = CONFIGS[config]
    algos, epochs = pair(model, own, algorithm)
    steps = [minibatch for epoch in epochs for minibatch in epoch][:30]
    rates = [1e-3 * (1 - i / 36) for i in range(30)]
    assert difference(algos, steps[0], rates[0]) <= 1e-4
    ours, theirs = (algo._learner.optimizer for algo in algos)
    if own.get("grad_clip", 0) is None:
        assert_same_moments(ours.get_state(), theirs.get_state())
    for minibatch, lr in zip(steps[1:29], rates[1:29], strict=True):
        ours.step(minibatch, Rates(lr, algos[0]._learner.kl_coeff))
    algos[1].policy.model.set_weights(algos[0].policy.model.get_weights())
    theirs.set_state(ours.get_state())
    assert difference(algos, steps[29], rates[29]) <= 1e-4


@pytest.mark.parametrize("framework", ["torch", "tf"])
def test_state_of_the_optimiser_is_all_there_is(framework):
    """Read, and set in a fresh optimiser, it goes on as if nothing had been between; it starts with
    nothing.
    """
    algos, epochs = pair("lstm", {})
    algo = algos[framework == "tf"]
    optimizer, steps = algo._learner.optimizer, epochs[0] + epochs[1]
    start = optimizer.get_state()
    assert start["step"] == 0
    assert not any(
        np.any(moment) for part in (start["first"], start["second"]) for moment in part.values()
    )
    for minibatch in steps[:3]:
        optimizer.step(minibatch, Rates(1e-3))
    kept, weights = optimizer.get_state(), algo.policy.model.get_weights()
    assert kept["step"] == 3
    assert {name: moment.shape for name, moment in kept["first"].items()} == {
        n: w.shape for n, w in weights.items()
    }
    optimizer.step(steps[3], Rates(1e-3))
    expected = algo.policy.model.get_weights()
    fresh = optimizer_of(framework)(algo.policy, algo.config, algo.objective)
    algo.policy.model.set_weights(weights)
    fresh.set_state(kept)
    fresh.step(steps[3], Rates(1e-3))
    for name, weight in algo.policy.model.get_weights().items():
        np.testing.assert_allclose(weight, expected[name], atol=1e-7, err_msg=name)
    assert fresh.get_state()["step"] == 4


def by_hand(weight, gradients, lr, epsilon):
    """Kingma and Ba 2015, algorithm 1."""
    first = second = np.zeros_like(weight)
    for t, gradient in enumerate(gradients, 1):
        first, second = 0.9 * first + 0.1 * gradient, 0.999 * second + 0.001 * gradient**2
        weight = weight - lr * (first / (1 - 0.9**t)) / (np.sqrt(second / (1 - 0.999**t)) + epsilon)
    return weight


@pytest.mark.parametrize(("dtype", "precision"), [("float32", 1e-5), ("float64", 1e-11)])
def test_adam_is_that_of_the_paper(dtype, precision):
    """For gradients about the size of epsilon, where it counts."""
    import keras

    gradients = np.random.default_rng(0).normal(scale=1e-3, size=(20, 5))
    variable = keras.Variable(np.ones(5, dtype), dtype=dtype)
    optimizer = Adam(learning_rate=0.125, epsilon=1e-3)  # Keras keeps it in float32
    optimizer.build([variable])
    for gradient in gradients:
        optimizer.apply([gradient.astype(dtype)], [variable])
    expected = by_hand(np.ones(5), gradients, 0.125, 1e-3)
    np.testing.assert_allclose(variable.numpy(), expected, rtol=precision)
    assert np.abs(expected - 1).max() > 0.1


def test_constraints_of_keras_hold_after_a_step():
    import keras

    layer = keras.layers.Dense(3, kernel_constraint="non_neg")
    layer.build((None, 2))
    optimizer = Adam(learning_rate=2.0)
    optimizer.build([layer.kernel, layer.bias])
    optimizer.apply(
        [np.ones((2, 3), np.float32), np.ones(3, np.float32)], [layer.kernel, layer.bias]
    )
    np.testing.assert_array_equal(layer.kernel.numpy(), 0.0)
    np.testing.assert_allclose(layer.bias.numpy(), -2.0, rtol=1e-5)


@pytest.mark.grid
@pytest.mark.parametrize("framework", ["torch", "tf"])
@pytest.mark.parametrize("clip", [None, 0.02, 1e6])
def test_gradients_are_clipped_to_their_norm(framework, clip):
    """The first moment after one step is a tenth of the gradient that the optimiser was given."""
    algos, epochs = pair("fcnet", {"grad_clip": clip})
    optimizer = algos[framework == "tf"]._learner.optimizer
    figures, _ = optimizer.step(epochs[0][0], Rates(1e-3))
    norm = float(figures[-1])
    given = np.sqrt(
        sum(
            np.sum((10 * moment.astype(float)) ** 2)
            for moment in optimizer.get_state()["first"].values()
        )
    )
    assert norm > 0.1  # what is reported is the norm before
    np.testing.assert_allclose(given, min(norm, clip or np.inf), rtol=1e-3)


def test_a_loss_that_is_not_finite_is_named_with_all_figures_in_any_pass():
    algos, epochs = pair("fcnet", {"entropy_coeff": 0.0})
    part = {**epochs[0][0], "target": np.full_like(epochs[0][0]["target"], np.nan)}
    for measure in (True, False):
        with pytest.raises(NonFiniteError, match=r"vf_loss nan, entropy 1\.09"):
            algos[0]._learner.optimizer.step(part, Rates(1e-3), check=False, measure=measure)


def test_rows_are_looked_at_once_and_figures_are_those_of_the_last_pass(monkeypatch):
    """An update of three passes leaves the weights of as many steps taken one by one, and says what
    the last found.
    """
    config = {
        **SMALL,
        "framework": "torch",
        "model": MODELS["fcnet"],
        "num_epochs": 3,
        "minibatch_size": 16,
        "entropy_coeff": 0.0,
    }
    algo, by_hand = (PPO(lambda config: Drift(config), {**config, "seed": 3}) for _ in range(2))
    batch = algo._batch(algo._collector.collect(16))
    checked, weighed, last = [], [], []
    evaluate = type(algo.policy).evaluate

    def watched(self, rows, *, check=True, entropy=True):
        checked.append(check)
        weighed.append(entropy)
        return evaluate(self, rows, check=check, entropy=entropy)

    rng = by_hand._learner.rng
    rng.bit_generator.state = algo._learner.rng.bit_generator.state
    for _ in range(3):
        last = [
            by_hand._learner.optimizer.step(part, Rates(1e-3))[0].numpy()
            for part in minibatches(batch, 16, rng)
        ]
    with monkeypatch.context() as patched:
        patched.setattr(type(algo.policy), "evaluate", watched)
        found = algo._learner.update(batch, 1e-3)
    assert checked == [True] * 4 + [False] * 8
    assert weighed == [True] * 4 + [False] * 4 + [True] * 4  # nothing but a figure
    names = algo._learner.optimizer.objective.figures
    np.testing.assert_allclose([found[name] for name in names], np.mean(last, 0), rtol=1e-5)
    expected = by_hand.policy.model.get_weights()
    for name, weight in algo.policy.model.get_weights().items():
        np.testing.assert_array_equal(weight, expected[name], err_msg=name)
