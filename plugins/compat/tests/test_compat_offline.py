"""`JsonReader` for RLlib's batches: files, columns, errors, tensors, and a loss that reads them."""

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


def make_batch(first, rows=3, **columns):
    """Return a batch as RLlib writes it; its column `t` counts from `first`."""
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


def write_batches(path, *batches):
    """Write a file with a batch in each line."""
    path.write_text("".join(f"{json.dumps(batch)}\n" for batch in batches))
    return path


@pytest.fixture
def folder(tmp_path):
    """A folder of two files: batches that begin at 0 and 10, and one that begins at 20."""
    first = json.dumps(make_batch(0, rows=3))
    second = json.dumps(make_batch(10, rows=5))
    (tmp_path / "a.json").write_text(f"{first}\n\n{second}\n")
    write_batches(tmp_path / "b.json", make_batch(20, rows=3))
    return tmp_path


# --- reading --------------------------------------------------------------------------------------


def test_next_returns_batches_line_after_line(folder):
    reader = JsonReader(str(folder))

    first = reader.next()
    second = reader.next()

    assert isinstance(first, SampleBatch)
    assert first["t"].tolist() == [0, 1, 2]
    assert second["t"].tolist() == [10, 11, 12, 13, 14]


def test_next_returns_columns_as_arrays(folder):
    batch = JsonReader(str(folder)).next()

    assert batch["obs"].dtype == np.float64
    assert batch["obs"].tolist() == [[0, 0.5, -1, 2], [1, 0.5, -1, 2], [2, 0.5, -1, 2]]
    assert batch["actions"].dtype == np.int64
    assert batch["infos"] == [{"lives": 1}] * 3


def test_next_reads_all_files_again_and_again(folder):
    reader = JsonReader(str(folder))

    firsts = {int(reader.next()["t"][0]) for _ in range(60)}

    assert firsts == {0, 10, 20}


def test_read_all_files_returns_each_batch_once(folder):
    reader = JsonReader(str(folder))

    assert [batch.count for batch in reader.read_all_files()] == [3, 5, 3]


@pytest.mark.parametrize(
    "get_inputs",
    [
        pytest.param(lambda folder: folder / "b.json", id="file"),
        pytest.param(lambda folder: str(folder / "b*.json"), id="pattern"),
        pytest.param(lambda folder: [str(folder / "b.json")], id="list-of-files"),
    ],
)
def test_reader_takes_files_and_patterns(folder, get_inputs):
    reader = JsonReader(get_inputs(folder))

    assert [int(reader.next()["t"][0]) for _ in range(3)] == [20, 20, 20]


def test_reader_keeps_the_structure_of_observations(tmp_path):
    batch = make_batch(0, obs={"a": [[1], [2], [3]], "b": {"c": [1, 2, 3]}})
    file = write_batches(tmp_path / "x.json", batch)

    assert JsonReader(file).next()["obs"]["b"]["c"].tolist() == [1, 2, 3]


def test_reader_returns_batches_of_several_policies(tmp_path):
    # The column "t" counts from the given number.
    policy_batches = {"one": make_batch(first=0), "two": make_batch(first=5, rows=2)}
    file = write_batches(
        tmp_path / "x.json",
        {"type": "MultiAgentBatch", "count": 3, "policy_batches": policy_batches},
    )

    batch = JsonReader(file).next()

    assert isinstance(batch, MultiAgentBatch)
    assert batch.count == 3
    assert batch.policy_batches["two"]["t"].tolist() == [5, 6]


def test_reader_reads_what_our_ppo_recorded(tmp_path):
    algo = rlcatalog_ppo.PPO(
        env="CartPole-v1",
        config={"num_envs": 2, "rollout_length": 16, "minibatch_size": 16},
        record=tmp_path,
    )
    algo.train()
    algo.stop()

    batch = JsonReader(tmp_path).next()

    assert isinstance(batch, SampleBatch)
    # Batches have 256 rows by default, so rows of the 32 steps are drawn several times.
    assert batch["obs"].shape == (256, 4)  # CartPole has four numbers
    assert batch["actions"].shape == (256,)


def test_tf_input_ops_reads_a_batch_at_each_run(folder):
    reader = JsonReader(folder / "a.json")

    @tf.function
    def read():
        ops = reader.tf_input_ops()
        assert ops["obs"].shape.as_list() == [None, 4]
        return ops["t"]

    assert [read().numpy()[0] for _ in range(4)] == [0, 10, 0, 10]


def test_tf_input_ops_has_the_columns_of_numbers(folder):
    reader = JsonReader(folder / "a.json")

    @tf.function
    def list_columns():
        return sorted(reader.tf_input_ops())

    names = [name.numpy().decode() for name in list_columns()]
    assert names == ["actions", "dones", "obs", "rewards", "t"]  # not infos


# --- errors ---------------------------------------------------------------------------------------


