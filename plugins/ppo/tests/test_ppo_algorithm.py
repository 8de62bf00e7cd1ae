"""An algorithm's work around collecting and learning: creation, results, callbacks, evaluation."""

from __future__ import annotations

import itertools
from types import SimpleNamespace

import gymnasium as gym
import pytest
from short_env import QUICK, SMALL, Short as ThreeStepEnv, same as are_equal, weights_of

import rlcatalog
from rlcatalog.errors import CatalogWarning, ConfigError
from rlcatalog_ppo import A2C, PG, PPO, algorithm as algorithm_module
from rlcatalog_ppo.advantages import training_batch
from rlcatalog_ppo.callbacks import Callback
from rlcatalog_ppo.episodes import Episodes

# QUICK: 2 environments, rollouts of 4 steps in each, and one minibatch.


@pytest.fixture(autouse=True)
def _count_environments_from_zero():
    """`ThreeStepEnv.made` and `closed` count its instances."""
    ThreeStepEnv.made = 0
    ThreeStepEnv.closed = 0


# --- creation -------------------------------------------------------------------------------------


def test_wrong_model_config_is_refused_before_environments():
    def make_env():
        pytest.fail("an environment was created")

    with pytest.raises(ConfigError, match="fcnet_hidden"):
        PPO(make_env, {**QUICK, "model": {"fcnet_hidden": [3]}})  # the key is fcnet_hiddens


def test_callback_refuses_environment_before_policy_is_built(monkeypatch):
    class RefuseEnvironment(Callback):
        def check_env(self, make_env):
            assert isinstance(make_env(), ThreeStepEnv)
            raise ConfigError("this environment is refused")

    def fail_to_build(*arguments, **keywords):
        pytest.fail("a policy was built")

    monkeypatch.setattr(algorithm_module, "build", fail_to_build)

    with pytest.raises(ConfigError, match="this environment is refused"):
        PPO(ThreeStepEnv, QUICK, callbacks=[RefuseEnvironment()])


class RecordingCatalog(rlcatalog.Catalog):
    """Records which of two methods are called."""

    def __init__(self):
        super().__init__()
        self.calls = set()

    def resolve(self, *arguments, **keywords):
        self.calls.add("resolve")
        return super().resolve(*arguments, **keywords)

    def wrap_env(self, *arguments, **keywords):
        self.calls.add("wrap_env")
        return super().wrap_env(*arguments, **keywords)


def test_algorithm_uses_passed_catalog():
    catalog = RecordingCatalog()

    PPO(ThreeStepEnv, QUICK, catalog=catalog)

    assert catalog.calls == {"resolve", "wrap_env"}


def test_restored_algorithm_uses_passed_catalog(tmp_path):
    catalog = RecordingCatalog()
    PPO(ThreeStepEnv, QUICK).save_checkpoint(tmp_path)

    PPO.restore(tmp_path, ThreeStepEnv, catalog=catalog)

    assert "wrap_env" in catalog.calls


def test_environments_are_closed_if_creation_fails():
    cartpole_policy = rlcatalog.build(
        env=gym.make("CartPole-v1"), config={"fcnet_hiddens": [3]}, framework="torch"
    )

    with pytest.raises(ConfigError, match="policy: its observation_space is"):
        PPO(ThreeStepEnv, {**QUICK, "model": {}}, policy=cartpole_policy)

    assert ThreeStepEnv.closed >= 2  # the config asks for two environments
    still_open = ThreeStepEnv.made - ThreeStepEnv.closed
    assert still_open <= 1  # one that was created only to read its spaces


def test_stop_closes_environments():
    algo = PPO(ThreeStepEnv, QUICK)  # two environments
    algo.train()
    closed_before = ThreeStepEnv.closed

    algo.stop()

    assert ThreeStepEnv.closed == closed_before + 2


def test_passed_policy_is_trained():
    policy = PPO(ThreeStepEnv, QUICK).policy

    algo = PPO(ThreeStepEnv, {**QUICK, "model": {}, "framework": None}, policy=policy)

    assert algo.policy is policy


