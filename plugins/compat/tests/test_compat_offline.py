"""RLlib's JSON batches: plain columns are read, packed ones refused by name; the linked example's
models use them.
"""

import base64
import json
import pickle

import gymnasium as gym
import numpy as np
import pytest

import rlcatalog_ppo
from rlcatalog.errors import NotServedError, SavedPolicyError
from rlcatalog_compat.rllib.algorithms.ppo import PPO
from rlcatalog_compat.rllib.models import ModelCatalog
from rlcatalog_compat.rllib.models.modelv2 import restore_original_dimensions
from rlcatalog_compat.rllib.models.tf.fcnet import FullyConnectedNetwork
from rlcatalog_compat.rllib.models.tf.tf_action_dist import Categorical
from rlcatalog_compat.rllib.models.tf.tf_modelv2 import TFModelV2
from rlcatalog_compat.rllib.models.torch.fcnet import FullyConnectedNetwork as TorchFC
from rlcatalog_compat.rllib.models.torch.torch_action_dist import TorchCategorical
from rlcatalog_compat.rllib.models.torch.torch_modelv2 import TorchModelV2
from rlcatalog_compat.rllib.offline import JsonReader
from rlcatalog_compat.rllib.policy.sample_batch import MultiAgentBatch, SampleBatch
from rlcatalog_compat.rllib.utils.framework import try_import_tf, try_import_torch

tf1, tf, tfv = try_import_tf()
torch, nn = try_import_torch()


def line(first, rows=3, **columns):
    """A batch as RLlib's writer writes it, its rows numbered from `first`."""
    numbers = range(first, first + rows)
    return {
        "type": "SampleBatch",
        "t": list(numbers),
        "obs": [[n, 0.5, -1.0, 2] for n in numbers],
        "actions": [n % 2 for n in numbers],
        "rewards": [1.0] * rows,
        "dones": [False] * rows,
        "infos": [{"lives": 1}] * rows,
        **columns,
    }


def written(path, *lines):
    path.write_text("".join(f"{json.dumps(one)}\n" for one in lines))
    return path


@pytest.fixture
def folder(tmp_path):
    written(tmp_path / "a.json", line(0), {}).write_text(
        json.dumps(line(0)) + "\n\n" + json.dumps(line(10, 5)) + "\n"
    )
    written(tmp_path / "b.json", line(20))
    return tmp_path


def test_batches_come_line_after_line_and_over_and_over(folder):
    reader = JsonReader(str(folder))
    first, second = reader.next(), reader.next()
    assert isinstance(first, SampleBatch)
    assert (first["t"].tolist(), second["t"].tolist()) == ([0, 1, 2], [10, 11, 12, 13, 14])
    assert (first["obs"].dtype, first["obs"].shape, first["actions"].dtype) == (
        np.float64,
        (3, 4),
        np.int64,
    )
    np.testing.assert_array_equal(first["obs"][:, 0], [0, 1, 2])
    assert first["infos"] == [{"lives": 1}] * 3
    assert {int(reader.next()["t"][0]) for _ in range(60)} == {0, 10, 20}
    assert [batch.count for batch in reader.read_all_files()] == [3, 5, 3]


@pytest.mark.parametrize(
    "how",
    [
        lambda folder: folder / "b.json",
        lambda folder: str(folder / "b*.json"),
        lambda folder: [str(folder / "b.json")],
    ],
)
def test_a_file_a_pattern_and_a_list_of_files(folder, how):
    reader = JsonReader(how(folder))
    assert [int(reader.next()["t"][0]) for _ in range(3)] == [20, 20, 20]


def test_structured_observations_and_several_agents(tmp_path):
    nested = line(0, obs={"a": [[1], [2], [3]], "b": {"c": [1, 2, 3]}})
    file = written(
        tmp_path / "x.json",
        nested,
        {
            "type": "MultiAgentBatch",
            "count": 3,
            "policy_batches": {"one": line(0), "two": line(5, 2)},
        },
    )
    reader = JsonReader(file)
    assert reader.next()["obs"]["b"]["c"].tolist() == [1, 2, 3]
    several = reader.next()
    assert isinstance(several, MultiAgentBatch)
    assert (several.count, several.policy_batches["two"]["t"].tolist()) == (3, [5, 6])


class Evil:
    def __reduce__(self):
        return exec, ("raise SystemExit('a pickle ran')",)


def test_packed_columns_are_refused_by_name_and_not_read(tmp_path):
    packed = base64.b64encode(pickle.dumps(Evil())).decode()
    for columns, names in (
        ({"obs": packed, "new_obs": packed}, "packed: obs, new_obs"),
        ({"obs": {"a": packed}}, "packed: obs"),
    ):
        file = written(tmp_path / "x.json", line(0, **columns))
        with pytest.raises(
            NotServedError, match=rf"x\.json, line 1: {names}\. .*pickle.*compress_columns=\[\]"
        ):
            JsonReader(file).next()
    file = written(
        tmp_path / "x.json",
        {"type": "MultiAgentBatch", "count": 3, "policy_batches": {"one": line(0, new_obs=packed)}},
    )
    with pytest.raises(NotServedError, match="packed: new_obs"):
        JsonReader(file).next()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "line 1: not JSON"),
        ("[1]", "expected an RLlib batch"),
        ('{"obs": []}', "found {'obs': "),
        ('{"type": "Episode"}', "found 'Episode'"),
        ("\n\n", "no batch in 100 consecutive files"),
        ('{"type": "SampleBatch", "obs": [[1], [1, 2]]}', "obs: expected rows of one shape"),
    ],
)
def test_what_is_no_batch_is_named(tmp_path, text, said):
    (tmp_path / "x.json").write_text(text)
    with pytest.raises(SavedPolicyError, match=said):
        JsonReader(tmp_path / "x.json").next()


