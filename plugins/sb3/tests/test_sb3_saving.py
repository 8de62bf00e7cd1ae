"""What is trained is kept: Stable-Baselines3's own files, and policies that need it no more."""

import importlib.util
import json
import re
import textwrap

import gymnasium as gym
import numpy as np
import pytest
import warm

pytest.importorskip("stable_baselines3", reason="Stable-Baselines3 is not installed")

import torch
from gymnasium.spaces import Box, Dict, Discrete, Tuple
from stable_baselines3 import A2C, DQN, PPO, SAC, TD3
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.evaluation import evaluate_policy
from typer.testing import CliRunner

import rlcatalog
from rlcatalog.errors import NotServedError
from rlcatalog_runs import SeedStream, derive_seed
from rlcatalog_sb3 import CatalogExtractor, CatalogPolicy, for_sb3, to_policy

NESTED = Dict(
    {"a": Tuple([Discrete(3), Box(-1, 1, (2,))]), "action_mask": Box(0, 1, (3,), np.int8)}
)
HYBRID = Tuple([Discrete(3, start=1), Box(0, 1, (2,))])


class Nested(gym.Env):
    """Observations, masks and actions of several parts."""

    def __init__(self, observation_space=NESTED, action_space=HYBRID):
        self.observation_space, self.action_space = observation_space, action_space

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.observation_space.seed(seed)
        return self._look(), {}

    def step(self, action):
        return self._look(), 1.0, False, bool(self.np_random.random() < 0.1), {}

    def _look(self):
        obs = self.observation_space.sample()
        if isinstance(obs, dict) and "action_mask" in obs:
            obs["action_mask"][0] = 1
        return obs


def test_a_saved_algorithm_acts_and_trains_on(tmp_path):
    env = for_sb3(Nested(), {"fcnet_hiddens": [8]})
    model = PPO(CatalogPolicy, env, n_steps=16, batch_size=8, seed=0, device="cpu")
    model.learn(32)
    model.save(tmp_path / "model.zip")
    for loaded in (
        PPO.load(tmp_path / "model.zip"),
        PPO.load(tmp_path / "model.zip", env=for_sb3(Nested())),
    ):
        obs = env.reset(seed=3)[0]
        for _ in range(5):
            found, expected = (
                loaded.predict(obs, deterministic=True)[0],
                model.predict(obs, deterministic=True)[0],
            )
            np.testing.assert_array_equal(found, expected)
            obs = env.step(expected)[0]
        assert loaded.policy.catalog_policy.config["fcnet_hiddens"] == [8]
    before = float(loaded.policy.optimizer.state_dict()["state"][0]["step"])
    loaded.learn(16)
    assert float(loaded.policy.optimizer.state_dict()["state"][0]["step"]) > before > 0


def test_a_saved_policy_is_loaded_by_itself(tmp_path):
    model = A2C(
        CatalogPolicy,
        "CartPole-v1",
        policy_kwargs={"model_config": {"fcnet_hiddens": [8]}},
        device="cpu",
    )
    model.policy.save(tmp_path / "policy.pt")
    loaded = CatalogPolicy.load(tmp_path / "policy.pt", device="cpu")
    obs = np.random.default_rng(0).normal(size=(20, 4)).astype(np.float32)
    np.testing.assert_array_equal(
        loaded.predict(obs, deterministic=True)[0], model.predict(obs, deterministic=True)[0]
    )
    assert loaded.catalog_policy.config["fcnet_hiddens"] == [8]


def test_environments_are_exchanged_and_foreign_ones_refused(tmp_path):
    model = PPO(CatalogPolicy, for_sb3(Nested()), n_steps=8, batch_size=8, device="cpu")
    model.save(tmp_path / "model.zip")
    model.set_env(for_sb3(Nested()))
    model.learn(8)
    # Five flat values and three raw ones, as well, and yet something else.
    other = Dict({"b": Box(-1, 1, (5,)), "action_mask": Box(0, 1, (3,), np.int8)})
    for env in (for_sb3(Nested(other)), for_sb3(Nested(), {"action_bounds": "clip"})):
        with pytest.raises(ValueError, match="spaces do not match"):
            PPO.load(tmp_path / "model.zip", env=env)