def test_policy_and_model_at_once_are_an_error():
    policy = PPO(ThreeStepEnv, QUICK).policy

    with pytest.raises(ConfigError, match="model= and policy= are both given") as caught:
        PPO(ThreeStepEnv, QUICK, model=object(), policy=policy)

    assert "Pass only one" in str(caught.value)


@pytest.mark.parametrize(("device", "moves"), [("cpu", []), ("other", ["other"])])
def test_policy_moves_only_to_other_device(device, moves, monkeypatch):
    devices = []
    monkeypatch.setattr(
        "rlcatalog_torch.backend.TorchBackend.device_of", lambda backend, name: device
    )
    monkeypatch.setattr(rlcatalog.Policy, "to", lambda policy, name: devices.append(name))

    PPO(ThreeStepEnv, QUICK)  # the policy is built on the CPU

    assert devices == moves


def initial_weights(*, seed):
    return weights_of(PPO(ThreeStepEnv, {**QUICK, "seed": seed}))


def test_other_seeds_give_other_weights():
    assert not are_equal(initial_weights(seed=1), initial_weights(seed=2))


def test_weights_differ_without_seed():
    assert not are_equal(initial_weights(seed=None), initial_weights(seed=None))


# --- results --------------------------------------------------------------------------------------


def test_result_counts_iterations_and_steps():
    algo = PPO(ThreeStepEnv, {**QUICK, "num_envs": 2, "rollout_length": 4})
    assert algo.iterations == 0
    assert algo.steps == 0

    algo.train()
    algo.train()
    result = algo.train()

    assert algo.iterations == 3
    assert algo.steps == 3 * 2 * 4  # iterations * environments * rollout_length
    assert result["training_iteration"] == 3
    assert result["timesteps_total"] == 24
    assert result["episodes_total"] == 8  # 24 steps in episodes of three
    assert algo.state()["iterations"] == 3
    assert algo.state()["steps"] == 24


def test_result_counts_seconds(monkeypatch):
    # Each reading of this clock is a quarter of a second after the last one. An iteration reads it
    # at its start and at its end, so that it seems to take a quarter of a second.
    readings = itertools.count(step=0.25)
    clock = SimpleNamespace(perf_counter=lambda: next(readings))
    monkeypatch.setattr(algorithm_module, "time", clock)
    algo = PPO(ThreeStepEnv, {**QUICK, "num_envs": 2, "rollout_length": 4})
    assert algo.state()["seconds"] == 0.0

    algo.train()
    algo.train()
    result = algo.train()

    assert result["time_total_s"] == 3 * 0.25
    assert result["steps_per_second"] == 8 / 0.25  # an iteration takes 2 * 4 steps
    assert algo.state()["seconds"] == 3 * 0.25


def test_result_has_learning_rate():
    algo = PPO(ThreeStepEnv, {**QUICK, "lr": 0.25})

    assert algo.train()["info"]["learner"]["lr"] == 0.25


def test_learning_rate_is_one_thousandth_by_default():
    assert PPO(ThreeStepEnv, QUICK).train()["info"]["learner"]["lr"] == 1e-3


def test_means_are_over_last_hundred_episodes():
    episodes = Episodes()

    for i in range(130):
        episodes.add(episode_return=float(i), length=i + 1)

    assert episodes.total == 130
    assert list(episodes.returns) == list(range(30, 130))
    assert list(episodes.lengths) == list(range(31, 131))