class ExitWhenUnpickled:
    def __reduce__(self):
        return exec, ("raise SystemExit('a pickle ran')",)


#: A column as RLlib packs it: a pickle.
PACKED = base64.b64encode(pickle.dumps(ExitWhenUnpickled())).decode()


@pytest.mark.parametrize(
    ("columns", "names"),
    [
        pytest.param({"obs": PACKED, "new_obs": PACKED}, "obs, new_obs", id="columns"),
        pytest.param({"obs": {"a": PACKED}}, "obs", id="nested"),
    ],
)
def test_packed_columns_are_an_error_and_not_unpickled(tmp_path, columns, names):
    file = write_batches(tmp_path / "x.json", make_batch(0, **columns))

    with pytest.raises(NotServedError, match=r"pickle.*compress_columns=\[\]") as caught:
        JsonReader(file).next()

    assert f"x.json, line 1: packed: {names}. " in str(caught.value)


def test_packed_columns_of_several_policies_are_an_error(tmp_path):
    policy_batches = {"one": make_batch(0, new_obs=PACKED)}
    file = write_batches(
        tmp_path / "x.json",
        {"type": "MultiAgentBatch", "count": 3, "policy_batches": policy_batches},
    )

    with pytest.raises(NotServedError, match="packed: new_obs"):
        JsonReader(file).next()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "line 1: not JSON"),
        ("[1]", "expected an RLlib batch"),
        ('{"obs": []}', "found {'obs': "),
        ('{"type": "Episode"}', "found 'Episode'"),
        ("\n\n", "no batch in 100 consecutive files"),
        ('{"type": "SampleBatch", "obs": [[1], [1, 2]]}', "obs: expected rows of one shape"),
    ],
    ids=["no-json", "list", "no-type", "other-type", "no-lines", "rows-of-two-shapes"],
)
def test_file_without_batches_is_an_error(tmp_path, text, message):
    (tmp_path / "x.json").write_text(text)

    with pytest.raises(SavedPolicyError, match=message):
        JsonReader(tmp_path / "x.json").next()


@pytest.mark.parametrize("name", ["", "no.json", "no/*.json"], ids=["folder", "file", "pattern"])
def test_path_without_json_files_is_an_error(tmp_path, name):
    with pytest.raises(SavedPolicyError, match="there are no JSON files"):
        JsonReader(str(tmp_path / name))


def test_missing_file_of_a_list_is_an_error():
    with pytest.raises(SavedPolicyError, match=r"no\.json: there is no such file"):
        JsonReader(["no.json"])


@pytest.mark.parametrize(
    "inputs", ["s3://bucket/file.json", ["s3://bucket/file.json"], ["x.zip"]], ids=str
)
def test_remote_and_packed_files_are_not_supported(inputs):
    with pytest.raises(NotServedError, match="only local text files can be read"):
        JsonReader(inputs)


# --- a loss that reads batches --------------------------------------------------------------------


class TorchImitating(TorchModelV2, nn.Module):
    """RLlib's example of a model that imitates recorded actions."""

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
    """The same in TensorFlow."""

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


def record_good_actions():
    """Return twenty batches of CartPole, in which the cart moves to where the pole falls."""
    env = gym.make("CartPole-v1")
    obs, _ = env.reset(seed=0)
    batches = []
    for _ in range(20):
        batch = {"type": "SampleBatch", "obs": [], "actions": []}
        for _ in range(32):
            angle, angular_velocity = obs[2:]
            action = int(angle + angular_velocity > 0)
            batch["obs"].append([float(number) for number in obs])
            batch["actions"].append(action)
            obs, _, terminated, truncated, _ = env.step(action)
            if terminated or truncated:
                obs, _ = env.reset()
        batches.append(batch)
    return batches


@pytest.mark.parametrize(
    ("framework", "model"),
    [
        pytest.param("torch", TorchImitating, id="torch"),
        pytest.param("tf", TFImitating, id="tf", marks=pytest.mark.slow),
    ],
)
@pytest.mark.filterwarnings("ignore::rlcatalog.errors.CatalogWarning")
def test_custom_loss_learns_recorded_actions(tmp_path, framework, model):
    file = write_batches(tmp_path / "x.json", *record_good_actions())
    ModelCatalog.register_custom_model("imitating", model)
    config = {
        "framework": framework,
        "model": {
            "custom_model": "imitating",
            "fcnet_hiddens": [16],
            "custom_model_config": {"input_files": str(file)},
        },
    }
    algo = PPO(env="CartPole-v1", config=config)

    first_result = algo.train()
    second_result = algo.train()
    algo.stop()

    first_loss = first_result["info"]["learner"]["model"]["imitation_loss"]
    second_loss = second_result["info"]["learner"]["model"]["imitation_loss"]
    # A model that gives both actions the same probability has a loss of log 2.
    assert float(second_loss) < float(first_loss) < np.log(2)
