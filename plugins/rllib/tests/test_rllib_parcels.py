"""A user's classes in other processes and in restored checkpoints: by name, by a copy of their
code, or an error.
"""

import json
import os
import pickle
import sys
import threading

import numpy as np
import pytest
import users_nets_module
import warm

pytest.importorskip("ray.rllib", reason="Ray RLlib is not installed")

from gymnasium.spaces import Box, Discrete
from ray.rllib.algorithms.ppo import PPOConfig

import rlcatalog_rllib
from rlcatalog.catalog import default_catalog
from rlcatalog.errors import MissingPluginError
from rlcatalog_rllib.parcels import Parcel, content_of

OBS = np.full((2, 4), 0.1, np.float32)


@pytest.fixture
def users_nets(tmp_path):
    """A user's module, whose class `Slim` has half of the units in `fcnet_hiddens`."""
    (tmp_path / "code").mkdir()
    with users_nets_module.users_nets(tmp_path / "code") as module:
        yield module


@pytest.fixture
def forget_users_nets(users_nets, tmp_path):
    """A function after which this process cannot import the user's module, like another process."""
    code = str(tmp_path / "code")
    with pytest.MonkeyPatch.context() as patch:

        def forget():
            patch.setattr(sys, "path", [entry for entry in sys.path if entry != code])
            patch.delitem(sys.modules, "users_nets")

        yield forget


def configure(model):
    """Configure PPO for CartPole, with a layer of 12 units."""
    config = PPOConfig().debugging(log_level="ERROR").reporting(min_time_s_per_iteration=0)
    config.env_runners(num_env_runners=0, rollout_fragment_length=20)
    config.training(train_batch_size_per_learner=20, minibatch_size=20, num_epochs=1)
    return rlcatalog_rllib.configure(config, "CartPole-v1", model={"fcnet_hiddens": [12], **model})


# --- classes in a config --------------------------------------------------------------------------


def test_class_in_the_config_is_imported_if_possible(users_nets):
    spec = configure({"custom_model": users_nets.Slim}).rl_module_spec

    config = pickle.loads(pickle.dumps(spec.model_config))

    assert content_of(config["custom_model"]) is users_nets.Slim


def test_class_in_the_config_is_rebuilt_from_its_code(users_nets, forget_users_nets):
    spec = configure({"custom_model": users_nets.Slim}).rl_module_spec
    pickled = pickle.dumps(spec.model_config)
    forget_users_nets()

    restored = content_of(pickle.loads(pickled)["custom_model"])

    space = Box(-1, 1, (4,), np.float32)
    model = restored(space, Discrete(2), 2, {"fcnet_hiddens": [12]}, "restored")
    assert model.hidden.layers[0].out_features == 6  # half of 12


def test_class_in_a_critics_config_is_rebuilt_from_its_code(users_nets, forget_users_nets):
    spec = configure({"critic": {"custom_model": users_nets.Slim}}).rl_module_spec
    pickled = pickle.dumps(spec.model_config)
    forget_users_nets()

    restored = content_of(pickle.loads(pickled)["critic"]["custom_model"])

    assert restored.__name__ == "Slim"


def test_class_that_cannot_be_pickled_is_named(users_nets, forget_users_nets):
    users_nets.Slim.lock = threading.Lock()  # cannot be pickled, so there is no copy of the code
    pickled = pickle.dumps(Parcel.of_code(users_nets.Slim))
    forget_users_nets()

    with pytest.raises(MissingPluginError, match=r"users_nets\.Slim: cannot be imported") as caught:
        pickle.loads(pickled)

    assert "rlcatalog new" in str(caught.value)


# --- registered classes in a checkpoint -----------------------------------------------------------


@pytest.fixture
def checkpoint(local_ray, users_nets, tmp_path):
    """Path of a checkpoint with a registered class, and the values that it computed for OBS."""
    default_catalog.cache_clear()
    catalog = default_catalog()
    catalog.register_model("slim", users_nets.Slim)
    # A class that cannot be pickled, and that the checkpoint does not need.
    unrelated = type("Unrelated", (users_nets.Slim,), {"lock": threading.Lock()})
    catalog.register_model("unrelated", unrelated)
    try:
        algorithm = configure({"custom_model": "slim"}).build_algo()
        algorithm.train()
        path = algorithm.save_to_path(str(tmp_path / "checkpoint"))
        values = rlcatalog_rllib.to_policy(algorithm).act(OBS, explore=False).value
        algorithm.stop()
    finally:
        default_catalog.cache_clear()
    return path, values


#: Program that restores a module, and prints its model's class, whether the user's module was
#: imported, and values.
RESTORE_MODULE = """
import json, sys
import numpy as np
from rlcatalog_rllib import CatalogRLModule, to_policy
module = CatalogRLModule.from_checkpoint(sys.argv[1])
step = to_policy(module).act(np.full((2, 4), 0.1, np.float32), explore=False)
print(json.dumps([type(module.model).__name__, "users_nets" in sys.modules, step.value.tolist()]))
"""


@pytest.mark.slow
def test_module_restored_in_a_new_process_has_a_registered_class(checkpoint, tmp_path):
    path, expected = checkpoint
    # The part of the checkpoint in which Ray saves the module.
    module = os.path.join(path, "learner_group", "learner", "rl_module", "default_policy")

    process = warm.run(["-c", RESTORE_MODULE, module], cwd=tmp_path)

    assert process.returncode == 0, process.stderr[-2000:]
    last_line = process.stdout.splitlines()[-1]
    class_name, users_module_is_imported, values = json.loads(last_line)
    assert class_name == "Slim"
    assert not users_module_is_imported  # the class is rebuilt from its code in the checkpoint
    np.testing.assert_allclose(values, expected, rtol=1e-6)
