"""Plans of new and resumed runs, whose folders are not trusted, and the rows that a resume cuts."""

from __future__ import annotations

import json
import os

import pytest

from rlcatalog.errors import ConfigError, SavedPolicyError, UnknownNameError
from rlcatalog_runs import Engine, RunOptions, read_config, refuse_imports, write_config
from rlcatalog_runs.engines import engine_of, new_plan, resumed_plan
from rlcatalog_runs.logs import cut_rows

RUN_OPTIONS = {"engine": "other", "steps": 100, "checkpoint_every": 10, "keep_checkpoints": 2}


class OtherEngine(Engine):
    """An engine that trains nothing here."""

    algorithms = ("Slow", "Fast")
    checkpoint = "state"


@pytest.fixture
def run(tmp_path):
    """The folder of a run of 100 steps that can be resumed from a checkpoint at 50."""
    folder = tmp_path / "run"
    checkpoint = folder / "checkpoints" / "step-000000050"
    checkpoint.mkdir(parents=True)
    (checkpoint / "state").write_text("{}")
    algorithm = {"name": "PPO", "seed": 3}
    write_config(folder, "CartPole-v1", {"algorithm": algorithm, "run": RUN_OPTIONS})
    return folder


def resume(folder, imported=(), **typed):
    """Return the plan of a resumed run.

    Args:
        folder: The run's folder.
        imported: Modules that the user passed with --import.
        typed: Options that the user typed.
    """
    return resumed_plan(OtherEngine, folder, read_config(folder, imported), typed, imported)


def edit_config(folder, **changes):
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, **changes}))


def write_record(folder, **record):
    (folder / "run.json").write_text(json.dumps(record))


# --- resumed runs ---------------------------------------------------------------------------------


def test_resumed_plan_has_the_last_checkpoint(run):
    plan = resume(run)

    assert plan.steps == 50
    assert plan.checkpoint == run / "checkpoints" / "step-000000050"


def test_resumed_plan_has_what_the_folder_says(run):
    plan = resume(run)

    assert plan.env_id == "CartPole-v1"
    assert plan.algorithm == "PPO"
    assert plan.seed == 3
    assert plan.options == RunOptions(**RUN_OPTIONS)


def test_resumed_plan_prefers_the_options_that_were_typed(run):
    plan = resume(run, steps=200, eval_every=7)

    options = {**RUN_OPTIONS, "steps": 200, "eval_every": 7}
    assert plan.options == RunOptions(**options)
    assert plan.typed == {"steps", "eval_every"}


@pytest.mark.parametrize(
    ("status", "steps"),
    [("interrupted", 50), ("interrupted", 49), ("failed", 1), ("finished", 50), ("finished", 3)],
)
def test_resume_with_no_more_steps_than_done_is_an_error(run, status, steps):
    """The run has taken 50 of 100 steps. It would be marked as finished after fewer than it has."""
    write_record(run, status=status)

    with pytest.raises(ConfigError, match="its 50 steps are done") as caught:
        resume(run, steps=steps)

    # The run's own number of steps.
    assert "pass --steps 100 to train further" in str(caught.value)


def test_killed_run_beyond_its_last_step_is_resumed(run):
    """Only its end is missing."""
    edit_config(run, run={**RUN_OPTIONS, "steps": 40})  # fewer than the checkpoint's 50
    write_record(run, status="failed")

    assert resume(run).options.steps == 40


def test_killed_run_beyond_its_last_step_keeps_its_steps(run):
    edit_config(run, run={**RUN_OPTIONS, "steps": 40})
    write_record(run, status="failed")

    # Twice as many as are done.
    with pytest.raises(ConfigError, match="its 50 steps are done; pass --steps 100"):
        resume(run, steps=30)


def test_engine_is_the_one_in_the_config(run):
    assert engine_of(run, read_config(run)) == "other"
    assert engine_of(run, {"run": {"engine": "acme/turbo"}}) == "acme/turbo"