@pytest.mark.parametrize(
    ("algorithm", "config", "gamma", "lambda_"),
    [
        pytest.param(PPO, {"gamma": 0.5, "lambda_": 0.25}, 0.5, 0.25, id="PPO"),
        pytest.param(PPO, {}, 0.99, 0.95, id="defaults-of-PPO"),
        pytest.param(A2C, {"lambda_": 0.5}, 0.99, 0.5, id="A2C"),
        # REINFORCE has no key lambda_: its advantages are the returns, as with lambda_ = 1.
        pytest.param(PG, {}, 0.99, 1.0, id="PG"),
    ],
)
def test_advantages_use_gamma_and_lambda_of_config(algorithm, config, gamma, lambda_, monkeypatch):
    calls = []

    def record(rollout, gamma, lambda_, *, dist_inputs):
        calls.append((gamma, lambda_))
        return training_batch(rollout, gamma, lambda_, dist_inputs=dist_inputs)

    monkeypatch.setattr(algorithm_module, "training_batch", record)

    algorithm(ThreeStepEnv, {"num_envs": 2, "rollout_length": 128, **config}).train()

    assert calls == [(gamma, lambda_)]


@pytest.mark.parametrize(("kl_coeff", "has_dist_inputs"), [(0.0, False), (0.5, True)])
def test_batch_has_distribution_inputs_for_kl_penalty(kl_coeff, has_dist_inputs):
    algo = PPO(ThreeStepEnv, {**QUICK, "kl_coeff": kl_coeff})

    batch = algo._batch(algo._collector.collect(4))

    assert ("dist_inputs" in batch) == has_dist_inputs


@pytest.mark.parametrize(
    ("algorithm", "config", "has_values"),
    [(PPO, QUICK, True), (A2C, SMALL, True), (PG, SMALL, False)],
)
def test_rollout_has_values_if_algorithm_uses_them(algorithm, config, has_values):
    algo = algorithm(ThreeStepEnv, config)

    rollout = algo._collector.collect(4)

    assert rollout.value.any() == has_values


# --- callbacks ------------------------------------------------------------------------------------


class RecordingCallback(Callback):
    """Records its calls."""

    def __init__(self):
        self.calls = []

    def on_start(self, algo):
        self.calls.append(("start", algo.steps))
        self.frozen_at_start = algo.state()["frozen"]

    def on_rollout(self, algo, rollout):
        self.calls.append(("rollout", algo.steps))
        self.steps_of_rollout = rollout.steps
        self.weights_at_rollout = weights_of(algo)

    def on_update(self, algo, result):
        self.calls.append(("update", algo.steps))
        self.weights_at_update = weights_of(algo)
        result["own_key"] = 1

    def on_end(self, algo, error):
        self.calls.append(("end", algo.steps))
        self.error = error


def test_callbacks_are_called_around_learning():
    callback = RecordingCallback()
    algo = PPO(ThreeStepEnv, QUICK, callbacks=[callback])

    algo.learn(8)  # one rollout of 8 steps

    assert callback.calls == [("start", 0), ("rollout", 0), ("update", 8), ("end", 8)]
    assert callback.steps_of_rollout == 8
    assert callback.error is None
    assert not are_equal(callback.weights_at_rollout, callback.weights_at_update)


def test_callback_knows_at_start_whether_policy_is_frozen():
    callback = RecordingCallback()

    PPO(ThreeStepEnv, QUICK, callbacks=[callback]).learn(8)

    assert callback.frozen_at_start is False  # and no longer undecided, None


def test_callback_may_add_to_result():
    algo = PPO(ThreeStepEnv, QUICK, callbacks=[RecordingCallback()])

    assert algo.learn(8)["own_key"] == 1


def test_callbacks_receive_error_of_run():
    error = RuntimeError("gone")

    class FailingCallback(RecordingCallback):
        def on_update(self, algo, result):
            raise error

    callbacks = [RecordingCallback(), FailingCallback()]

    with pytest.raises(RuntimeError, match=r"^gone$"):
        PPO(ThreeStepEnv, QUICK, callbacks=callbacks).learn(8)

    # Even the callback that raised the error receives it.
    assert [callback.error for callback in callbacks] == [error, error]


# --- the end of training --------------------------------------------------------------------------


def test_learn_takes_the_steps_of_the_config_by_default():
    algo = PPO(ThreeStepEnv, {**QUICK, "total_steps": 20})

    algo.learn()

    rollout = QUICK["num_envs"] * QUICK["rollout_length"]
    assert 20 <= algo.steps < 20 + rollout


