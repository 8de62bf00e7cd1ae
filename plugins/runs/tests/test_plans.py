"""Resumed runs under any engine: their folders are not trusted."""

from __future__ import annotations

import json
import os

import pytest

from rlcatalog.errors import ConfigError, SavedPolicyError, UnknownNameError
from rlcatalog_runs import Engine, RunOptions, read_config, refuse_imports, write_config
from rlcatalog_runs.engines import engine_of, new_plan, resumed_plan
from rlcatalog_runs.logs import cut_rows
from rlcatalog_runs.records import read_record

RUN = {"engine": "other", "steps": 100, "checkpoint_every": 10, "keep_checkpoints": 2}


@pytest.fixture
def run(tmp_path):
    """The folder of a run that can go on."""
    folder = tmp_path / "run"
    (folder / "checkpoints" / "step-000000050").mkdir(parents=True)
    (folder / "checkpoints" / "step-000000050" / "state").write_text("{}")
    write_config(folder, "CartPole-v1", {"algorithm": {"name": "PPO", "seed": 3}, "run": RUN})
    return folder


class Other(Engine):
    """An engine that trains nothing here."""

    algorithms, checkpoint = ("Slow", "Fast"), "state"


def resume(folder, imported=(), **typed):
    return resumed_plan(Other, folder, read_config(folder, imported), typed, imported)


def edit(folder, **changes):
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, **changes}))


def test_a_run_goes_on_from_its_last_checkpoint(run):
    resumed = resume(run)
    assert (resumed.steps, resumed.env_id, resumed.options) == (
        50,
        "CartPole-v1",
        RunOptions(**RUN),
    )
    assert (resumed.algorithm, resumed.seed, resumed.checkpoint) == (
        "PPO",
        3,
        run / "checkpoints" / "step-000000050",
    )


def test_what_is_typed_takes_the_place_of_what_the_folder_says(run):
    resumed = resume(run, steps=200, eval_every=7)
    assert resumed.options == RunOptions(**{**RUN, "steps": 200, "eval_every": 7})
    assert resumed.typed == {"steps", "eval_every"}


@pytest.mark.parametrize(
    ("status", "steps", "further"),
    [
        ("interrupted", 50, 100),
        ("interrupted", 49, 100),
        ("failed", 1, 100),
        ("finished", 50, 100),
        ("finished", 3, 100),
    ],
)
def test_fewer_steps_than_are_done_are_refused(run, status, steps, further):
    """Also where a run has steps left: it would be rewritten as finished after fewer steps than it
    has.
    """
    (run / "run.json").write_text(json.dumps({"status": status}))
    with pytest.raises(
        ConfigError, match=rf"its 50 steps are done; pass --steps {further} to train further"
    ):
        resume(run, steps=steps)


def test_a_killed_run_that_lacks_its_end_alone_is_resumed(run):
    edit(run, run={**RUN, "steps": 40})
    (run / "run.json").write_text(json.dumps({"status": "failed"}))
    assert resume(run).options.steps == 40
    with pytest.raises(ConfigError, match="its 50 steps are done; pass --steps 100"):
        resume(run, steps=30)


def test_a_folder_says_its_engine(run):
    assert engine_of(run, read_config(run)) == "other"
    assert engine_of(run, {"run": {"engine": "acme/turbo"}}) == "acme/turbo"
    for told in (
        {},
        {"run": []},
        {"run": {"command": "train"}},
        {"run": {"engine": None}},
        {"run": {"engine": ["ppo"]}},
    ):
        with pytest.raises(
            SavedPolicyError, match=r"run: its config\.json does not name its engine"
        ):
            engine_of(run, told)


def test_a_new_plan_has_ten_checkpoints_unless_another_number_is_typed():
    plan = new_plan(Other, "other", "CartPole-v1", {"steps": 500})
    assert (plan.options.checkpoint_every, plan.algorithm, plan.seed) == (50, "Slow", 0)
    plan = new_plan(
        Other,
        "other",
        "CartPole-v1",
        {"steps": 500, "checkpoint_every": 0, "algo": "Fast", "seed": 4},
    )
    assert (plan.options.checkpoint_every, plan.algorithm, plan.seed) == (0, "Fast", 4)
    with pytest.raises(
        UnknownNameError, match=r"unknown algorithm 'Fats'. Did you mean 'Fast'\? Engine other has"
    ):
        new_plan(Other, "other", "CartPole-v1", {"algo": "Fats"})
    with pytest.raises(ConfigError, match=r"--keep-checkpoints: Expected `int` >= 1"):
        new_plan(Other, "other", "CartPole-v1", {"keep_checkpoints": "0"})


@pytest.mark.parametrize(
    "name",
    [
        "metrics.jsonl",
        "learning_curve.png",
        "policy",
        "best",
        "tensorboard",
        "tensorboard/events",
        "run.json",
        "checkpoints/step-000000060",
        "wandb",
        "wandb-id",
        "algorithm.zip",
        "checkpoint",
        "progress.csv",
        "notes",
    ],
)
@pytest.mark.parametrize(
    "put", [lambda path: path.symlink_to("/dev/zero"), os.mkfifo], ids=["link", "FIFO"]
)
def test_a_folder_with_a_link_or_a_pipe_does_not_go_on(run, name, put):
    (run / name).parent.mkdir(exist_ok=True)
    put(run / name)
    with pytest.raises(SavedPolicyError, match=name):
        resume(run)