@pytest.mark.parametrize(
    "config",
    [
        {},
        {"run": []},
        {"run": {"command": "train"}},
        {"run": {"engine": None}},
        {"run": {"engine": ["ppo"]}},
    ],
    ids=str,
)
def test_config_without_an_engine_is_an_error(run, config):
    with pytest.raises(SavedPolicyError, match=r"config\.json does not name its engine"):
        engine_of(run, config)


# --- new runs -------------------------------------------------------------------------------------


def make_plan(**typed):
    """Return the plan of a new run with options that the user typed."""
    return new_plan(OtherEngine, "other", "CartPole-v1", typed)


def test_new_plan_has_ten_checkpoints_by_default():
    assert make_plan(steps=500).options.checkpoint_every == 50


def test_new_plan_has_the_first_algorithm_and_seed_0_by_default():
    plan = make_plan(steps=500)

    assert plan.algorithm == "Slow"  # of "Slow" and "Fast"
    assert plan.seed == 0


def test_new_plan_has_the_options_that_were_typed():
    plan = make_plan(steps=500, checkpoint_every=0, algo="Fast", seed=4)

    assert plan.options.checkpoint_every == 0
    assert plan.algorithm == "Fast"
    assert plan.seed == 4


def test_new_plan_of_an_unknown_algorithm_is_an_error():
    with pytest.raises(UnknownNameError, match="unknown algorithm 'Fats'") as caught:
        make_plan(algo="Fats")

    assert "Did you mean 'Fast'? Engine other has" in str(caught.value)


def test_new_plan_with_an_option_out_of_bounds_is_an_error():
    with pytest.raises(ConfigError, match=r"--keep-checkpoints: Expected `int` >= 1"):
        make_plan(keep_checkpoints="0")


# --- untrusted folders ----------------------------------------------------------------------------


def make_link(path):
    path.symlink_to("/dev/zero")


@pytest.mark.parametrize(
    ("name", "make_file"),
    [
        ("metrics.jsonl", make_link),
        ("metrics.jsonl", os.mkfifo),
        ("run.json", make_link),
        ("policy", make_link),
        ("tensorboard/events", make_link),
        ("checkpoints/step-000000060", make_link),
        ("wandb", make_link),
        ("notes", make_link),
    ],
)
def test_resume_refuses_a_folder_with_a_link_or_a_pipe(run, name, make_file):
    (run / name).parent.mkdir(exist_ok=True)
    make_file(run / name)

    with pytest.raises(SavedPolicyError, match=name):
        resume(run)


def test_resume_accepts_the_links_of_weights_and_biases(run):
    (run / "wandb" / "run-1").mkdir(parents=True)
    (run / "wandb" / "latest-run").symlink_to("run-1")

    resume(run)


def test_module_in_the_config_is_not_imported(run):
    edit_config(run, env_module="evil_module")

    assert resume(run).env_id == "CartPole-v1"


def test_module_in_the_config_is_imported_if_the_user_passes_it(run):
    edit_config(run, env_module="evil_module")

    assert resume(run, imported=["evil_module"]).env_id == "evil_module:CartPole-v1"


@pytest.mark.parametrize(
    "changes",
    [
        {"run": {**RUN_OPTIONS, "steps": 0}},
        {"run": {**RUN_OPTIONS, "steps": "x"}},
        {"run": {**RUN_OPTIONS, "checkpoint_every": -1}},
        {"run": {**RUN_OPTIONS, "keep_checkpoints": 0}},
        {"run": {"steps": 3}},
        {"algorithm": {"seed": "x"}},
        {"algorithm": {"seed": -1}},
        {"algorithm": {"num_envs": 0}},
        {"algorithm": {"name": ["PPO"]}},
        {"model": []},
        {"seed": 2**40},
        {"env_module": ["os"]},
    ],
    ids=str,
)
def test_resume_refuses_a_config_with_a_wrong_value(run, changes):
    edit_config(run, **changes)

    with pytest.raises(SavedPolicyError):
        resume(run)


