"""Every kind of action, from the model's output to the environment and back into training, in both
frameworks.
"""

import gymnasium as gym
import numpy as np
import pytest
from action_kinds import ACTIONS, DEPENDENT, PAIR, Anything
from builders import (
    assert_every_weight_changed,
    assert_ppo_trains_every_weight,
    randomize_weights,
    split_rows,
    to_array,
)
from gymnasium.spaces import Box, Discrete, MultiDiscrete, Tuple
from masked_env import MASKED, Masked

import rlcatalog
from rlcatalog_ppo import PPO

SMALL = {"fcnet_hiddens": [8]}
FRAMEWORKS = ["torch", "tf"]
KINDS = {**ACTIONS, **DEPENDENT}


@pytest.fixture(params=KINDS)
def space_and_config(request):
    """An action space, and a model config that chooses its distribution."""
    space, keys = KINDS[request.param]
    return space, {**SMALL, **keys}


def build_with_random_weights(space, config, framework="torch"):
    policy = rlcatalog.build(PAIR, space, config, framework)
    randomize_weights(policy.model)
    return policy


def random_observations(rows):
    return np.random.default_rng(1).uniform(-1, 1, (rows, 2)).astype(np.float32)


def assert_close(actual, expected):
    np.testing.assert_allclose(to_array(actual), to_array(expected), rtol=1e-4, atol=1e-4)


# --- sampling and scoring -------------------------------------------------------------------------


@pytest.mark.grid
@pytest.mark.parametrize("framework", FRAMEWORKS)
@pytest.mark.parametrize("explore", [True, False], ids=["sampled", "greedy"])
def test_actions_lie_in_the_space(space_and_config, framework, explore):
    space, config = space_and_config
    policy = build_with_random_weights(space, config, framework)

    step = policy.act(random_observations(500), explore=explore)

    for action in split_rows(space, step.action, 500):
        if isinstance(space, gym.spaces.Box):
            action = np.asarray(action)  # an action of rank 0 comes as a number
        assert space.contains(action), action
    assert np.isfinite(step.logp).all()


@pytest.mark.grid
@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_evaluate_scores_stored_actions_as_act_did(space_and_config, framework):
    space, config = space_and_config
    policy = build_with_random_weights(space, config, framework)
    obs = random_observations(7)
    step = policy.act(obs)

    evaluation = policy.evaluate({"obs": obs, "raw_action": step.raw_action})

    np.testing.assert_allclose(to_array(evaluation.logp), step.logp, rtol=2e-4, atol=2e-4)
    assert np.isfinite(to_array(evaluation.entropy)).all()
    assert np.isfinite(to_array(evaluation.value)).all()


@pytest.fixture
def policies_with_equal_weights(space_and_config):
    """Two policies, in PyTorch and in TensorFlow."""
    space, config = space_and_config
    torch_policy = build_with_random_weights(space, config, "torch")
    tf_policy = rlcatalog.build(PAIR, space, config, "tf")
    tf_policy.model.set_weights(torch_policy.model.get_weights())
    return torch_policy, tf_policy


def test_frameworks_agree_on_scores(policies_with_equal_weights):
    torch_policy, tf_policy = policies_with_equal_weights
    obs = random_observations(6)
    batch = {"obs": obs, "raw_action": torch_policy.act(obs).raw_action}

    in_torch = torch_policy.evaluate(batch)
    in_tf = tf_policy.evaluate(batch)

    assert_close(in_tf.logp, in_torch.logp)
    assert in_tf.entropy_kind == in_torch.entropy_kind
    if in_torch.entropy_kind == "exact":  # an estimate is drawn at random
        assert_close(in_tf.entropy, in_torch.entropy)


def test_frameworks_agree_on_greedy_actions(policies_with_equal_weights):
    torch_policy, tf_policy = policies_with_equal_weights
    obs = random_observations(6)

    in_torch = torch_policy.act(obs, explore=False).raw_action
    in_tf = tf_policy.act(obs, explore=False).raw_action

    assert_close(in_tf, in_torch)


def test_loaded_policy_takes_the_same_greedy_actions(space_and_config, tmp_path):
    space, config = space_and_config
    policy = build_with_random_weights(space, config)
    obs = random_observations(6)
    expected = policy.act(obs, explore=False).raw_action

    policy.save(tmp_path)
    loaded = rlcatalog.load(tmp_path)

    np.testing.assert_array_equal(loaded.act(obs, explore=False).raw_action, expected)


# --- training -------------------------------------------------------------------------------------


