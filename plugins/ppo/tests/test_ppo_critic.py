"""PPO and A2C with a critic of its own, which sees what the policy does not see."""

from __future__ import annotations

import numpy as np
import pytest
from builders import assert_every_weight_changed
from hidden_level_env import HiddenLevel

import rlcatalog
from rlcatalog_ppo import A2C, PPO

pytestmark = pytest.mark.twins

SMALL = {
    "num_envs": 3,
    "rollout_length": 17,
    "minibatch_size": 16,
    "num_epochs": 2,
    "lr": 0.01,
    "seed": 0,
}
ALL_OF_BOTH = {"policy": ["x"], "critic": ["level", "x"]}
LSTM = {"use_lstm": True, "lstm_cell_size": 5}


@pytest.mark.parametrize(
    ("algorithm", "framework", "model"),
    [
        (PPO, "torch", {}),
        (A2C, "torch", {}),
        (PPO, "torch", LSTM),
        (PPO, "tf", {}),
        (A2C, "tf", {}),
        pytest.param(PPO, "tf", LSTM, marks=pytest.mark.slow),
    ],
)
@pytest.mark.parametrize("critic", [{}, LSTM], ids=["plain", "lstm"])
def test_training_reaches_every_weight(algorithm, framework, model, critic):
    config = {
        "fcnet_hiddens": [8],
        "max_seq_len": 4,
        "critic": {"fcnet_hiddens": [6], **critic},
        "obs_groups": ALL_OF_BOTH,
        **model,
    }
    if not model and not critic:
        del config["max_seq_len"]  # nothing would read it
    options = {**SMALL, "framework": framework, "model": config}
    if algorithm is A2C:  # it has neither minibatches nor epochs
        del options["minibatch_size"]
        del options["num_epochs"]
    algo = algorithm(HiddenLevel, options)
    before = algo.policy.model.get_weights()

    for _ in range(2):
        algo.train()

    assert_every_weight_changed(before, algo.policy.model.get_weights())


def test_trained_policy_acts_without_the_level():
    config = {"fcnet_hiddens": [8], "critic": {"fcnet_hiddens": [6]}, "obs_groups": ALL_OF_BOTH}
    algo = PPO(HiddenLevel, {**SMALL, "framework": "torch", "model": config})
    algo.train()
    x = np.zeros((2, 2), np.float32)
    level = np.ones((2, 1), np.float32)

    step = algo.policy.act({"x": x}, explore=False)

    assert step.value is None
    with_level = algo.policy.act({"x": x, "level": level}, explore=False)
    np.testing.assert_array_equal(step.dist_inputs, with_level.dist_inputs)


def gradients_for_observations(policy, encoded):
    """Return the gradients of the outputs and of the values for encoded observations, as arrays."""
    if policy.framework == "torch":
        import torch

        obs = torch.from_numpy(encoded).requires_grad_()
        outputs, _ = policy.model({"obs": obs})
        results = (outputs, policy.model.value_function())
        return [
            torch.autograd.grad(result.sum(), obs, retain_graph=True)[0].numpy()
            for result in results
        ]
    import tensorflow as tf

    obs = tf.convert_to_tensor(encoded)
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(obs)
        outputs, _ = policy.model({"obs": obs})
        values = policy.model.value_function()
    return [tape.gradient(result, obs).numpy() for result in (outputs, values)]


@pytest.mark.parametrize("algorithm", [PPO, A2C])
@pytest.mark.parametrize("framework", ["torch", "tf"])
def test_trained_logits_have_no_gradient_for_the_level(algorithm, framework, tmp_path):
    options = {**SMALL, "framework": framework}
    if algorithm is A2C:  # it has neither minibatches nor epochs
        del options["minibatch_size"]
        del options["num_epochs"]
    nets = {"fcnet_hiddens": [8], "critic": {"fcnet_hiddens": [6]}}
    algo = algorithm(HiddenLevel, {**options, "model": {**nets, "obs_groups": ALL_OF_BOTH}})
    for _ in range(2):
        algo.train()
    observations = {
        "level": np.full((4, 1), 0.5, np.float32),
        "x": np.random.default_rng(0).uniform(-1, 1, (4, 2)).astype(np.float32),
    }

    encoded = algo.policy.preprocess(observations)
    of_logits, of_values = gradients_for_observations(algo.policy, encoded)

    assert not of_logits[:, 0].any()  # the level is the first entry of the Dict: exactly 0
    assert of_logits[:, 1:].any()
    assert of_values[:, 0].all()
    # The saved policy does not ask for the level.
    algo.policy.save(tmp_path)
    loaded = rlcatalog.load(tmp_path)
    step = loaded.act({"x": observations["x"]}, explore=False)
    assert step.value is None
    expected = algo.policy.act(observations, explore=False)
    np.testing.assert_array_equal(step.dist_inputs, expected.dist_inputs)


# --- learning -------------------------------------------------------------------------------------

LEARNING = {
    "num_envs": 8,
    "rollout_length": 40,
    "minibatch_size": 80,
    "num_epochs": 6,
    "lr": 0.003,
    "gamma": 0.99,
    "framework": "torch",
}


def value_error(groups, seed):
    """Train for 12,800 steps, and return the mean squared error of the values."""
    net = {"fcnet_hiddens": [32]}
    model = {**net, "critic": net, "obs_groups": groups}
    algo = PPO(HiddenLevel, {**LEARNING, "seed": seed, "model": model})
    for _ in range(40):  # each is 320 steps
        algo.train()
    errors = []
    env = HiddenLevel()
    for episode in range(50):
        obs, _ = env.reset(seed=1000 + episode)
        values = []
        rewards = []
        is_over = False
        while not is_over:
            step = algo.policy.act([obs])
            values.append(step.value[0])
            obs, reward, is_over, _, _ = env.step(step.action[0])
            rewards.append(reward)
        target = 0.0
        for value, reward in zip(reversed(values), reversed(rewards), strict=True):
            target = reward + LEARNING["gamma"] * target
            errors.append((value - target) ** 2)
    return np.mean(errors)


@pytest.mark.learn
@pytest.mark.filterwarnings("ignore:obs_groups")  # in one case, neither side sees the level
@pytest.mark.usefixtures("one_thread")
@pytest.mark.parametrize("seed", range(5))
def test_critic_that_sees_the_level_values_better(seed):
    symmetric = {"policy": ["x"], "critic": ["x"]}

    error_of_symmetric = value_error(symmetric, seed)
    error = value_error(ALL_OF_BOTH, seed)

    assert error < 0.5 * error_of_symmetric
