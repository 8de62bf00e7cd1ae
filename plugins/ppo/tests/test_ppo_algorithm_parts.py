"""An algorithm's own work around collecting and learning: order, counts, times, what is closed and
refused.
"""

from __future__ import annotations

import warnings
from types import SimpleNamespace

import gymnasium as gym
import numpy as np
import pytest
from short_env import NET, QUICK, SMALL, Short, same, weights_of

import rlcatalog
from rlcatalog.errors import CatalogWarning, ConfigError
from rlcatalog_ppo import A2C, PG, PPO, algorithm
from rlcatalog_ppo.callbacks import Callback
from rlcatalog_ppo.rollout import Rollout


@pytest.fixture(autouse=True)
def _count_from_zero():
    Short.made = Short.closed = 0


# --- creation -------------------------------------------------------------------------------------


def test_a_wrong_model_config_and_a_callback_that_refuses_come_before_environments_and_policies(
    monkeypatch,
):
    with pytest.raises(ConfigError, match="fcnet_hidden"):
        PPO(
            lambda: pytest.fail("an environment was made"),
            {**QUICK, "model": {"fcnet_hidden": [3]}},
        )

    class Refuses(Callback):
        def check_env(self, make_env):
            raise ConfigError(f"not {type(make_env()).__name__}")

    monkeypatch.setattr(algorithm, "build", lambda *_, **__: pytest.fail("a policy was built"))
    with pytest.raises(ConfigError, match=r"^not Short$"):
        PPO(Short, QUICK, callbacks=[Refuses()])


def test_catalog_that_is_passed_is_the_one_that_is_asked(monkeypatch, tmp_path):
    own = rlcatalog.Catalog()
    asked, resolve = [], own.resolve
    monkeypatch.setattr(
        own, "resolve", lambda *given, **named: asked.append(1) or resolve(*given, **named)
    )
    wrapped, wrap_env = [], own.wrap_env
    monkeypatch.setattr(
        own, "wrap_env", lambda *given, **named: wrapped.append(1) or wrap_env(*given, **named)
    )
    PPO(Short, QUICK).save_checkpoint(tmp_path)
    assert (asked, wrapped) == ([], [])
    PPO(Short, QUICK, catalog=own)
    assert asked
    assert wrapped
    wrapped.clear()
    PPO.restore(tmp_path, Short, catalog=own)
    assert wrapped


def test_environments_are_closed_where_building_fails_and_by_stop_alone():
    other = rlcatalog.build(env=gym.make("CartPole-v1"), config=NET, framework="torch")
    with pytest.raises(ConfigError, match="policy: its observation_space is"):
        PPO(Short, {**QUICK, "model": {}}, policy=other)
    assert Short.made - Short.closed <= 1  # one may have been made for its spaces
    assert Short.closed >= 2
    Short.closed = 0
    algo = PPO(Short, QUICK)
    algo.train()
    before = Short.closed
    algo.stop()
    assert Short.closed == before + 2


def test_policy_or_a_model_but_not_both():
    policy = PPO(Short, QUICK).policy
    assert PPO(Short, {**QUICK, "model": {}, "framework": None}, policy=policy).policy is policy
    with pytest.raises(ConfigError, match=r"model= and policy= are both given.*Pass only one"):
        PPO(Short, QUICK, model=object(), policy=policy)


@pytest.mark.parametrize("device", ["cpu", "elsewhere"])
def test_policy_is_moved_only_to_another_device(device, monkeypatch):
    moved = []
    monkeypatch.setattr(
        "rlcatalog_torch.backend.TorchBackend.device_of", lambda backend, asked: device
    )
    monkeypatch.setattr(rlcatalog.Policy, "to", lambda policy, where: moved.append(where))
    PPO(Short, {**QUICK, "seed": None})
    assert moved == [device] * (device != "cpu")


def test_weights_follow_the_seed():
    one, again, other = (weights_of(PPO(Short, {**QUICK, "seed": seed})) for seed in (1, 1, 2))
    assert same(one, again)
    assert not same(one, other)
    assert not same(*(weights_of(PPO(Short, {**QUICK, "seed": None})) for _ in range(2)))


# --- iterations -----------------------------------------------------------------------------------


def test_result_counts_iterations_steps_and_seconds(monkeypatch):
    clock = iter(np.arange(0, 9, 0.25))
    monkeypatch.setattr(algorithm, "time", SimpleNamespace(perf_counter=lambda: float(next(clock))))
    algo = PPO(Short, QUICK)
    assert (algo.steps, algo.iterations, algo.state()["seconds"]) == (0, 0, 0.0)
    for i in (1, 2, 3):
        result = algo.train()
        assert (
            (result["training_iteration"], result["timesteps_total"])
            == (i, 8 * i)
            == (algo.iterations, algo.steps)
        )
        assert (result["time_total_s"], result["steps_per_second"]) == (0.25 * i, 32.0)
        assert result["info"]["learner"]["lr"] == 1e-3
    assert result["episodes_total"] == 8
    state = algo.state()
    assert (state["steps"], state["iterations"], state["seconds"]) == (24, 3, 0.75)


