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


@pytest.fixture(params=KINDS)
def kind(request):
    space, keys = KINDS[request.param]
    return space, {**SMALL, **keys}


def build(space, config, framework="torch"):
    """A policy whose outputs are far from zero, so that distributions differ from row to row."""
    policy = rlcatalog.build(PAIR, space, config, framework)
    rng = np.random.default_rng(0)
    weights = policy.model.get_weights()
    policy.model.set_weights(
        {n: w + rng.normal(0, 0.3, w.shape).astype(w.dtype) for n, w in weights.items()}
    )
    return policy


def observations(n):
    return np.random.default_rng(1).uniform(-1, 1, (n, 2)).astype(np.float32)


def array(tensor):
    return np.asarray(tensor.detach() if hasattr(tensor, "detach") else tensor)


@pytest.mark.grid
@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_every_sample_lies_in_the_space(kind, framework):
    space, config = kind
    policy = build(space, config, framework)
    for explore in (True, False):
        step = policy.act(observations(500), explore=explore)
        many = gym.vector.utils.batch_space(space, 500)
        for action in rows(space, step.action, 500):
            assert space.contains(action), action
        assert many is not None
        assert step.logp.shape == (500,)
        assert np.isfinite(step.logp).all()
        assert step.raw_action.shape[0] == 500
        assert step.raw_action.ndim == 2


def rows(space, batch, n):
    if isinstance(space, gym.spaces.Tuple):
        return list(
            zip(
                *(rows(child, part, n) for child, part in zip(space.spaces, batch, strict=True)),
                strict=True,
            )
        )
    if isinstance(space, gym.spaces.Dict):
        parts = {key: rows(child, batch[key], n) for key, child in space.spaces.items()}
        return [{key: part[i] for key, part in parts.items()} for i in range(n)]
    return [
        np.asarray(batch[i]) if isinstance(space, gym.spaces.Box) else batch[i] for i in range(n)
    ]


@pytest.mark.grid
@pytest.mark.parametrize("framework", FRAMEWORKS)
@pytest.mark.parametrize("n", [1, 7])
def test_stored_actions_score_the_same(kind, framework, n):
    space, config = kind
    policy, obs = build(space, config, framework), observations(n)
    step = policy.act(obs)
    found = policy.evaluate({"obs": obs, "raw_action": step.raw_action})
    np.testing.assert_allclose(array(found.logp), step.logp, rtol=2e-4, atol=2e-4)
    for values in (found.logp, found.entropy, found.value):
        assert tuple(values.shape) == (n,)
        assert np.isfinite(array(values)).all()
    # From the stored inputs alone.
    again = policy.stored_dist(tensor(step.dist_inputs, framework), None)
    raw = tensor(step.raw_action, framework)
    scored = again.logp(raw[:, 0] if policy.action_codec.scalar else raw)
    np.testing.assert_allclose(array(scored), step.logp, rtol=2e-4, atol=2e-4)
    assert tuple(again.sampled_action_logp().shape) == (n,) if again.sample() is not None else False


def tensor(values, framework):
    if framework == "torch":
        import torch

        return torch.as_tensor(values)
    import tensorflow as tf

    return tf.constant(values)


def test_frameworks_agree_on_actions(kind, tmp_path):
    space, config = kind
    torch, obs = build(space, config), observations(6)
    tf = rlcatalog.build(PAIR, space, config, "tf")
    tf.model.set_weights(torch.model.get_weights())
    batch = {"obs": obs, "raw_action": torch.act(obs).raw_action}
    one, other = torch.evaluate(batch), tf.evaluate(batch)
    assert one.entropy_kind == other.entropy_kind
    np.testing.assert_allclose(array(one.logp), array(other.logp), rtol=1e-4, atol=1e-4)
    if one.entropy_kind == "exact":
        np.testing.assert_allclose(array(one.entropy), array(other.entropy), rtol=1e-4, atol=1e-4)
    best, same = torch.act(obs, explore=False), tf.act(obs, explore=False)
    np.testing.assert_allclose(best.raw_action, same.raw_action, rtol=1e-4, atol=1e-4)
    torch.save(tmp_path)
    np.testing.assert_array_equal(
        rlcatalog.load(tmp_path).act(obs, explore=False).raw_action, best.raw_action
    )


