"""`SampleBatch` as models and losses use it."""

import numpy as np
import pytest

from rlcatalog import ViewRequirement
from rlcatalog.errors import ConfigError
from rlcatalog_compat.rllib.evaluation.sample_batch import SampleBatch as Older
from rlcatalog_compat.rllib.policy.sample_batch import (
    DEFAULT_POLICY_ID,
    MultiAgentBatch,
    SampleBatch,
    concat_samples,
    convert_ma_batch_to_sample_batch,
)


def trajectory():
    return SampleBatch(
        obs=np.arange(8).reshape(4, 2),
        new_obs=np.arange(2, 10).reshape(4, 2),
        actions=[0, 1, 0, 1],
        eps_id=[7, 7, 8, 8],
    )


def test_columns_and_count():
    batch = trajectory()
    assert Older is SampleBatch
    assert (SampleBatch.CUR_OBS, SampleBatch.NEXT_OBS, SampleBatch.SEQ_LENS) == (
        "obs",
        "new_obs",
        "seq_lens",
    )
    assert batch.count == len(batch) == 4
    assert isinstance(batch["actions"], np.ndarray)
    assert batch.columns(["actions"])[0].tolist() == [0, 1, 0, 1]
    assert [row["actions"] for row in batch.rows()] == [0, 1, 0, 1]
    assert SampleBatch().count == 0
    assert not SampleBatch()


def test_whether_it_is_for_training():
    batch = SampleBatch({"obs": np.zeros(2)}, _is_training=True)
    assert batch.is_training is True
    assert batch["is_training"] is True
    batch.set_training(False)
    assert batch.get("is_training") is False
    assert "is_training" not in batch
    assert SampleBatch({"is_training": 3})["is_training"] == 3


def test_slices_and_joins():
    batch = trajectory()
    assert batch.slice(1, 3)["actions"].tolist() == [1, 0]
    assert batch[2:]["obs"].tolist() == [[4, 5], [6, 7]]
    assert [part.count for part in batch.timeslices(3)] == [3, 1]
    assert [part["eps_id"].tolist() for part in batch.split_by_episode()] == [[7, 7], [8, 8]]
    assert concat_samples(batch.timeslices(3))["obs"].tolist() == batch["obs"].tolist()
    assert batch[:1].concat(batch[1:])["actions"].tolist() == [0, 1, 0, 1]
    with pytest.raises(ConfigError, match="differ"):
        SampleBatch.concat_samples([batch, SampleBatch(obs=np.zeros((1, 2)))])


def test_sequences_keep_their_states():
    batch = SampleBatch(
        obs=np.arange(5), seq_lens=np.array([2, 3]), state_in_0=np.array([[1.0], [2.0]])
    )
    assert batch.count == 5
    assert SampleBatch({"obs": np.arange(6), "seq_lens": [2, 3]}, _zero_padded=True).count == 6
    later = batch.slice(2, 5)
    assert later["seq_lens"].tolist() == [3]
    assert later["state_in_0"].tolist() == [[2.0]]
    assert batch.slice(0, 2)["state_in_0"].tolist() == [[1.0]]
    through = batch.slice(1, 5)
    assert through["obs"].tolist() == [1, 2, 3, 4]
    assert through["seq_lens"].tolist() == [1, 3]
    assert through["state_in_0"].tolist() == [[1.0], [2.0]]


def test_copies_are_apart():
    batch = trajectory()
    deep, shallow = batch.copy(), batch.copy(shallow=True)
    deep["obs"][0] = -1
    shallow["extra"] = 1
    assert batch["obs"][0].tolist() == [0, 1]
    assert "extra" not in batch
    assert shallow["obs"] is batch["obs"]


def test_what_a_model_sees_at_one_step():
    views = {
        "obs": ViewRequirement(),
        "prev_actions": ViewRequirement("actions", shift=-1),
        "last": ViewRequirement("obs", shift="-1:0"),
        "state_in_0": ViewRequirement(),
    }
    found = trajectory().get_single_step_input_dict(views)
    assert found["obs"].tolist() == [[8, 9]]
    assert found["prev_actions"].tolist() == [1]
    assert found["last"].tolist() == [[[6, 7], [8, 9]]]
    first = trajectory().get_single_step_input_dict(views, index=0)
    assert first["obs"].tolist() == [[0, 1]]
    assert first["prev_actions"].tolist() == [0]
    assert first["last"].tolist() == [[[0, 0], [0, 1]]]


def test_several_policies():
    batch = MultiAgentBatch({DEFAULT_POLICY_ID: trajectory()}, 4)
    assert (batch.env_steps(), batch.agent_steps()) == (4, 4)
    assert convert_ma_batch_to_sample_batch(batch).count == 4
    with pytest.raises(ConfigError, match="one policy"):
        convert_ma_batch_to_sample_batch(MultiAgentBatch({"a": trajectory()}, 4))


def test_shuffling_keeps_rows_together():
    batch = SampleBatch(obs=np.arange(50), actions=np.arange(50) * 2).shuffle()
    assert (batch["actions"] == 2 * batch["obs"]).all()
    assert batch["obs"].tolist() != list(range(50))


@pytest.mark.parametrize(
    ("start", "end", "rows", "states"),
    [
        # The sequences are rows 0 to 2 and rows 3 to 6; row 7 is the end.
        (0, 5, [0, 1, 2], [100]),
        (2, 5, [0, 1, 2], [100]),
        (1, 3, [0, 1, 2], [100]),
        (4, 7, [3, 4, 5, 6], [200]),
        (1, 2, [], []),
        (0, None, [0, 1, 2, 3, 4, 5, 6], [100, 200]),
    ],
)
def test_batch_slice_returns_whole_sequences(start, end, rows, states):
    columns = {"obs": np.arange(7), "seq_lens": np.array([3, 4]), "state_in_0": [100, 200]}
    part = SampleBatch(columns)[start:end]
    assert part["obs"].tolist() == rows
    assert part["state_in_0"].tolist() == states
    assert part["seq_lens"].sum() == len(rows)


def test_padded_batch_slice_returns_whole_sequences():
    batch = SampleBatch(
        {"obs": np.arange(7), "seq_lens": np.array([3, 4]), "state_in_0": np.array([100, 200])}
    ).right_zero_pad(5)
    part = batch[6:10]  # row 6 is the second row of the second sequence, which begins at row 5
    assert part["obs"].tolist() == [3, 4, 5, 6, 0]
    assert part["state_in_0"].tolist() == [200]