def test_evaluate_policy_plays_with_vector_environments():
    config = {"fcnet_hiddens": [8]}
    envs = make_vec_env(
        "CartPole-v1", 2, seed=0, wrapper_class=for_sb3, wrapper_kwargs={"model_config": config}
    )
    model = PPO(CatalogPolicy, envs, n_steps=8, batch_size=8, seed=0, device="cpu")
    returns, lengths = evaluate_policy(model, envs, 4, return_episode_rewards=True)
    assert returns == lengths
    assert len(returns) == 4
    assert evaluate_policy(model, envs, 4, deterministic=False)[0] > 5


OFF_POLICY = {
    "dqn": (DQN, "CartPole-v1", {"learning_starts": 10}),
    "dqn, offset": (DQN, "offset", {"learning_starts": 10}),
    "sac": (SAC, "Pendulum-v1", {"learning_starts": 10}),
    "td3": (TD3, "Pendulum-v1", {"learning_starts": 10}),
}


@pytest.mark.grid
@pytest.mark.parametrize("arch", [[], [8], [8, 6]], ids=str)
@pytest.mark.parametrize("name", OFF_POLICY)
def test_an_exported_actor_takes_the_algorithms_actions(name, arch, tmp_path):
    algorithm, env, settings = OFF_POLICY[name]
    space = Box(-1, 1, (3,), np.float64)
    env = for_sb3(Nested(space, Discrete(3, start=4))) if env == "offset" else for_sb3(env)
    kwargs = {
        "net_arch": arch,
        "features_extractor_class": CatalogExtractor,
        "features_extractor_kwargs": {
            "model_config": {"fcnet_hiddens": [16], "post_fcnet_hiddens": [7]}
        },
    }
    model = algorithm("MlpPolicy", env, policy_kwargs=kwargs, seed=0, device="cpu", **settings)
    model.learn(30)
    to_policy(model).save(tmp_path)
    policy = rlcatalog.load(tmp_path)
    emitted = [env.unwrapped.observation_space.sample() for _ in range(50)]
    flat = np.stack([env.flattening.observe(obs) for obs in emitted])
    predicted = model.predict(flat, deterministic=True)[0]
    expected = np.stack([env.flattening.act(action) for action in predicted])
    np.testing.assert_allclose(
        policy.act(emitted, explore=False).action, expected, rtol=1e-4, atol=1e-5
    )
    assert policy.action_space == env.unwrapped.action_space
    if name == "sac":  # the densities, too: scored by SAC's own distribution
        step = policy.act(emitted)
        actor = model.policy.actor
        mean, log_std, _ = actor.get_action_dist_params(torch.from_numpy(flat))
        dist = actor.action_dist.proba_distribution(mean, log_std)
        # Pendulum's bounds are -2 and 2.
        logp = dist.log_prob(torch.from_numpy(step.action / 2)) - np.log(2.0)
        np.testing.assert_allclose(step.logp, logp.detach().numpy(), rtol=2e-2, atol=2e-2)


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        (
            {"net_arch": [8], "activation_fn": torch.nn.Hardtanh},
            "a Hardtanh among Stable-Baselines3's layers",
        ),
        (
            {
                "net_arch": [8],
                "activation_fn": torch.nn.Tanh,
                "features_extractor_kwargs": {"model_config": {"post_fcnet_hiddens": [8]}},
            },
            r"have the activations tanh;.*Set net_arch=\[\]",
        ),
        (
            {"features_extractor_kwargs": {"model_config": {"no_final_linear": True}}},
            "no_final_linear",
        ),
    ],
)
def test_what_cannot_be_converted_is_refused(kwargs, message):
    kwargs = {"features_extractor_class": CatalogExtractor, **kwargs}
    with pytest.raises(NotServedError, match=message):
        to_policy(DQN("MlpPolicy", "CartPole-v1", policy_kwargs=kwargs, device="cpu"))


