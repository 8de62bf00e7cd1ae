"""Every kind of observation, from the environment to the updated weights, in both frameworks."""

import gymnasium as gym
import numpy as np
import pytest
from observation_kinds import KINDS, Emitter

import rlcatalog
from rlcatalog_ppo import PPO

# One config serves parts of every kind here.
pytestmark = pytest.mark.filterwarnings("ignore::rlcatalog.errors.UnreadKeysWarning")

SMALL = {"fcnet_hiddens": [8], "check_observations": "always"}


def case(name):
    space, keys = KINDS[name]
    return space, {**SMALL, **keys}


@pytest.fixture(params=KINDS)
def kind(request):
    return case(request.param)


def batch_of(space, n=3):
    envs = gym.vector.SyncVectorEnv([lambda: Emitter(space)] * n)
    obs, _ = envs.reset(seed=1)
    return envs, obs


def test_cases_cover_every_kind_of_space():
    """Every kind the kernel reads, and every rank of Box up to 4."""
    from rlcatalog.internals import KINDS as READ
    from rlcatalog.spaces import SpaceInfo

    found = {node.kind for space, _ in KINDS.values() for node in SpaceInfo.read(space).walk()}
    assert found >= set(READ.values())


@pytest.mark.grid
@pytest.mark.parametrize("framework", ["torch", "tf"])
def test_policy_acts_on_observations(kind, framework):
    space, config = kind
    envs, obs = batch_of(space)
    policy = rlcatalog.build(env=envs, config=config, framework=framework)
    step = policy.act(obs)
    for values in (step.logp, step.value, step.dist_inputs):
        assert np.isfinite(values).all()
    # The same rows as a list of single observations, as models of the other framework and after
    # saving see them.
    single = Emitter(space)
    rows = [single.reset(seed=i)[0] for i in range(3)]
    assert policy.act(rows).dist_inputs.shape == (3, 2)
    assert envs.single_action_space.contains(step.action[0])


def test_frameworks_agree_on_observations(kind, tmp_path):
    space, config = kind
    _, obs = batch_of(space)
    torch, tf = (
        rlcatalog.build(space, Emitter.action_space, config, framework)
        for framework in ("torch", "tf")
    )
    tf.model.set_weights(torch.model.get_weights())
    expected = torch.act(obs, explore=False)
    np.testing.assert_allclose(
        tf.act(obs, explore=False).dist_inputs, expected.dist_inputs, atol=1e-5
    )
    # a foreign class cannot be written down.
    if not any("Strings" in name for name in classes(space)):
        torch.save(tmp_path)
        again = rlcatalog.load(tmp_path).act(obs, explore=False)
        np.testing.assert_array_equal(again.dist_inputs, expected.dist_inputs)


def classes(space):
    return [node.classes[0] for node in rlcatalog.SpaceInfo.read(space).walk()]


def test_ppo_trains_every_weight(kind):
    space, config = kind
    algo = PPO(
        lambda: Emitter(space),
        {
            "model": config,
            "num_envs": 2,
            "rollout_length": 16,
            "minibatch_size": 32,
            "num_epochs": 1,
            "seed": 0,
        },
    )
    before = algo.policy.model.get_weights()
    result = algo.train()
    after = algo.policy.model.get_weights()
    algo.stop()
    assert np.isfinite(list(learned(result))).all()
    changed = [name for name in before if not np.array_equal(before[name], after[name])]
    assert sorted(changed) == sorted(before)
    assert all(np.isfinite(weights).all() for weights in after.values())


def learned(result):
    return (value for value in result["info"]["learner"].values() if isinstance(value, float))


@pytest.mark.parametrize("framework", ["torch", "tf"])
@pytest.mark.parametrize(
    "name", ["discrete", "multi_discrete of rank 2", "tuple", "all in one", "repeated"]
)
def test_integers_reach_the_model_on_request(name, framework):
    space, config = case(name)
    envs, obs = batch_of(space)
    policy = rlcatalog.build(
        env=envs, config={**config, "_disable_preprocessor_api": True}, framework=framework
    )
    seen = {}
    forward = policy.model.forward

    def spy(input_dict, state, seq_lens):
        seen.update(input_dict)
        return forward(input_dict, state, seq_lens)

    policy.model.forward = spy
    policy.evaluate({"obs": policy.preprocess(obs), "raw_action": np.zeros((3, 1), np.float32)})
    if name in ("discrete", "multi_discrete of rank 2"):
        np.testing.assert_array_equal(np.asarray(seen["obs"]), obs)
        assert "int64" in str(seen["obs"].dtype)
    elif name == "tuple":
        np.testing.assert_array_equal(np.asarray(seen["obs"][0]), obs[0])
        assert "int64" in str(seen["obs"][0].dtype)
    elif name == "repeated":
        items = [[inner for _, inner in row] for row in seen["obs"].unbatch_all()]
        assert [[list(map(int, inner)) for inner in row] for row in items] == [
            [inner for _, inner in row] for row in obs
        ]
        assert "int64" in str(seen["obs"].values[1].values.dtype)
    assert np.isfinite(policy.act(obs).logp).all()