def test_resume_refuses_a_config_that_is_too_long(run):
    edit_config(run, notes="x" * (1 << 22))

    with pytest.raises(SavedPolicyError, match="is too large: it has ") as caught:
        resume(run)

    assert "bytes; at most 4194304 are allowed" in str(caught.value)  # 1 << 22


IMPORT_PATHS = ["evil:x", ["evil:x"], {"a": [{"evil.b:x": 1}]}, " evil:\nx"]


@pytest.mark.parametrize("value", IMPORT_PATHS, ids=str)
def test_import_path_at_any_depth_is_an_error(run, value):
    with pytest.raises(SavedPolicyError, match="names the import path ") as caught:
        refuse_imports(run / "x.json", value)

    assert "pass --import evil" in str(caught.value)


@pytest.mark.parametrize("value", IMPORT_PATHS, ids=str)
def test_import_path_of_a_module_from_the_user_is_accepted(run, value):
    refuse_imports(run / "x.json", value, ["evil", "evil.b"])


def test_json_that_is_nested_too_deeply_is_an_error(run):
    nested: list = []
    for _ in range(100_000):
        nested = [nested]

    with pytest.raises(SavedPolicyError, match="too deep"):
        refuse_imports(run / "x.json", nested)


# --- rows -----------------------------------------------------------------------------------------

ROWS = ['{"steps": 1}\n', '{"steps": 2}\n', '{"steps": 3}\n']


def test_cut_rows_drops_the_rows_after_a_step(tmp_path):
    path = tmp_path / "metrics.jsonl"
    path.write_text("".join(ROWS))

    cut_rows(path, "steps", 1)

    assert path.read_text() == ROWS[0]


def test_cut_rows_writes_a_new_file(tmp_path):
    outside = tmp_path / "outside"
    outside.write_text('{"steps": 1}\n')
    path = tmp_path / "metrics.jsonl"
    os.link(outside, path)  # two names of one file

    cut_rows(path, column="steps", after=3)
    with path.open("a") as file:
        file.write("more")

    assert outside.read_text() == '{"steps": 1}\n'
    assert path.read_text() == '{"steps": 1}\nmore'


def test_cut_rows_drops_an_incomplete_last_line(tmp_path):
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(b'{"steps": 1}\n{"steps": 2}\n\xc3')  # ends within a letter

    cut_rows(path, "steps", 5)

    assert path.read_bytes() == b'{"steps": 1}\n{"steps": 2}\n'


@pytest.mark.parametrize(
    "line",
    [
        "{}",
        "[]",
        "3",
        '{"steps": "x"}',
        '{"steps": []}',
        '{"steps": NaN}',
        pytest.param("[" * 9_000, id="nested"),
        "{",
    ],
)
def test_damaged_row_is_an_error(tmp_path, line):
    (tmp_path / "metrics.jsonl").write_text(f'{{"steps": 1}}\n{line}\n')

    with pytest.raises(SavedPolicyError, match=r"metrics\.jsonl: a line is damaged"):
        cut_rows(tmp_path / "metrics.jsonl", "steps", 5)


def test_row_that_is_not_text_is_an_error(tmp_path):
    (tmp_path / "metrics.jsonl").write_bytes(b'{"steps": 1}\n{"steps": \xff}\n')

    with pytest.raises(SavedPolicyError, match=r"metrics\.jsonl: a line is damaged"):
        cut_rows(tmp_path / "metrics.jsonl", "steps", 5)


@pytest.mark.parametrize("make_file", [make_link, os.mkfifo], ids=["link", "pipe"])
def test_rows_behind_a_link_or_a_pipe_are_not_read(tmp_path, make_file):
    make_file(tmp_path / "metrics.jsonl")

    with pytest.raises(SavedPolicyError, match="cannot be read"):
        cut_rows(tmp_path / "metrics.jsonl", "steps", 5)
