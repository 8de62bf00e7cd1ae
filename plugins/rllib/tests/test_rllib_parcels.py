"""Classes of the running program reach fresh processes and restored checkpoints, or an error says
how.
"""

import json
import os
import pickle
import sys
import threading

import gymnasium as gym
import numpy as np
import pytest
import users_nets_module
import warm

pytest.importorskip("ray.rllib", reason="Ray RLlib is not installed")

from ray.rllib.algorithms.ppo import PPO, PPOConfig

import rlcatalog_rllib
from rlcatalog.catalog import default_catalog
from rlcatalog.errors import MissingPluginError
from rlcatalog_rllib.parcels import Parcel, content_of

RESTORE = """
import json, sys
import numpy as np
from rlcatalog_rllib import CatalogRLModule, to_policy
module = CatalogRLModule.from_checkpoint(sys.argv[1])
step = to_policy(module).act(np.full((2, 4), 0.1, np.float32), explore=False)
print(json.dumps([type(module.model).__name__, "users_nets" in sys.modules, step.value.tolist()]))
"""


@pytest.fixture
def users_nets(tmp_path):
    """The user's module; at the end it is gone from this process."""
    (tmp_path / "code").mkdir()
    with users_nets_module.users_nets(tmp_path / "code") as module:
        yield module


def configured(model):
    config = PPOConfig().debugging(log_level="ERROR").reporting(min_time_s_per_iteration=0)
    config.env_runners(num_env_runners=0, rollout_fragment_length=20)
    config.training(train_batch_size_per_learner=20, minibatch_size=20, num_epochs=1)
    return rlcatalog_rllib.configure(config, "CartPole-v1", model={"fcnet_hiddens": [12], **model})


@pytest.mark.attack  # how names reach processes is seen in test_rllib_algorithms.py
def test_a_registered_name_comes_back_where_its_module_is_missing(
    local_ray, users_nets, tmp_path, monkeypatch
):
    """How it reaches runners and learners stands in test_rllib_algorithms.py."""
    default_catalog.cache_clear()
    catalog = default_catalog()
    catalog.register_model("slim", users_nets.Slim)
    catalog.register_model(
        "unrelated", type("Unrelated", (users_nets.Slim,), {"lock": threading.Lock()})
    )
    try:
        algo = configured({"custom_model": "slim"}).build_algo()
        algo.train()
        path = algo.save_to_path(str(tmp_path / "checkpoint"))
        obs = np.full((2, 4), 0.1, np.float32)
        value = rlcatalog_rllib.to_policy(algo).act(obs, explore=False).value
        algo.stop()
    finally:
        default_catalog.cache_clear()
    # Neither the module nor the name is known any more.
    monkeypatch.setattr(
        sys, "path", [entry for entry in sys.path if entry != str(tmp_path / "code")]
    )
    monkeypatch.delitem(sys.modules, "users_nets")
    again = PPO.from_checkpoint(path)
    np.testing.assert_array_equal(
        rlcatalog_rllib.to_policy(again).act(obs, explore=False).value, value
    )
    again.stop()
    module = os.path.join(path, "learner_group", "learner", "rl_module", "default_policy")
    done = warm.run(["-c", RESTORE, module], cwd=tmp_path)
    assert done.returncode == 0, done.stderr[-2000:]
    name, imported, found = json.loads(done.stdout.splitlines()[-1])
    assert (name, imported) == ("Slim", False)
    np.testing.assert_allclose(found, value, rtol=1e-6)


def test_a_class_in_the_config_goes_by_name_where_it_can(users_nets):
    spec = configured({"custom_model": users_nets.Slim}).rl_module_spec
    config = pickle.loads(pickle.dumps(spec.model_config))
    assert content_of(config["custom_model"]) is users_nets.Slim
    with pytest.MonkeyPatch.context() as patch:
        sent = pickle.dumps(spec.model_config)
        patch.setattr(sys, "path", [entry for entry in sys.path if not entry.endswith("code")])
        patch.delitem(sys.modules, "users_nets")
        restored = content_of(pickle.loads(sent)["custom_model"])
    space = gym.make("CartPole-v1").observation_space
    made = restored(space, gym.spaces.Discrete(2), 2, {"fcnet_hiddens": [12]}, "restored")
    assert made.hidden.layers[0].out_features == 6


def test_what_cannot_travel_says_what_to_do(users_nets):
    users_nets.Slim.lock = threading.Lock()
    sent = pickle.dumps(Parcel.of_code(users_nets.Slim))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "path", [entry for entry in sys.path if not entry.endswith("code")])
        patch.delitem(sys.modules, "users_nets")
        with pytest.raises(
            MissingPluginError, match=r"users_nets\.Slim: cannot be imported.*rlcatalog new"
        ):
            pickle.loads(sent)