def test_ppo_trains_every_weight(space_and_config):
    space, model_config = space_and_config
    # The environment takes any action of the space, and pays random rewards.
    assert_ppo_trains_every_weight(lambda: Anything(space), model=model_config, entropy_coeff=0.01)


@pytest.mark.parametrize("name", MASKED)
def test_ppo_trains_under_masks(name):
    config = {
        "model": {"fcnet_hiddens": [8], "observation_filter": "MeanStdFilter"},
        "num_envs": 2,
        "rollout_length": 32,
        "minibatch_size": 32,
        "num_epochs": 2,
        "entropy_coeff": 0.01,
        "seed": 0,
    }
    # The environment raises an error if it gets a forbidden action.
    algo = PPO(lambda: Masked(name), config)
    before = algo.policy.model.get_weights()

    algo.train()
    algo.train()

    assert_every_weight_changed(before, algo.policy.model.get_weights())
    assert len(algo.evaluate(4)) == 4  # a return for each of 4 episodes
    algo.stop()


# --- masks ----------------------------------------------------------------------------------------


@pytest.mark.grid
@pytest.mark.parametrize("framework", FRAMEWORKS)
@pytest.mark.parametrize("name", MASKED)
def test_masked_policy_takes_no_forbidden_action(name, framework):
    # The environment raises an error if it gets a forbidden action.
    envs = gym.vector.SyncVectorEnv([lambda: Masked(name)] * 8)
    policy = rlcatalog.build(env=envs, config=SMALL, framework=framework)
    obs, _ = envs.reset(seed=0)
    for t in range(60):
        step = policy.act(obs, explore=t % 4 > 0)
        assert np.isfinite(step.logp).all()
        obs, *_ = envs.step(step.action)
    envs.close()


@pytest.mark.parametrize("name", MASKED)
def test_model_does_not_see_the_mask(name):
    policy = rlcatalog.build(env=Masked(name), config=SMALL)
    assert policy.preprocessor.shape == (2,)  # "x" alone, without "action_mask"


def is_discrete(space):
    return all(node.kind != "box" for node in rlcatalog.SpaceInfo.read(space).walk())


DISCRETE_CASES = [name for name, (action_space, _) in MASKED.items() if is_discrete(action_space)]


@pytest.mark.grid
@pytest.mark.parametrize("framework", FRAMEWORKS)
@pytest.mark.parametrize("name", DISCRETE_CASES)
def test_mask_renormalises_the_allowed_actions(name, framework):
    env = Masked(name)
    env.reset(seed=81)  # draws a mask
    policy = rlcatalog.build(PAIR, env.action_space, SMALL, framework)
    obs = np.zeros((4000, 2), np.float32)

    step = policy.act(obs, mask=[env.mask] * 4000)

    # The space is so small that 4,000 draws contain every allowed action.
    probabilities = {}
    for raw_action, logp in zip(step.raw_action.tolist(), step.logp, strict=True):
        probabilities[tuple(raw_action)] = np.exp(logp)
    assert sum(probabilities.values()) == pytest.approx(1.0, abs=1e-3)
    # A mask scales the probabilities of all allowed actions by the same factor.
    logp_without_mask = to_array(policy.evaluate({"obs": obs, "raw_action": step.raw_action}).logp)
    shares = np.exp(logp_without_mask - step.logp)
    np.testing.assert_allclose(shares, shares[0], atol=1e-3)


# --- explanations of masks ------------------------------------------------------------------------


def test_explanation_names_the_path_of_the_mask():
    env = Masked("tuple")

    explanation = rlcatalog.explain(env.observation_space, env.action_space).as_dict()

    assert explanation["action_mask"] == "obs['action_mask']"
    assert not explanation["model_sees_mask"]
    assert [leaf["path"] for leaf in explanation["plan"]] == ["obs['x']"]


def test_explanation_names_the_distribution_of_each_part():
    space = Tuple([Discrete(3), Box(-1, 1, (2,)), MultiDiscrete([2, 3])])

    explanation = rlcatalog.explain(PAIR, space).as_dict()

    dist_of_path = {part["path"]: part["chosen"] for part in explanation["action_parts"]}
    assert dist_of_path == {
        "action[0]": "categorical",
        "action[1]": "diag_gaussian",
        "action[2]": "multi_categorical",
    }


def test_mask_under_another_key_is_an_observation():
    env = Masked("discrete")
    config = {"action_mask_key": "no"}

    explanation = rlcatalog.explain(env.observation_space, env.action_space, config).as_dict()

    assert explanation["action_mask"] is None
    assert explanation["plan"][0]["path"] == "obs['action_mask']"
