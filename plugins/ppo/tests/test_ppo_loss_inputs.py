"""What a model's own loss is given and may return, and rollouts on disk."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from rlcatalog.errors import ModelContractError, SavedPolicyError
from rlcatalog_ppo.loss import as_drawn, check_loss, loss_inputs
from rlcatalog_ppo.offline import Reader, Recorder
from rlcatalog_ppo.rollout import Rollout

SCALAR = SimpleNamespace(
    action_codec=SimpleNamespace(scalar=True), model_name="Net", framework="torch"
)
VECTOR = SimpleNamespace(
    action_codec=SimpleNamespace(scalar=False), model_name="Net", framework="torch"
)


def test_loss_is_given_the_columns_under_both_names():
    columns = {
        name: np.arange(2.0) + i for i, name in enumerate(("reward", "advantage", "logp", "target"))
    }
    batch = {
        **columns,
        "obs": np.zeros((2, 3)),
        "raw_action": np.array([[1], [0]]),
        "columns": {"dones": np.ones(2)},
    }
    found = loss_inputs(SCALAR, batch)
    assert "columns" not in found
    assert found["actions"].tolist() == [1, 0]
    assert loss_inputs(VECTOR, batch)["actions"].tolist() == [[1], [0]]
    names = {
        "rewards": "reward",
        "advantages": "advantage",
        "action_logp": "logp",
        "value_targets": "target",
    }
    assert all(found[theirs] is found[ours] is columns[ours] for theirs, ours in names.items())
    assert found["dones"].tolist() == [1, 1]
    assert found["obs"] is batch["obs"]
    del batch["columns"]
    assert "dones" not in loss_inputs(SCALAR, batch)


def test_raw_actions_have_the_shape_of_rllib():
    raw = np.arange(6).reshape(2, 3, 1)
    assert as_drawn(SCALAR, raw).tolist() == [[0, 1, 2], [3, 4, 5]]
    assert as_drawn(VECTOR, raw) is raw


def test_loss_is_one_tensor_or_a_list_of_them():
    def is_number(term):
        return type(term) is float

    assert check_loss(SCALAR, 1.0, is_number) == [1.0]
    for kind in (list, tuple):
        assert check_loss(SCALAR, kind([1.0, 2.0]), is_number) == [1.0, 2.0]
        for wrong in (kind(), kind([1.0, None]), kind([None, 1.0])):
            with pytest.raises(
                ModelContractError, match=r"Net: custom_loss\(\) must return a tensor of torch"
            ):
                check_loss(SCALAR, wrong, is_number)
    with pytest.raises(
        ModelContractError, match=r"found None\. Return policy_loss with your terms added"
    ):
        check_loss(SCALAR, None, is_number)
    with pytest.raises(ModelContractError, match="found 'text'"):
        check_loss(SCALAR, "text", is_number)


# --- on disk --------------------------------------------------------------------------------------


def rollout_of(value, mask=None):
    shape = (3, 2)
    zeros = np.zeros(shape, np.float32)
    return Rollout(
        np.full((*shape, 1), value),
        np.zeros((*shape, 1), int),
        zeros,
        zeros,
        zeros + value,
        np.zeros(shape, bool),
        zeros,
        np.zeros(2),
        mask=mask,
    )


def test_each_rollout_is_one_file(tmp_path):
    folder = tmp_path / "some" / "where"
    recorder = Recorder(folder, SCALAR)
    assert recorder.number == 0
    for value in range(3):
        recorder.write(rollout_of(value))
    assert [path.name for path in sorted(folder.iterdir())] == [
        f"rollout-{n:05d}.npz" for n in range(3)
    ]
    assert recorder.number == 3
    with np.load(folder / "rollout-00002.npz") as file:
        assert {name: file[name].shape for name in file.files} == {
            "obs": (6, 1),
            "actions": (6,),
            "rewards": (6,),
            "dones": (6,),
        }
        assert file["rewards"].tolist() == [2] * 6
    again = Recorder(folder, SCALAR)
    assert again.number == 3
    again.write(rollout_of(3, mask=np.ones((3, 2, 4), bool)))
    with np.load(folder / "rollout-00003.npz") as file:
        assert file["action_mask"].shape == (6, 4)


def test_batches_are_drawn_from_all_files_by_the_seed(tmp_path):
    for value in range(2):
        recorder = Recorder(tmp_path, VECTOR)
        recorder.write(rollout_of(value))
    batch = Reader(tmp_path).next()
    assert {name: array.shape for name, array in batch.items()} == {
        "obs": (256, 1),
        "actions": (256, 1),
        "rewards": (256,),
        "dones": (256,),
    }

    def drawn(**options):
        reader = Reader(tmp_path, 3, **options)
        return [float(reader.next()["rewards"][0]) for _ in range(20)]

    assert drawn() == drawn(seed=0) != drawn(seed=1)
    assert set(drawn()) == {0, 1}


def test_damaged_file_is_named_and_nothing_in_it_is_executed(tmp_path):
    with pytest.raises(SavedPolicyError, match="no recorded rollouts"):
        Reader(tmp_path)
    path = tmp_path / "rollout-00000.npz"
    np.savez(path, rewards=np.array([print, None], object))
    with pytest.raises(
        SavedPolicyError, match=r"rollout-00000\.npz: not a recorded rollout: .*allow_pickle"
    ):
        Reader(tmp_path)
    path.write_bytes(b"no archive")
    with pytest.raises(SavedPolicyError, match=r"rollout-00000\.npz: not a recorded rollout"):
        Reader(tmp_path)
