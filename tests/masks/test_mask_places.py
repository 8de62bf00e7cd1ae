"""Where action masks are found: the cases of docs/mask_places.toml, under every autoreset mode."""

from __future__ import annotations

from functools import partial

import mask_table
import numpy as np
import pytest
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv
from mask_places_env import LENGTH, Elsewhere, Guarded, Placed

import rlcatalog
from rlcatalog_ppo import A2C, PG, PPO

pytestmark = pytest.mark.usefixtures("one_thread", "seeded")

CASES = mask_table.cases()
each_case = pytest.mark.parametrize("case", CASES, ids=lambda case: str(mask_table.row(case)[:4]))
modes = pytest.mark.parametrize("mode", list(AutoresetMode), ids=lambda mode: mode.name.lower())
SMALL = {"num_envs": 2, "rollout_length": 40, "seed": 0}
QUICK = {**SMALL, "minibatch_size": 40, "num_epochs": 1, "model": {"fcnet_hiddens": [8]}}


def model_of(case):
    key = case.get("key", "action_mask")
    return {"fcnet_hiddens": [8], "action_mask_key": None if key == "None" else key}


def find_taken_actions(*envs):
    """Return which of three actions were taken at least once, such as [1, 0, 1]."""
    taken = sum(env.unwrapped.taken for env in envs)
    return (taken > 0).astype(int).tolist()


def test_page_has_the_table():
    page = mask_table.TARGET.read_text(encoding="utf-8")
    assert mask_table.filled(page) == page, "run `make generate`"


@each_case
@modes
def test_ppo_finds_the_mask(case, mode):
    envs = SyncVectorEnv([lambda: Placed(case)] * 2, autoreset_mode=mode)
    algo = PPO(envs, {**QUICK, "model": model_of(case)})

    rollout = algo._collector.collect(40)

    allowed = case["used"]  # 1 for each of the three actions that may be used
    assert find_taken_actions(*envs.envs) == allowed
    if allowed != [1, 1, 1]:  # if a mask was found
        assert rollout.rows(rollout.mask).astype(int).tolist() == [allowed] * rollout.steps
    # PPO has not changed the observations.
    assert algo.policy.observation_space == Placed(case).observation_space


@each_case
def test_evaluation_finds_the_mask(case):
    algo = PPO(lambda: Placed(case), {**QUICK, "model": model_of(case)})
    envs = SyncVectorEnv([lambda: Placed(case)] * 2)

    algo.evaluate(20, env=envs, explore=True)

    assert find_taken_actions(*envs.envs) == case["used"]
    algo.stop()


@each_case
def test_wrap_env_moves_the_mask(case):
    # This environment has the masks of the case, for example in the info.
    env = Placed(case)
    config = model_of(case)

    wrapped = rlcatalog.wrap_env(env, config)

    # The policy reads the mask from the observation.
    policy = rlcatalog.build(env=wrapped, config=config)
    play(policy, wrapped, steps=40)
    assert find_taken_actions(env) == case["used"]
    assert rlcatalog.wrap_env(wrapped, config) is wrapped


def play(policy, env, *, steps):
    obs, _ = env.reset(seed=0)
    for _ in range(steps):
        obs, _, terminated, truncated, _ = env.step(policy.act([obs]).action[0])
        if terminated or truncated:
            obs, _ = env.reset()


NAMES = [
    "discrete",
    "multi_discrete",
    "multi_discrete, mask in a row",
    "multi_binary",
    "tuple",
    "dict",
]


@pytest.mark.parametrize(
    ("name", "place"),
    [(name, "info") for name in NAMES] + [(name, "method") for name in NAMES[:3]],
)
@modes
def test_ppo_obeys_masks_of_every_action_space(name, place, mode):
    """The environment raises at a forbidden action; its masks change at every step."""
    envs = SyncVectorEnv([lambda: Elsewhere(name, place)] * 2, autoreset_mode=mode)
    algo = PPO(envs, QUICK)
    algo.train()
    assert not algo._collector.collect(40).mask.all()


@pytest.mark.parametrize("place", ["info", "method"])
@pytest.mark.parametrize(("algorithm", "config"), [(PPO, QUICK), (A2C, SMALL), (PG, SMALL)])
@pytest.mark.parametrize("vector", ["sync", "async"])
def test_algorithms_obey_masks_in_own_environments(algorithm, config, place, vector):
    algo = algorithm(partial(Elsewhere, "discrete", place), {**config, "vector": vector})
    algo.train()
    assert len(algo.evaluate(2)) == 2
    algo.stop()


@pytest.mark.parametrize("place", ["info", "method"])
def test_ppo_obeys_masks_of_passed_processes(place):
    envs = AsyncVectorEnv([lambda: Elsewhere("dict" if place == "info" else "discrete", place)] * 2)
    PPO(envs, QUICK).train()
    envs.close()


@pytest.mark.parametrize("framework", ["torch", "tf"])
def test_training_scores_actions_under_their_masks(framework):
    """Before the first update, the stored and the new log densities are equal."""
    algo = PPO(lambda: Elsewhere("discrete"), {**QUICK, "framework": framework})
    batch = algo._batch(algo._collector.collect(40))
    logp = algo.policy.evaluate(batch).logp
    logp = logp.detach().numpy() if framework == "torch" else logp.numpy()
    np.testing.assert_allclose(logp, batch["logp"], atol=1e-5)
    algo.stop()


def test_trained_policy_saves_and_exports(tmp_path):
    """The saved policy has the environment's space, and takes the mask in the call."""
    algo = PPO(lambda: Elsewhere("discrete"), QUICK)
    algo.train()
    algo.save(tmp_path / "policy")
    algo.policy.export(tmp_path / "policy.onnx")
    algo.stop()
    obs, mask = np.zeros((50, 2), np.float32), np.tile([0, 1, 0, 0, 1], (50, 1))
    for acting in (rlcatalog.load(tmp_path / "policy"), rlcatalog.Actor(tmp_path / "policy.onnx")):
        assert acting.observation_space.shape == (2,)
        assert set(acting.act(obs, mask=mask).action - 2) == {1, 4}  # the Discrete starts at 2


@pytest.mark.parametrize("is_wrapped", [False, True])
def test_resumed_run_keeps_the_masks(is_wrapped, tmp_path):
    def make_env():
        env = Elsewhere("discrete")  # raises an error at a forbidden action
        return rlcatalog.wrap_env(env) if is_wrapped else env

    algo = PPO(make_env, {**QUICK, "rollout_length": 37})  # it ends in the middle of episodes
    algo.train()
    algo.save_checkpoint(tmp_path)
    algo.train()
    expected = algo.policy.model.get_weights()

    resumed = PPO.restore(tmp_path, make_env)

    assert not resumed.new_episode_reasons  # its episodes go on
    resumed.train()
    for name, array in resumed.policy.model.get_weights().items():
        np.testing.assert_array_equal(array, expected[name], err_msg=name)
    algo.stop()
    resumed.stop()


def test_guarded_counts_forbidden_actions():
    """The negative control of the long runs: random actions are forbidden about half the time."""
    env = Guarded(Placed({"info": [1, 0, 1]}))
    Guarded.steps = Guarded.forbidden = 0
    env.reset(seed=0)
    for action in (0, 1, 2)[: LENGTH - 1]:
        env.step(action)
    assert (Guarded.steps, Guarded.forbidden) == (3, 1)