def test_files_that_are_not_there(tmp_path):
    for inputs in (tmp_path, tmp_path / "no.json", "no/*.json"):
        with pytest.raises(SavedPolicyError, match="there are no JSON files"):
            JsonReader(inputs)
    with pytest.raises(SavedPolicyError, match=r"no\.json: there is no such file"):
        JsonReader(["no.json"])
    for inputs in ("s3://bucket/file.json", ["s3://bucket/file.json"], [str(tmp_path / "x.zip")]):
        with pytest.raises(NotServedError, match="only local text files can be read"):
            JsonReader(inputs)


def test_a_folder_that_our_ppo_recorded(tmp_path):
    own = rlcatalog_ppo.PPO(
        env="CartPole-v1",
        config={"num_envs": 2, "rollout_length": 16, "minibatch_size": 16},
        record=tmp_path,
    )
    own.train()
    own.stop()
    batch = JsonReader(tmp_path).next()
    assert isinstance(batch, SampleBatch)
    assert batch["obs"].shape == (256, 4)
    assert batch["actions"].shape == (256,)  # as in RLlib's files


def test_tensors_are_read_anew_at_each_run(folder):
    reader = JsonReader(folder / "a.json")

    @tf.function
    def read():
        ops = reader.tf_input_ops()
        assert ops["obs"].shape.as_list() == [None, 4]
        return ops["t"], tf.cast(ops["obs"], tf.float32), sorted(ops)

    assert [read()[0].numpy()[0] for _ in range(4)] == [0, 10, 0, 10]
    assert [name.numpy().decode() for name in read()[2]] == [
        "actions",
        "dones",
        "obs",
        "rewards",
        "t",
    ]


# --- the linked example's models ------------------------------------------------------------------


class TorchImitating(TorchModelV2, nn.Module):
    def __init__(self, obs_space, action_space, num_outputs, model_config, name, input_files):
        super().__init__(obs_space, action_space, num_outputs, model_config, name)
        nn.Module.__init__(self)
        self.reader = JsonReader(input_files)
        self.fcnet = TorchFC(
            self.obs_space, self.action_space, num_outputs, model_config, name="fcnet"
        )

    def forward(self, input_dict, state, seq_lens):
        return self.fcnet(input_dict, state, seq_lens)

    def value_function(self):
        return self.fcnet.value_function()

    def custom_loss(self, policy_loss, loss_inputs):
        batch = self.reader.next()
        obs = restore_original_dimensions(
            torch.from_numpy(batch["obs"]).float(), self.obs_space, tensorlib="torch"
        )
        logits, _ = self.forward({"obs": obs}, [], None)
        action_dist = TorchCategorical(logits, self.model_config)
        self.imitation_loss = torch.mean(-action_dist.logp(torch.from_numpy(batch["actions"])))
        return [loss + 10 * self.imitation_loss for loss in policy_loss]

    def metrics(self):
        return {"imitation_loss": self.imitation_loss}


class TFImitating(TFModelV2):
    def __init__(self, obs_space, action_space, num_outputs, model_config, name, **custom):
        super().__init__(obs_space, action_space, num_outputs, model_config, name)
        self.fcnet = FullyConnectedNetwork(
            self.obs_space, self.action_space, num_outputs, model_config, name="fcnet"
        )

    def forward(self, input_dict, state, seq_lens):
        return self.fcnet(input_dict, state, seq_lens)

    def value_function(self):
        return self.fcnet.value_function()

    def custom_loss(self, policy_loss, loss_inputs):
        reader = JsonReader(self.model_config["custom_model_config"]["input_files"])
        input_ops = reader.tf_input_ops()
        obs = restore_original_dimensions(tf.cast(input_ops["obs"], tf.float32), self.obs_space)
        logits, _ = self.forward({"obs": obs}, [], None)
        action_dist = Categorical(logits, self.model_config)
        self.imitation_loss = tf.reduce_mean(-action_dist.logp(input_ops["actions"]))
        return policy_loss + 10 * self.imitation_loss

    def metrics(self):
        return {"imitation_loss": self.imitation_loss}


@pytest.mark.parametrize("framework", ["torch", pytest.param("tf", marks=pytest.mark.attack)])
@pytest.mark.filterwarnings("ignore::rlcatalog.errors.CatalogWarning")
def test_the_linked_example_s_loss_over_recorded_batches(tmp_path, framework):
    """The records push in the direction the pole falls to; what imitates them comes to do so."""
    env, lines = gym.make("CartPole-v1"), []
    obs, _ = env.reset(seed=0)
    for _ in range(20):
        batch = {"type": "SampleBatch", "obs": [], "actions": []}
        for _ in range(32):
            action = int(obs[2] + obs[3] > 0)
            batch["obs"].append([float(x) for x in obs])
            batch["actions"].append(action)
            obs, _, *over, _ = env.step(action)
            if any(over):
                obs, _ = env.reset()
        lines.append(batch)
    file = written(tmp_path / "x.json", *lines)
    ModelCatalog.register_custom_model(
        "imitating", TorchImitating if framework == "torch" else TFImitating
    )
    config = {
        "framework": framework,
        "model": {
            "custom_model": "imitating",
            "fcnet_hiddens": [16],
            "custom_model_config": {"input_files": str(file)},
        },
    }
    algo = PPO(env="CartPole-v1", config=config)
    losses = [float(algo.train()["info"]["learner"]["model"]["imitation_loss"]) for _ in range(2)]
    algo.stop()
    assert losses[1] < losses[0] < np.log(2)
