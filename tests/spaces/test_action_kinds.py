"""Every kind of action, from the model's output to the environment and back into training, in both
frameworks.
"""

import gymnasium as gym
import numpy as np
import pytest
from action_kinds import ACTIONS, DEPENDENT, PAIR, Anything
from masked_env import MASKED, Masked, allowed

import rlcatalog
from rlcatalog_ppo import PPO

SMALL = {"fcnet_hiddens": [8]}
FRAMEWORKS = ["torch", "tf"]
KINDS = {**ACTIONS, **DEPENDENT}
PPO_CONFIG = {"num_envs": 2, "minibatch_size": 32, "entropy_coeff": 0.01, "seed": 0}


@pytest.fixture(params=KINDS)
def space_and_config(request):
    """An action space, and a model config that chooses its distribution."""
    space, keys = KINDS[request.param]
    return space, {**SMALL, **keys}


def build_with_random_weights(space, config, framework="torch"):
    """Build a policy whose outputs are far from zero, so that distributions differ by row."""
    policy = rlcatalog.build(PAIR, space, config, framework)
    rng = np.random.default_rng(0)
    weights = {}
    for name, array in policy.model.get_weights().items():
        weights[name] = array + rng.normal(0, 0.3, array.shape).astype(array.dtype)
    policy.model.set_weights(weights)
    return policy


def random_observations(rows):
    return np.random.default_rng(1).uniform(-1, 1, (rows, 2)).astype(np.float32)


def to_numpy(tensor):
    if hasattr(tensor, "detach"):  # PyTorch's
        tensor = tensor.detach()
    return np.asarray(tensor)


def to_tensor(values, framework):
    if framework == "torch":
        import torch

        return torch.as_tensor(values)
    import tensorflow as tf

    return tf.constant(values)


def split_rows(space, batch, rows):
    """Return the single actions of a batch."""
    if isinstance(space, gym.spaces.Tuple):
        children = zip(space.spaces, batch, strict=True)
        columns = [split_rows(child, part, rows) for child, part in children]
        return list(zip(*columns, strict=True))
    if isinstance(space, gym.spaces.Dict):
        columns = {key: split_rows(space[key], batch[key], rows) for key in space}
        return [{key: column[i] for key, column in columns.items()} for i in range(rows)]
    if isinstance(space, gym.spaces.Box):
        return [np.asarray(action) for action in batch]
    return list(batch)


# --- sampling and scoring -------------------------------------------------------------------------


@pytest.mark.grid
@pytest.mark.parametrize("framework", FRAMEWORKS)
@pytest.mark.parametrize("explore", [True, False], ids=["sampled", "greedy"])
def test_actions_lie_in_the_space(space_and_config, framework, explore):
    space, config = space_and_config
    policy = build_with_random_weights(space, config, framework)

    step = policy.act(random_observations(500), explore=explore)

    for action in split_rows(space, step.action, 500):
        assert space.contains(action), action
    assert step.logp.shape == (500,)
    assert np.isfinite(step.logp).all()
    assert step.raw_action.shape[0] == 500
    assert step.raw_action.ndim == 2


@pytest.mark.grid
@pytest.mark.parametrize("framework", FRAMEWORKS)
@pytest.mark.parametrize("rows", [1, 7])
def test_evaluate_scores_stored_actions_as_act_did(space_and_config, framework, rows):
    policy = build_with_random_weights(*space_and_config, framework)
    obs = random_observations(rows)
    step = policy.act(obs)

    evaluation = policy.evaluate({"obs": obs, "raw_action": step.raw_action})

    np.testing.assert_allclose(to_numpy(evaluation.logp), step.logp, rtol=2e-4, atol=2e-4)
    for values in (evaluation.logp, evaluation.entropy, evaluation.value):
        assert tuple(values.shape) == (rows,)
        assert np.isfinite(to_numpy(values)).all()


@pytest.mark.grid
@pytest.mark.parametrize("framework", FRAMEWORKS)
@pytest.mark.parametrize("rows", [1, 7])
def test_stored_dist_scores_actions_as_act_did(space_and_config, framework, rows):
    policy = build_with_random_weights(*space_and_config, framework)
    step = policy.act(random_observations(rows))
    raw_action = to_tensor(step.raw_action, framework)
    if policy.action_codec.scalar:  # a Discrete action has no axis of its own
        raw_action = raw_action[:, 0]

    dist = policy.stored_dist(to_tensor(step.dist_inputs, framework), None)

    np.testing.assert_allclose(to_numpy(dist.logp(raw_action)), step.logp, rtol=2e-4, atol=2e-4)
    assert dist.sample() is not None
    assert tuple(dist.sampled_action_logp().shape) == (rows,)


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

    np.testing.assert_allclose(to_numpy(in_torch.logp), to_numpy(in_tf.logp), rtol=1e-4, atol=1e-4)
    assert in_torch.entropy_kind == in_tf.entropy_kind
    if in_torch.entropy_kind == "exact":  # an estimate is drawn at random
        np.testing.assert_allclose(
            to_numpy(in_torch.entropy), to_numpy(in_tf.entropy), rtol=1e-4, atol=1e-4
        )


