"""Every kind of observation, from the environment to the updated weights, in both frameworks.

Crosses: policy, ppo.
"""

import gymnasium as gym
import numpy as np
import pytest
from builders import assert_ppo_trains_every_weight, record_model_inputs
from observation_kinds import KINDS, Emitter, Strings

import rlcatalog
from rlcatalog.internals import KINDS as KERNEL_KINDS
from rlcatalog.spaces import SpaceInfo

# One config serves parts of every kind here.
pytestmark = pytest.mark.filterwarnings("ignore::rlcatalog.errors.UnreadKeysWarning")

SMALL = {"fcnet_hiddens": [8], "check_observations": "always"}


@pytest.fixture(params=KINDS)
def space_and_config(request):
    """An observation space, and the model config that it needs."""
    space, keys = KINDS[request.param]
    return space, {**SMALL, **keys}


def emit_observations(space, rows=3):
    """Return a batch of observations, as a vector environment returns it."""
    envs = gym.vector.SyncVectorEnv([lambda: Emitter(space)] * rows)
    obs, _ = envs.reset(seed=1)
    return obs


def test_cases_cover_every_kind_of_space():
    covered = set()
    for space, _ in KINDS.values():
        covered |= {node.kind for node in SpaceInfo.read(space).walk()}
    assert covered >= set(KERNEL_KINDS.values())


# --- acting ---------------------------------------------------------------------------------------


@pytest.mark.grid
@pytest.mark.parametrize("framework", ["torch", "tf"])
def test_policy_acts_on_a_batch(space_and_config, framework):
    space, config = space_and_config
    envs = gym.vector.SyncVectorEnv([lambda: Emitter(space)] * 3)
    obs, _ = envs.reset(seed=1)
    policy = rlcatalog.build(env=envs, config=config, framework=framework)

    step = policy.act(obs)

    assert np.isfinite(step.logp).all()
    assert np.isfinite(step.value).all()
    assert np.isfinite(step.dist_inputs).all()
    assert envs.single_action_space.contains(step.action[0])


@pytest.mark.grid
@pytest.mark.parametrize("framework", ["torch", "tf"])
def test_policy_acts_on_a_list_of_observations(space_and_config, framework):
    space, config = space_and_config
    env = Emitter(space)
    policy = rlcatalog.build(env=env, config=config, framework=framework)

    rows = [env.reset(seed=i)[0] for i in range(3)]

    assert policy.act(rows).dist_inputs.shape == (3, 2)  # logits of two actions


def test_frameworks_agree_on_observations(space_and_config):
    space, config = space_and_config
    obs = emit_observations(space)
    torch_policy = rlcatalog.build(space, Emitter.action_space, config, "torch")
    tf_policy = rlcatalog.build(space, Emitter.action_space, config, "tf")
    tf_policy.model.set_weights(torch_policy.model.get_weights())

    torch_logits = torch_policy.act(obs).dist_inputs
    tf_logits = tf_policy.act(obs).dist_inputs

    np.testing.assert_allclose(tf_logits, torch_logits, atol=1e-5)


def test_loaded_policy_acts_the_same(space_and_config, tmp_path):
    space, config = space_and_config
    if isinstance(space, Strings):
        return  # a user's class of space cannot be saved
    obs = emit_observations(space)
    policy = rlcatalog.build(space, Emitter.action_space, config, "torch")

    policy.save(tmp_path)
    loaded = rlcatalog.load(tmp_path)

    np.testing.assert_array_equal(loaded.act(obs).dist_inputs, policy.act(obs).dist_inputs)


# --- training -------------------------------------------------------------------------------------


def test_ppo_trains_every_weight(space_and_config):
    space, model_config = space_and_config
    # The environment gives random observations of the space.
    assert_ppo_trains_every_weight(lambda: Emitter(space), model=model_config)


# --- observations without preprocessor ------------------------------------------------------------


def record_model_input(policy, obs):
    """Evaluate a batch, and return the observations that the model receives."""
    batch = {"obs": policy.preprocess(obs), "raw_action": np.zeros((3, 1), np.float32)}
    return record_model_inputs(policy, batch)["obs"]


def build_without_preprocessor(kind, framework):
    space, keys = KINDS[kind]
    config = {**SMALL, **keys, "_disable_preprocessor_api": True}
    return rlcatalog.build(env=Emitter(space), config=config, framework=framework)


@pytest.mark.parametrize("framework", ["torch", "tf"])
@pytest.mark.parametrize("kind", ["discrete", "multi_discrete of rank 2"])
def test_integers_reach_the_model_without_preprocessor(kind, framework):
    policy = build_without_preprocessor(kind, framework)
    obs = emit_observations(policy.observation_space)

    received = record_model_input(policy, obs)

    np.testing.assert_array_equal(np.asarray(received), obs)
    assert "int64" in str(received.dtype)


@pytest.mark.parametrize("framework", ["torch", "tf"])
def test_integers_of_a_tuple_reach_the_model(framework):
    policy = build_without_preprocessor("tuple", framework)
    obs = emit_observations(policy.observation_space)

    received = record_model_input(policy, obs)

    # The first part is Discrete(4).
    np.testing.assert_array_equal(np.asarray(received[0]), obs[0])
    assert "int64" in str(received[0].dtype)


@pytest.mark.parametrize("framework", ["torch", "tf"])
def test_integers_of_repeated_lists_reach_the_model(framework):
    # Repeated(Tuple([Box, Repeated(Discrete(3))])): pairs of an array and a list of integers.
    policy = build_without_preprocessor("repeated", framework)
    obs = emit_observations(policy.observation_space)

    received = record_model_input(policy, obs)

    for received_pairs, pairs in zip(received.unbatch_all(), obs, strict=True):
        for (_, received_integers), (_, integers) in zip(received_pairs, pairs, strict=True):
            assert np.asarray(received_integers).tolist() == list(integers)


@pytest.mark.parametrize("framework", ["torch", "tf"])
@pytest.mark.parametrize(
    "kind", ["discrete", "multi_discrete of rank 2", "tuple", "all in one", "repeated"]
)
def test_policy_without_preprocessor_acts_and_evaluates(kind, framework):
    policy = build_without_preprocessor(kind, framework)
    obs = emit_observations(policy.observation_space)

    step = policy.act(obs)
    batch = {"obs": policy.preprocess(obs), "raw_action": step.raw_action}

    assert np.isfinite(step.logp).all()
    assert policy.evaluate(batch).logp.shape == (3,)