def test_ppo_trains_every_weight(kind):
    space, config = kind
    algo = PPO(
        lambda: Anything(space),
        {
            "model": config,
            "num_envs": 2,
            "rollout_length": 16,
            "minibatch_size": 32,
            "num_epochs": 1,
            "entropy_coeff": 0.01,
            "seed": 0,
        },
    )
    before = algo.policy.model.get_weights()
    result = algo.train()
    after = algo.policy.model.get_weights()
    algo.stop()
    assert np.isfinite(
        [v for v in result["info"]["learner"].values() if isinstance(v, float)]
    ).all()
    assert sorted(name for name in before if np.array_equal(before[name], after[name])) == []
    assert all(np.isfinite(weights).all() for weights in after.values())


# --- masks ----------------------------------------------------------------------------------------


@pytest.mark.grid
@pytest.mark.parametrize("framework", FRAMEWORKS)
@pytest.mark.parametrize("name", MASKED)
def test_masked_policy_takes_no_forbidden_action(name, framework):
    """The environment raises on a forbidden action."""
    envs = gym.vector.SyncVectorEnv([lambda: Masked(name)] * 8)
    policy = rlcatalog.build(env=envs, config=SMALL, framework=framework)
    assert policy.preprocessor.shape == (2,)  # the mask is not the model's to see
    obs, _ = envs.reset(seed=0)
    for t in range(60):
        step = policy.act(obs, explore=t % 4 > 0)
        assert np.isfinite(step.logp).all()
        obs, *_ = envs.step(step.action)
    envs.close()


@pytest.mark.parametrize("name", MASKED)
def test_ppo_trains_under_masks(name):
    config = {
        "num_envs": 2,
        "rollout_length": 32,
        "minibatch_size": 32,
        "num_epochs": 2,
        "entropy_coeff": 0.01,
    }
    algo = PPO(
        lambda: Masked(name),
        {**config, "model": {**SMALL, "observation_filter": "MeanStdFilter"}, "seed": 0},
    )
    before = algo.policy.model.get_weights()
    for _ in range(2):
        result = algo.train()
    after = algo.policy.model.get_weights()
    assert np.isfinite(
        [v for v in result["info"]["learner"].values() if isinstance(v, float)]
    ).all()
    assert sorted(n for n in before if np.array_equal(before[n], after[n])) == []
    assert len(algo.evaluate(4)) == 4
    algo.stop()


@pytest.mark.grid
@pytest.mark.parametrize("framework", FRAMEWORKS)
@pytest.mark.parametrize("name", MASKED)
def test_masks_leave_the_distribution_over_what_is_allowed(name, framework):
    """Scored with the mask, allowed actions have what the free distribution gives them,
    renormalised.
    """
    action, rng = MASKED[name][0], np.random.default_rng(3)
    policy = rlcatalog.build(PAIR, action, SMALL, framework)
    obs = np.repeat(observations(1), 4000, axis=0)
    env = Masked(name)
    env.reset(seed=int(rng.integers(100)))
    mask = env.mask
    step = policy.act(obs, mask=[mask] * len(obs))
    drawn = rows(action, step.action, len(obs))
    assert all(allowed(action, one, mask) for one in drawn)
    free = array(policy.evaluate({"obs": obs, "raw_action": step.raw_action}).logp)
    # The mask takes the same probability away from each action of a part that is all discrete.
    if not any(node.kind == "box" for node in rlcatalog.SpaceInfo.read(action).walk()):
        np.testing.assert_allclose(step.logp - free, (step.logp - free)[0], atol=1e-3)
        probabilities = {
            tuple(raw): np.exp(logp)
            for raw, logp in zip(step.raw_action.tolist(), step.logp, strict=True)
        }
        # Small spaces: all of them were drawn.
        assert sum(probabilities.values()) == pytest.approx(1.0, abs=1e-3)


def test_explanation_names_the_path_of_the_mask():
    found = rlcatalog.explain(Masked("tuple").observation_space, MASKED["tuple"][0]).as_dict()
    assert found["action_mask"] == "obs['action_mask']"
    assert not found["model_sees_mask"]
    assert [leaf["path"] for leaf in found["plan"]] == ["obs['x']"]
    assert [(part["path"], part["chosen"]) for part in found["action_parts"]] == [
        ("action[0]", "categorical"),
        ("action[1]", "diag_gaussian"),
        ("action[2]", "multi_categorical"),
    ]
    other = rlcatalog.explain(
        Masked("discrete").observation_space, MASKED["discrete"][0], {"action_mask_key": "no"}
    )
    assert other.as_dict()["action_mask"] is None
    assert other.as_dict()["plan"][0]["path"] == "obs['action_mask']"