def test_learn_without_any_number_of_steps_is_refused():
    algo = PPO(ThreeStepEnv, QUICK)

    with pytest.raises(ConfigError, match="number of environment steps is missing"):
        algo.learn()


def test_learn_of_zero_steps_returns_none():
    assert PPO(ThreeStepEnv, QUICK).learn(0) is None


@pytest.mark.parametrize(
    ("total", "suggested_total"),
    # The suggestion adds `total`, but at least 1, to the 16 steps that were taken.
    [(0, 16 + 1), (15, 16 + 15), (16, 16 + 16)],
)
def test_learn_warns_if_steps_were_already_taken(total, suggested_total):
    algo = PPO(ThreeStepEnv, QUICK)
    algo.learn(16)

    with pytest.warns(CatalogWarning, match=r"16 steps were already taken") as caught:
        algo.learn(total)

    message = str(caught[0].message)
    assert message.startswith(f"learn({total}) trains nothing.")
    assert message.endswith(f"such as learn({suggested_total}).")
    assert algo.steps == 16


# --- evaluation -----------------------------------------------------------------------------------


@pytest.fixture
def play_calls(monkeypatch):
    """Arguments of each call of `play`: policy, number of environments, episodes, options."""
    calls = []
    play = algorithm_module.play

    def record(policy, envs, episodes, **options):
        calls.append((policy, envs.num_envs, episodes, options))
        return play(policy, envs, episodes, **options)

    monkeypatch.setattr(algorithm_module, "play", record)
    return calls


def test_evaluate_plays_ten_likely_episodes_by_default(play_calls):
    algo = PPO(ThreeStepEnv, {**QUICK, "seed": 7})

    returns = algo.evaluate()

    assert len(returns) == 10
    assert play_calls == [(algo.policy, 10, 10, {"seed": 7, "explore": False})]


def test_evaluate_passes_options_on(play_calls):
    algo = PPO(ThreeStepEnv, QUICK)

    returns = algo.evaluate(3, seed=4, explore=True)

    assert len(returns) == 3
    assert play_calls == [(algo.policy, 3, 3, {"seed": 4, "explore": True})]


def test_evaluate_uses_twenty_environments_at_most(play_calls):
    PPO(ThreeStepEnv, QUICK).evaluate(25)

    _, num_envs, episodes, _ = play_calls[0]
    assert num_envs == 20
    assert episodes == 25


def test_evaluate_plays_in_passed_vector_environment(play_calls):
    envs = gym.vector.SyncVectorEnv(
        [ThreeStepEnv] * 4, autoreset_mode=gym.vector.AutoresetMode.SAME_STEP
    )

    PPO(ThreeStepEnv, QUICK).evaluate(2, env=envs)

    _, num_envs, episodes, _ = play_calls[0]
    assert num_envs == 4
    assert episodes == 2


def test_evaluate_plays_in_passed_environment(play_calls):
    PPO(ThreeStepEnv, QUICK).evaluate(2, env=ThreeStepEnv())

    _, num_envs, episodes, _ = play_calls[0]
    assert num_envs == 1
    assert episodes == 2


def test_evaluate_closes_its_environments():
    algo = PPO(ThreeStepEnv, QUICK)
    ThreeStepEnv.closed = 0

    algo.evaluate(3)

    assert ThreeStepEnv.closed == 3


# --- saving ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("env", "env_argument"), [("CartPole-v1", ""), (ThreeStepEnv, ", env")], ids=["id", "class"]
)
def test_restore_on_instance_is_refused(env, env_argument, tmp_path):
    # In RLlib, `algo.restore(folder)` changes the algorithm; here, its result would be lost.
    algo = PPO(env, {**QUICK, "seed": 1})

    with pytest.raises(ConfigError, match="returns a new algorithm") as caught:
        algo.restore(tmp_path, config={"lr": 0.1})

    # The last line of the message can be pasted.
    call = f"PPO.restore({str(tmp_path)!r}{env_argument})"
    assert str(caught.value).endswith(f"on the class: algo = {call}")