def test_callbacks_see_the_rollout_before_and_the_result_after_learning():
    seen = []

    class Sees(Callback):
        def on_start(self, algo):
            seen.append(("start", algo.state()["frozen"]))

        def on_rollout(self, algo, rollout):
            seen.append(("rollout", rollout.steps, algo.steps, weights_of(algo)))

        def on_update(self, algo, result):
            result["mine"] = 1
            seen.append(("update", algo.steps, weights_of(algo)))

        def on_end(self, algo, error):
            seen.append(("end", error))

    algo = PPO(Short, QUICK, callbacks=[Sees()])
    assert algo.learn(8)["mine"] == 1
    assert [entry[:-1] if len(entry) > 2 else entry for entry in seen] == [
        ("start", False),
        ("rollout", 8, 0),
        ("update", 8),
        ("end", None),
    ]
    assert not same(seen[1][-1], seen[2][-1])


@pytest.mark.parametrize(
    ("kind", "config", "expected"),
    [
        (PPO, {**QUICK, "gamma": 0.5, "lambda_": 0.25}, (True, 0.5, 0.25, False)),
        (PPO, {**QUICK, "kl_coeff": 0.5}, (True, 0.99, 0.95, True)),
        (A2C, {**SMALL, "lambda_": 0.5}, (True, 0.99, 0.5, False)),
        (PG, SMALL, (False, 0.99, 1.0, False)),
    ],
)
def test_batch_is_made_as_the_config_says(kind, config, expected, monkeypatch):
    asked, batch = [], Rollout.batch

    def noted(rollout, *given):
        asked.append((bool(rollout.value.any()), *given))
        return batch(rollout, *given)

    monkeypatch.setattr(Rollout, "batch", noted)
    kind(Short, config).train()
    assert asked == [expected]


def test_learning_ends_at_the_total_and_not_before():
    algo = PPO(Short, QUICK)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert algo.learn(0) is None
        assert algo.learn(8)["timesteps_total"] == algo.steps == 8
        assert algo.learn(9)["timesteps_total"] == 16
    for total, larger in ((0, 17), (15, 31), (16, 32)):
        with pytest.warns(
            CatalogWarning,
            match=rf"learn\({total}\) trains nothing\. 16 steps .* as learn\({larger}\)",
        ):
            algo.learn(total)
    algo.stop_training("enough")
    with pytest.warns(
        CatalogWarning, match=r"learn\(99\) trains nothing\. The run has ended: enough\. To train"
    ):
        assert algo.learn(99)["timesteps_total"] == 16
    assert algo.steps == 16


def test_each_callback_hears_how_a_run_ended():
    ends = []

    class Hears(Callback):
        def on_end(self, algo, error):
            ends.append(error)

    class Fails(Hears):
        def on_update(self, algo, result):
            raise error

    error = RuntimeError("gone")
    with pytest.raises(RuntimeError, match=r"^gone$"):
        PPO(Short, QUICK, callbacks=[Hears(), Fails()]).learn(8)
    assert ends == [error, error]


def test_evaluation_plays_likely_actions_in_new_environments(monkeypatch):
    algo, asked, play = PPO(Short, QUICK), [], algorithm.play

    def noted(policy, envs, episodes, **options):
        asked.append((policy is algo.policy, envs.num_envs, episodes, options))
        return play(policy, envs, episodes, **options)

    monkeypatch.setattr(algorithm, "play", noted)
    assert len(algo.evaluate()) == 10
    assert len(algo.evaluate(3, seed=4, explore=True)) == 3
    algo.evaluate(25)
    envs = gym.vector.SyncVectorEnv([Short] * 4, autoreset_mode=gym.vector.AutoresetMode.SAME_STEP)
    algo.evaluate(2, env=envs)
    algo.evaluate(2, env=Short())
    usual = {"seed": QUICK["seed"], "explore": False}
    assert asked == [
        (True, 10, 10, usual),
        (True, 3, 3, {"seed": 4, "explore": True}),
        (True, 20, 25, usual),
        (True, 4, 2, usual),
        (True, 1, 2, usual),
    ]
    Short.closed = 0
    algo.evaluate(3)
    assert Short.closed == 3


def test_saved_policy_acts_as_the_trained_one(tmp_path):
    algo = PPO(Short, QUICK)
    algo.save(tmp_path / "policy")
    assert same(weights_of(algo), rlcatalog.load(tmp_path / "policy").model.get_weights())


# --- restore, called on an algorithm --------------------------------------------------------------


@pytest.mark.parametrize(("env", "line"), [("CartPole-v1", ""), (Short, ", env")])
def test_restore_on_an_algorithm_is_refused(env, line, tmp_path):
    """In RLlib, `algo.restore(folder)` changes the algorithm; here it would be lost."""
    PPO(env, QUICK).save_checkpoint(tmp_path / "checkpoint")
    algo = PPO(env, {**QUICK, "seed": 1})
    folder = repr(str(tmp_path / "checkpoint"))
    with pytest.raises(ConfigError, match="returns a new algorithm") as caught:
        algo.restore(tmp_path / "checkpoint", config={"lr": 0.1})
    assert str(caught.value).endswith(f"on the class: algo = PPO.restore({folder}{line})")
    assert PPO.restore(tmp_path / "checkpoint", env).config.seed == QUICK.get("seed")
