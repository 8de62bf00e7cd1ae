"""`SampleBatch` as models and losses use it."""

import numpy as np
import pytest

from rlcatalog import ViewRequirement
from rlcatalog.errors import ConfigError
from rlcatalog_compat.rllib.evaluation.sample_batch import SampleBatch as OlderSampleBatch
from rlcatalog_compat.rllib.policy.sample_batch import (
    DEFAULT_POLICY_ID,
    MultiAgentBatch,
    SampleBatch,
    concat_samples,
    convert_ma_batch_to_sample_batch,
)


def make_trajectory():
    """Return four rows of two episodes, 7 and 8."""
    return SampleBatch(
        obs=np.arange(8).reshape(4, 2),
        new_obs=np.arange(2, 10).reshape(4, 2),
        actions=[0, 1, 0, 1],
        eps_id=[7, 7, 8, 8],
    )


# --- columns and rows -----------------------------------------------------------------------------


def test_older_module_has_the_same_class():
    assert OlderSampleBatch is SampleBatch


def test_batch_has_the_column_names_of_rllib():
    assert SampleBatch.CUR_OBS == "obs"
    assert SampleBatch.NEXT_OBS == "new_obs"
    assert SampleBatch.SEQ_LENS == "seq_lens"


def test_batch_counts_its_rows():
    batch = make_trajectory()

    assert batch.count == 4
    assert len(batch) == 4


def test_empty_batch_is_false():
    assert SampleBatch().count == 0
    assert not SampleBatch()


def test_batch_has_columns_and_rows():
    batch = make_trajectory()

    [actions] = batch.columns(["actions"])

    assert isinstance(batch["actions"], np.ndarray)
    assert actions.tolist() == [0, 1, 0, 1]
    assert [row["actions"] for row in batch.rows()] == [0, 1, 0, 1]


def test_is_training_is_not_a_column():
    batch = SampleBatch({"obs": np.zeros(2)}, _is_training=True)

    assert batch.is_training is True
    assert batch["is_training"] is True
    assert "is_training" not in batch


def test_set_training_changes_is_training():
    batch = SampleBatch({"obs": np.zeros(2)}, _is_training=True)

    batch.set_training(False)

    assert batch.get("is_training") is False


def test_column_called_is_training_is_returned():
    assert SampleBatch({"is_training": 3})["is_training"] == 3


def test_shuffle_keeps_the_rows_of_columns_together():
    batch = SampleBatch(obs=np.arange(50), actions=np.arange(50) * 2).shuffle()

    assert (batch["actions"] == 2 * batch["obs"]).all()
    assert batch["obs"].tolist() != list(range(50))


def test_copy_has_its_own_arrays():
    batch = make_trajectory()

    copied = batch.copy()
    copied["obs"][0] = -1

    assert batch["obs"][0].tolist() == [0, 1]


def test_shallow_copy_has_the_same_arrays():
    batch = make_trajectory()

    copied = batch.copy(shallow=True)
    copied["extra"] = 1

    assert copied["obs"] is batch["obs"]
    assert "extra" not in batch


# --- slices and joins -----------------------------------------------------------------------------


def test_slice_returns_rows():
    batch = make_trajectory()

    assert batch.slice(1, 3)["actions"].tolist() == [1, 0]
    assert batch[2:]["obs"].tolist() == [[4, 5], [6, 7]]


def test_timeslices_have_at_most_so_many_rows():
    assert [part.count for part in make_trajectory().timeslices(3)] == [3, 1]


def test_concat_samples_joins_slices():
    batch = make_trajectory()

    joined = concat_samples(batch.timeslices(3))

    assert joined["obs"].tolist() == batch["obs"].tolist()


def test_concat_appends_another_batch():
    batch = make_trajectory()

    assert batch[:1].concat(batch[1:])["actions"].tolist() == [0, 1, 0, 1]


def test_concat_samples_rejects_different_columns():
    with pytest.raises(ConfigError, match="differ"):
        SampleBatch.concat_samples([make_trajectory(), SampleBatch(obs=np.zeros((1, 2)))])


# --- sequences ------------------------------------------------------------------------------------


def make_sequences():
    """Return two sequences of 2 and 3 rows, with states 1 and 2."""
    return SampleBatch(
        obs=np.arange(5), seq_lens=np.array([2, 3]), state_in_0=np.array([[1.0], [2.0]])
    )


def test_sequences_count_their_rows():
    assert make_sequences().count == 5


def test_padded_sequences_count_padding_too():
    batch = SampleBatch({"obs": np.arange(6), "seq_lens": [2, 3]}, _zero_padded=True)

    assert batch.count == 6


@pytest.mark.parametrize(
    ("start", "end", "lengths", "states"),
    [
        pytest.param(0, 2, [2], [[1.0]], id="first-sequence"),
        pytest.param(2, 5, [3], [[2.0]], id="second-sequence"),
        pytest.param(1, 5, [1, 3], [[1.0], [2.0]], id="part-of-the-first"),
    ],
)
def test_slice_of_sequences_has_their_states(start, end, lengths, states):
    part = make_sequences().slice(start, end)

    assert part["obs"].tolist() == list(range(start, end))
    assert part["seq_lens"].tolist() == lengths
    assert part["state_in_0"].tolist() == states