def test_links_of_weights_and_biases_are_its_own(run):
    (run / "wandb" / "run-1").mkdir(parents=True)
    (run / "wandb" / "latest-run").symlink_to("run-1")
    resume(run)


def test_a_module_that_a_folder_names_is_not_imported_because_its_environment_is_known(run):
    edit(run, env_module="evil_module")
    assert resume(run).env_id == "CartPole-v1"
    assert resume(run, ["evil_module"]).env_id == "evil_module:CartPole-v1"


@pytest.mark.parametrize(
    "changes",
    [
        {"run": {**RUN, "steps": 0}},
        {"run": {**RUN, "steps": "x"}},
        {"run": {**RUN, "checkpoint_every": -1}},
        {"run": {**RUN, "keep_checkpoints": 0}},
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
def test_a_config_with_nonsense_does_not_go_on(run, changes):
    edit(run, **changes)
    with pytest.raises(SavedPolicyError):
        resume(run)


def test_a_config_that_is_too_long_is_not_read(run):
    edit(run, notes="x" * (1 << 22))
    with pytest.raises(
        SavedPolicyError, match=r"is too large: it has \d+ bytes; at most 4194304 are allowed"
    ):
        resume(run)


@pytest.mark.parametrize("value", ["evil:x", ["evil:x"], {"a": [{"evil.b:x": 1}]}, " evil:\nx"])
def test_an_import_path_is_refused_wherever_it_stands(run, value):
    with pytest.raises(SavedPolicyError, match=r"names the import path .*pass --import evil"):
        refuse_imports(run / "x.json", value)
    refuse_imports(run / "x.json", value, ["evil", "evil.b"])


def test_tables_that_are_too_deep_are_refused(run):
    deep: list = []
    for _ in range(100_000):
        deep = [deep]
    with pytest.raises(SavedPolicyError, match="too deep"):
        refuse_imports(run / "x.json", deep)


# --- rows and records -----------------------------------------------------------------------------


def test_rows_are_cut_in_a_new_file(tmp_path):
    """The former one may have a second name outside of the folder, which appending
    would write to.
    """
    path, text = tmp_path / "metrics.jsonl", '{"steps": 1}\n{"steps": 2}\n{"steps": 3}\n'
    (tmp_path / "outside").write_text(text)
    os.link(tmp_path / "outside", path)
    cut_rows(path, "steps", 3)
    with path.open("a") as file:
        file.write("more")
    assert (tmp_path / "outside").read_text() == text
    cut_rows(path, "steps", 1)
    assert path.read_text() == "".join(text.splitlines(keepends=True)[:-2])


@pytest.mark.parametrize(
    "line", ["{}", "[]", "3", '{"steps": "x"}', '{"steps": []}', '{"steps": NaN}', "[" * 9_000, "{"]
)
def test_a_damaged_row_is_named(tmp_path, line):
    (tmp_path / "metrics.jsonl").write_text(f'{{"steps": 1}}\n{line}\n')
    with pytest.raises(SavedPolicyError, match=r"metrics\.jsonl: a line is damaged"):
        cut_rows(tmp_path / "metrics.jsonl", "steps", 5)


def test_rows_that_are_no_text_are_refused_and_a_last_line_that_broke_off_is_dropped(tmp_path):
    lines = [b'{"steps": 1}\n', b'{"steps": 2}\n']
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(b"".join([*lines, b"\xc3"]))  # killed within a letter
    cut_rows(path, "steps", 5)
    assert path.read_bytes() == b"".join(lines)
    path.write_bytes(b"".join([lines[0], lines[1].replace(b"2", b"\xff")]))
    with pytest.raises(SavedPolicyError, match=r"metrics\.jsonl: a line is damaged"):
        cut_rows(path, "steps", 5)


def test_rows_behind_a_link_or_a_pipe_are_not_read(tmp_path):
    for put in (lambda path: path.symlink_to("/dev/zero"), os.mkfifo):
        put(tmp_path / "metrics.jsonl")
        with pytest.raises(SavedPolicyError, match="cannot be read"):
            cut_rows(tmp_path / "metrics.jsonl", "steps", 5)
        (tmp_path / "metrics.jsonl").unlink()


@pytest.mark.parametrize(
    "record",
    [
        [],
        3,
        {},
        {"status": 3},
        {"status": "died", "seconds": "x"},
        {"status": "died", "resumed": "x"},
        {"status": "died", "resumed": [3]},
        {"status": "died", "started": 3},
        {"status": "died", "error": []},
    ],
    ids=str,
)
def test_a_record_with_nonsense_is_damaged(tmp_path, record):
    (tmp_path / "run.json").write_text(json.dumps(record))
    with pytest.raises(SavedPolicyError, match=r"run\.json: not a record of a run"):
        read_record(tmp_path)