def test_frameworks_agree_on_greedy_actions(policies_with_equal_weights):
    torch_policy, tf_policy = policies_with_equal_weights
    obs = random_observations(6)

    in_torch = torch_policy.act(obs, explore=False).raw_action
    in_tf = tf_policy.act(obs, explore=False).raw_action

    np.testing.assert_allclose(in_torch, in_tf, rtol=1e-4, atol=1e-4)


def test_loaded_policy_takes_the_same_greedy_actions(space_and_config, tmp_path):
    policy = build_with_random_weights(*space_and_config)
    obs = random_observations(6)
    expected = policy.act(obs, explore=False).raw_action

    policy.save(tmp_path)
    loaded = rlcatalog.load(tmp_path)

    np.testing.assert_array_equal(loaded.act(obs, explore=False).raw_action, expected)


# --- training -------------------------------------------------------------------------------------


def assert_finite_losses(result):
    losses = [v for v in result["info"]["learner"].values() if isinstance(v, float)]
    assert np.isfinite(losses).all()


def assert_every_weight_changed(before, after):
    assert [name for name in before if np.array_equal(before[name], after[name])] == []


def test_ppo_trains_every_weight(space_and_config):
    space, config = space_and_config
    rollout = {"rollout_length": 16, "num_epochs": 1}
    algo = PPO(lambda: Anything(space), {**PPO_CONFIG, **rollout, "model": config})
    before = algo.policy.model.get_weights()

    result = algo.train()

    after = algo.policy.model.get_weights()
    algo.stop()
    assert_finite_losses(result)
    assert_every_weight_changed(before, after)
    assert all(np.isfinite(weights).all() for weights in after.values())


@pytest.mark.parametrize("name", MASKED)
def test_ppo_trains_under_masks(name):
    rollout = {"rollout_length": 32, "num_epochs": 2}
    model = {**SMALL, "observation_filter": "MeanStdFilter"}
    # The environment raises an error if it gets a forbidden action.
    algo = PPO(lambda: Masked(name), {**PPO_CONFIG, **rollout, "model": model})
    before = algo.policy.model.get_weights()

    algo.train()
    result = algo.train()

    assert_finite_losses(result)
    assert_every_weight_changed(before, algo.policy.model.get_weights())
    assert len(algo.evaluate(4)) == 4
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


def draw_under_a_mask(name, framework):
    """Return a policy, its observations, what it drew for them under one mask, and the mask."""
    env = Masked(name)
    env.reset(seed=81)
    policy = rlcatalog.build(PAIR, env.action_space, SMALL, framework)
    obs = np.repeat(random_observations(1), 4000, axis=0)
    return policy, obs, policy.act(obs, mask=[env.mask] * 4000), env.mask


@pytest.mark.grid
@pytest.mark.parametrize("framework", FRAMEWORKS)
@pytest.mark.parametrize("name", MASKED)
def test_drawn_actions_are_allowed_by_the_mask(name, framework):
    policy, _, step, mask = draw_under_a_mask(name, framework)

    for action in split_rows(policy.action_space, step.action, 4000):
        assert allowed(policy.action_space, action, mask)


def is_discrete(space):
    return all(node.kind != "box" for node in rlcatalog.SpaceInfo.read(space).walk())


DISCRETE_CASES = [name for name, (action_space, _) in MASKED.items() if is_discrete(action_space)]


@pytest.mark.grid
@pytest.mark.parametrize("framework", FRAMEWORKS)
@pytest.mark.parametrize("name", DISCRETE_CASES)
def test_mask_renormalises_the_allowed_actions(name, framework):
    policy, obs, step, _ = draw_under_a_mask(name, framework)

    without_mask = policy.evaluate({"obs": obs, "raw_action": step.raw_action})

    # All rows have the same observation, so the mask adds the same number to each logp.
    added = step.logp - to_numpy(without_mask.logp)
    np.testing.assert_allclose(added, added[0], atol=1e-3)
    # The spaces are so small that 4,000 draws contain every allowed action.
    probabilities = {}
    for raw_action, logp in zip(step.raw_action.tolist(), step.logp, strict=True):
        probabilities[tuple(raw_action)] = np.exp(logp)
    assert sum(probabilities.values()) == pytest.approx(1.0, abs=1e-3)


# --- explanations of masks ------------------------------------------------------------------------


def test_explanation_names_the_path_of_the_mask():
    env = Masked("tuple")

    explanation = rlcatalog.explain(env.observation_space, env.action_space).as_dict()

    assert explanation["action_mask"] == "obs['action_mask']"
    assert not explanation["model_sees_mask"]
    assert [leaf["path"] for leaf in explanation["plan"]] == ["obs['x']"]


def test_explanation_names_the_distribution_of_each_part():
    env = Masked("tuple")

    explanation = rlcatalog.explain(env.observation_space, env.action_space).as_dict()

    # Tuple([Discrete(3), Box, MultiDiscrete([2, 3])])
    assert [(part["path"], part["chosen"]) for part in explanation["action_parts"]] == [
        ("action[0]", "categorical"),
        ("action[1]", "diag_gaussian"),
        ("action[2]", "multi_categorical"),
    ]


def test_mask_under_another_key_is_an_observation():
    env = Masked("discrete")
    config = {"action_mask_key": "no"}

    explanation = rlcatalog.explain(env.observation_space, env.action_space, config).as_dict()

    assert explanation["action_mask"] is None
    assert explanation["plan"][0]["path"] == "obs['action_mask']"