@pytest.mark.parametrize(
    ("start", "end", "rows", "states"),
    [
        # The sequences are rows 0 to 2 and rows 3 to 6.
        (0, 5, [0, 1, 2], [100]),
        (2, 5, [0, 1, 2], [100]),
        (1, 3, [0, 1, 2], [100]),
        (4, 7, [3, 4, 5, 6], [200]),
        (1, 2, [], []),
        (0, None, [0, 1, 2, 3, 4, 5, 6], [100, 200]),
    ],
)
def test_brackets_return_whole_sequences(start, end, rows, states):
    columns = {"obs": np.arange(7), "seq_lens": np.array([3, 4]), "state_in_0": [100, 200]}

    part = SampleBatch(columns)[start:end]

    assert part["obs"].tolist() == rows
    assert part["state_in_0"].tolist() == states
    assert part["seq_lens"].sum() == len(rows)


def test_brackets_return_whole_padded_sequences():
    batch = SampleBatch(
        {"obs": np.arange(7), "seq_lens": np.array([3, 4]), "state_in_0": np.array([100, 200])}
    ).right_zero_pad(5)

    part = batch[6:10]  # row 6 is the second row of the second sequence, which begins at row 5

    assert part["obs"].tolist() == [3, 4, 5, 6, 0]
    assert part["state_in_0"].tolist() == [200]


def make_padded_sequences():
    """Return two sequences of 3 and 4 rows, each padded to 5 rows."""
    return SampleBatch(
        {"obs": np.arange(1, 8), "seq_lens": np.array([3, 4]), "state_in_0": np.array([100, 200])}
    ).right_zero_pad(5)


@pytest.mark.parametrize(
    ("start", "end", "rows", "lengths"),
    [
        # The sequences are [1, 2, 3, 0, 0] and [4, 5, 6, 7, 0].
        pytest.param(1, 10, [2, 3, 4, 5, 6, 7], [2, 4], id="first-is-cut"),
        pytest.param(0, 7, [1, 2, 3, 4, 5], [3, 2], id="second-is-cut"),
        pytest.param(2, 8, [3, 4, 5, 6], [1, 3], id="both-are-cut"),
        pytest.param(4, 7, [4, 5], [0, 2], id="padding-of-the-first"),
        pytest.param(6, 8, [5, 6], [2], id="inside-one"),
    ],
)
def test_slice_that_cuts_a_padded_sequence_has_no_padding(start, end, rows, lengths):
    part = make_padded_sequences().slice(start, end)

    assert part["obs"].tolist() == rows
    assert part["seq_lens"].tolist() == lengths
    assert not part.zero_padded
    assert part.count == len(rows)
    # Each of its rows belongs to a sequence, so that it can be padded again.
    longest = max(lengths)
    assert part.right_zero_pad(longest).count == longest * len(lengths)


@pytest.mark.parametrize(("start", "end"), [(0, 5), (5, 10), (0, 10), (0, 99)])
def test_slice_of_whole_padded_sequences_keeps_the_padding(start, end):
    batch = make_padded_sequences()

    part = batch.slice(start, end)

    assert part["obs"].tolist() == batch["obs"].tolist()[start:end]
    assert part.zero_padded
    assert part.max_seq_len == 5


# --- inputs of a model ----------------------------------------------------------------------------

VIEWS = {
    "obs": ViewRequirement(),
    "prev_actions": ViewRequirement("actions", shift=-1),
    "window": ViewRequirement("obs", shift="-1:0"),
    "state_in_0": ViewRequirement(),
}


def test_single_step_input_is_that_after_the_last_row():
    inputs = make_trajectory().get_single_step_input_dict(VIEWS)

    assert inputs["obs"].tolist() == [[8, 9]]  # the last row of new_obs
    assert inputs["prev_actions"].tolist() == [1]
    assert inputs["window"].tolist() == [[[6, 7], [8, 9]]]


def test_single_step_input_of_the_first_row_has_zeros_before():
    inputs = make_trajectory().get_single_step_input_dict(VIEWS, index=0)

    assert inputs["obs"].tolist() == [[0, 1]]
    assert inputs["prev_actions"].tolist() == [0]
    assert inputs["window"].tolist() == [[[0, 0], [0, 1]]]


# --- several policies -----------------------------------------------------------------------------


def test_multi_agent_batch_counts_steps():
    batch = MultiAgentBatch({DEFAULT_POLICY_ID: make_trajectory()}, 4)

    assert batch.env_steps() == 4
    assert batch.agent_steps() == 4


def test_batch_of_the_default_policy_is_converted():
    batch = MultiAgentBatch({DEFAULT_POLICY_ID: make_trajectory()}, 4)

    assert convert_ma_batch_to_sample_batch(batch).count == 4


def test_batch_of_another_policy_is_not_converted():
    batch = MultiAgentBatch({"a": make_trajectory()}, 4)

    with pytest.raises(ConfigError, match="one policy"):
        convert_ma_batch_to_sample_batch(batch)