def test_policies_without_our_parts_are_not_converted():
    with pytest.raises(NotServedError, match="ActorCriticPolicy has no catalog parts"):
        to_policy(PPO("MlpPolicy", "CartPole-v1", device="cpu"))
    with pytest.raises(NotServedError, match="DQNPolicy has no catalog parts"):
        to_policy(DQN("MlpPolicy", "CartPole-v1", device="cpu"))


def test_another_algorithm_over_our_trunk_is_not_converted():
    kwargs = {"features_extractor_class": CatalogExtractor}
    with pytest.raises(
        NotServedError, match="ActorCriticPolicy has other layers after the trunk than DQN, SAC"
    ):
        to_policy(A2C("MlpPolicy", "CartPole-v1", policy_kwargs=kwargs, device="cpu"))


WITHOUT = """
    import json, sys

    for name in ("stable_baselines3", "sb3_contrib", "rlcatalog_sb3.policies"):
        sys.modules[name] = None  # importing them fails
    import numpy as np
    import rlcatalog

    policy = rlcatalog.load(sys.argv[1])
    observations = json.loads(sys.argv[2])
    observations = [
        {
            "a": (one["a"][0], np.asarray(one["a"][1], np.float32)),
            "action_mask": np.asarray(one["action_mask"], np.int8),
        }
        for one in observations
    ]
    step = policy.act(observations, explore=False)
    print(json.dumps([step.action[0].tolist(), step.action[1].tolist(), step.logp.tolist()]))
"""


@pytest.mark.attack
def test_an_exported_policy_acts_the_same_without_stable_baselines(tmp_path):
    model = PPO(CatalogPolicy, for_sb3(Nested()), n_steps=16, batch_size=8, seed=0, device="cpu")
    model.learn(16)
    model.policy.catalog_policy.save(tmp_path)
    env = Nested()
    observations = [env.reset(seed=seed)[0] for seed in range(5)]
    plain = [
        {"a": [int(o["a"][0]), o["a"][1].tolist()], "action_mask": o["action_mask"].tolist()}
        for o in observations
    ]
    found = warm.run(["-c", textwrap.dedent(WITHOUT), str(tmp_path), json.dumps(plain)], tmp_path)
    assert found.returncode == 0, found.stderr
    choice, box, logp = json.loads(found.stdout)
    step = to_policy(model).act(observations, explore=False)
    assert choice == step.action[0].tolist()
    np.testing.assert_allclose(box, step.action[1], atol=1e-6)
    np.testing.assert_allclose(logp, step.logp, atol=1e-5)
    flat = [for_sb3(Nested()).flattening.observe(o) for o in observations]
    raw = model.predict(
        {key: np.stack([o[key] for o in flat]) for key in flat[0]}, deterministic=True
    )[0]
    assert choice == (raw[:, 0].astype(int) + 1).tolist()
    if importlib.util.find_spec("onnxruntime") is not None:  # and as a file that needs no framework
        to_policy(model).export(tmp_path / "policy.onnx")
        found = rlcatalog.Actor(tmp_path / "policy.onnx").act(observations, explore=False)
        assert found.action[0].tolist() == choice
        np.testing.assert_allclose(found.action[1], box, atol=1e-5)
        np.testing.assert_allclose(found.logp, logp, atol=1e-5)


@pytest.mark.parametrize("algo", ["PPO", "DQN"])
def test_the_command_writes_what_evaluate_reads(algo, tmp_path):
    from rlcatalog_cli.app import make_app
    from rlcatalog_runs.records import read_record

    runner = CliRunner()
    arguments = [
        "train",
        "CartPole-v1",
        "-e",
        "sb3",
        "--algo",
        algo,
        "-n",
        "150",
        "--out",
        str(tmp_path),
        "--model",
        "fcnet_hiddens=[8]",
        "--set",
        "learning_rate=0.01",
    ]
    more = ["--envs", "2", "--set", "n_steps=32", "--set", "n_epochs=2"]
    arguments += (
        more if algo == "PPO" else ["--set", "learning_starts=50", "--set", "buffer_size=1000"]
    )
    trained = runner.invoke(make_app(arguments), arguments, catch_exceptions=False)
    assert trained.exit_code == 0, trained.output
    left = {
        "policy",
        "config.json",
        "run.json",
        "metrics.jsonl",
        "learning_curve.png",
        "checkpoints",
    }
    assert left <= {path.name for path in tmp_path.iterdir()}
    record = read_record(tmp_path)
    assert (record["status"], record["engine"]) == ("finished", "sb3")
    assert {"stable_baselines3", "torch", "rlcatalog-sb3"} <= record["versions"].keys()
    saved = json.loads((tmp_path / "config.json").read_text(encoding="utf-8"))
    assert saved["algorithm"]["name"] == algo
    assert saved["model"]["fcnet_hiddens"] == [8]
    arguments = ["evaluate", str(tmp_path), "--episodes", "2"]
    assert (
        "mean return"
        in runner.invoke(make_app(arguments), arguments, catch_exceptions=False).output
    )


def test_what_could_not_be_converted_afterwards_is_refused_before_it_trains(tmp_path):
    from rlcatalog_cli.app import make_app

    arguments = [
        "train",
        "Pendulum-v1",
        "--engine",
        "sb3",
        "--algo",
        "SAC",
        "--set",
        "use_sde=true",
        "--out",
        str(tmp_path / "out"),
    ]
    with pytest.raises(NotServedError, match="explores with use_sde"):
        CliRunner().invoke(make_app(arguments), arguments, catch_exceptions=False)
    assert not (tmp_path / "out").exists()


def test_without_a_folder_a_run_gets_a_new_one_and_nothing_written_before_it_changes_it(
    tmp_path, monkeypatch
):
    """A policy is converted for the config before the first step; the run's random numbers are its
    own.
    """
    from rlcatalog_cli.app import make_app
    from rlcatalog_sb3.algorithms import make

    monkeypatch.chdir(tmp_path)
    arguments = [
        "train",
        "Pendulum-v1",
        "-e",
        "sb3",
        "--algo",
        "SAC",
        "-n",
        "40",
        "-m",
        "fcnet_hiddens=[4]",
        "--set",
        "learning_starts=20",
        "--set",
        "buffer_size=100",
    ]
    assert CliRunner().invoke(make_app(arguments), arguments, catch_exceptions=False).exit_code == 0
    (folder,) = (tmp_path / "runs/Pendulum-v1").iterdir()
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d-\d\d-\d\d-SAC-seed0", folder.name)
    config = {"fcnet_hiddens": [4]}
    seed = derive_seed(0, SeedStream.ENGINE)  # what the command passes on for --seed 0
    env = make_vec_env(lambda: for_sb3("Pendulum-v1", config), n_envs=1, seed=seed)
    alone = make(
        "SAC", env, config, device="cpu", learning_starts=20, buffer_size=100, seed=seed
    ).learn(40)
    *_, saved = sorted(folder.glob("checkpoints/*/algorithm.zip"))
    found, expected = (one.policy.state_dict() for one in (SAC.load(saved), alone))
    assert all(torch.equal(found[name], value) for name, value in expected.items())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--algo", "PPPO"], "--algo: unknown algorithm 'PPPO'. Did you mean 'PPO'?"),
        (["--set", "gama=1"], "PPO does not accept 'gama'. Did you mean 'gamma'?"),
        (["--set", "seed=1"], "--set does not accept 'seed'. Use its option instead: --seed"),
        (["--model", "use_lstm=true"], "use_lstm: PPO keeps no state"),
    ],
)
def test_the_command_says_what_it_does_not_take(arguments, message, tmp_path):
    from rlcatalog.errors import CatalogError
    from rlcatalog_cli.app import make_app

    arguments = ["train", "CartPole-v1", "-e", "sb3", "--out", str(tmp_path / "out"), *arguments]
    with pytest.raises(CatalogError) as caught:
        CliRunner().invoke(make_app(arguments), arguments, catch_exceptions=False)
    assert message in str(caught.value)
    assert not (tmp_path / "out").exists()
