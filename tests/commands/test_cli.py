"""The command line: what a stranger types and what it prints; most lines in this process, one of
each in its own.

Crosses: cli, ppo, runs.
"""

import json
import re
import subprocess
import sys
from pathlib import Path

import command_line
import pytest
import warm
from command_line import forget

from rlcatalog import __version__, default_catalog


def rlcatalog(*arguments, code=0, **where):
    run = command_line.rlcatalog(*arguments, **where)
    assert run.returncode == code, run.stdout + run.stderr
    return run


def test_each_command_in_a_process_of_its_own(tmp_path):
    def process(*arguments):
        run = warm.run(["-m", "rlcatalog_cli", *arguments], tmp_path, {"COLUMNS": "200"})
        assert run.returncode == 0, run.stdout + run.stderr
        return run.stdout

    small = [f"--set={key}" for key in ("num_envs=2", "rollout_length=16", "minibatch_size=32")]
    assert "mean return" in process("train", "CartPole-v1", "--steps", "32", *small, "--out", "run")
    assert "mean return" in process("evaluate", "run", "--episodes", "2")
    assert "policy.onnx: inputs " in process("export", "run")
    assert "CartPole-v1" in process("runs", "--json", ".")
    assert json.loads(process("list", "--json")) == json.loads(rlcatalog("list", "--json").stdout)
    explained = process("explain", "CartPole-v1", "--json")
    assert json.loads(explained) == json.loads(rlcatalog("explain", "CartPole-v1", "--json").stdout)
    assert "fcnet" in process("summary", "CartPole-v1")
    assert "acme-net" in process("new", "model", "acme-net")
    assert "passed" in process("check", "rlcatalog-deterministic")


def test_list_json():
    found = json.loads(rlcatalog("list", "--json").stdout)
    assert set(found) == {"plugins", "components"}
    assert all(
        set(p) == {"name", "distribution", "version", "status", "error"} for p in found["plugins"]
    )
    assert {p["status"] for p in found["plugins"]} == {"loaded"}
    keys = {"kind", "name", "distribution", "version", "frameworks", "summary"}
    assert all(set(c) == keys for c in found["components"])
    parts = {(c["kind"], c["name"]): c for c in found["components"]}
    assert parts["model", "fcnet"]["frameworks"] == ["torch", "tf"]
    assert parts["command", "train"]["distribution"] == "rlcatalog-runs"
    assert parts["engine", "ppo"]["distribution"] == "rlcatalog-ppo"


def test_list_one_kind():
    found = json.loads(rlcatalog("list", "--kind", "action_dist", "--json").stdout)
    assert [c["name"] for c in found["components"]] == [
        "autoregressive",
        "bernoulli",
        "beta",
        "categorical",
        "deterministic",
        "diag_gaussian",
        "dirichlet",
        "gumbel_softmax",
        "multi_action",
        "multi_categorical",
        "slate_multi_categorical",
        "squashed_gaussian",
    ]
    assert "No parts of kind 'dists'" in rlcatalog("list", "--kind", "dists", code=1).stderr


def test_list_for_people():
    text = rlcatalog("list").stdout
    assert "rlcatalog-fcnet" in text
    assert "one of n values, from n logits" in text


def explained(env_id, *options):
    return json.loads(rlcatalog("explain", env_id, *options, "--json").stdout)


def test_explain_json():
    found = explained("CartPole-v1", "--model", "fcnet_hiddens=[32]")
    for slot, name in (
        ("preprocessor", "none"),
        ("model", "fcnet"),
        ("action_dist", "categorical"),
    ):
        choice = found[slot]
        assert choice["chosen"] == name
        assert choice["distribution"].startswith("rlcatalog-")
        assert choice["version"]
        assert choice["reason"]
        assert all({"name", "rank", "reason"} <= set(c) for c in choice["candidates"])
        assert choice["candidates"][0]["name"] == name
    shapes = [(s["stage"], s["shape"]) for s in found["shapes"]]
    assert shapes == [
        ("observation", [4]),
        ("preprocessor: none", [4]),
        ("fcnet: hidden 1 (tanh)", [32]),
        ("fcnet: value", []),
        ("fcnet: logits (linear)", [2]),
        ("categorical: inputs", [2]),
        ("action", []),
    ]
    assert found["plan"] == [
        {"path": "obs", "kind": "box", "slice": [0, 4], "shape": [4], "scaling": "", "image": ""}
    ]


def test_another_space_another_choice():
    cartpole, pendulum, frozen = (
        explained(e) for e in ("CartPole-v1", "Pendulum-v1", "FrozenLake-v1")
    )
    assert pendulum["action_dist"]["chosen"] == "diag_gaussian"
    assert pendulum["action_dist"]["reason"] != cartpole["action_dist"]["reason"]
    assert frozen["preprocessor"]["chosen"] == "onehot"
    loser = next(c for c in pendulum["action_dist"]["candidates"] if c["name"] == "categorical")
    assert loser["rank"] is None
    assert loser["reason"] == "takes Discrete, not box"


def test_no_name_is_cut_however_narrow_the_terminal_is():
    found = (
        rlcatalog("list", COLUMNS="40").stdout
        + rlcatalog("explain", "CartPole-v1", "--all", COLUMNS="40").stdout
    )
    assert "…" not in found
    for part in default_catalog().components():
        kind, name, package = map(re.escape, (part.kind, part.name, part.distribution))
        assert re.search(rf"^  {kind} +{name} +{package}  ", found, re.M)


def test_explain_shows_what_matched_and_all_the_rest_on_request():
    explanation = explained("CartPole-v1")
    matched = {c["name"] for c in explanation["model"]["candidates"] if c["rank"] is not None}
    others = {c["name"] for c in explanation["model"]["candidates"]} - matched
    assert matched
    assert others
    short, long = (
        rlcatalog("explain", "CartPole-v1", *options).stdout for options in ((), ("--all",))
    )
    for name in matched:
        assert f"model: {name}" in short
    for name in others:
        assert not re.search(rf"not chosen: {name}\b", short)
        assert re.search(rf"not chosen: {name}\b", long)
    assert f"not shown: {long.count('not chosen: ')} other parts" in short
    assert "not shown" not in long


def test_explain_for_people():
    text = rlcatalog("explain", "Pendulum-v1", "--framework", "tf").stdout
    assert "framework: tf" in text
    assert "the action is a Box of 1 floats" in text


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["explain", "CartPole-v1", "--model", "fcnet_hidden=[3]"],
            "Did you mean 'fcnet_hiddens'?",
        ),
        (
            ["explain", "CartPole-v1", "--model", "fcnet_hiddens"],
            "--model: expected KEY=VALUE, found 'fcnet_hiddens'",
        ),
        (
            ["explain", "CartPole-v1", "--model", "fcnet_hiddens=wide"],
            "expected 'array', got 'str'; found 'wide'",
        ),
        (
            ["explain", "CartPole-v1", "--model", "custom_model=resnet"],
            "Unknown model 'resnet'. Known: ",
        ),
        (
            ["explain", "CartPole-v1", "--framework", "jax"],
            "Unknown framework 'jax'. Known: 'torch', 'tf'",
        ),
        (["explain", "Nowhere-v0"], "Environment 'Nowhere-v0' cannot be made"),
        (["trian", "CartPole-v1"], "Unknown command 'trian'. Did you mean 'train'?"),
        (["train", "CartPole-v1", "--set", "gama=0.9"], "Did you mean 'gamma'?"),
        (
            ["train", "CartPole-v1", "--set", "seed=1"],
            "--set does not accept 'seed'. Use its option instead: --seed",
        ),
        (["evaluate", "nowhere"], "nowhere: not a saved policy"),
    ],
)
def test_errors_are_one_readable_line(arguments, message, tmp_path):
    run = rlcatalog(*arguments, cwd=tmp_path, code=1)
    assert message in run.stderr
    assert run.stderr.startswith("error: ")
    assert "Traceback" not in run.stderr
    assert list(tmp_path.iterdir()) == []


def test_train_and_evaluate(tmp_path):
    out = tmp_path / "run"
    settings = [
        "--set",
        "num_envs=2",
        "--set",
        "rollout_length=64",
        "--set",
        "minibatch_size=64",
        "--seed",
        "3",
    ]
    settings += ["--set", "observation_filter=MeanStdFilter"]
    text = rlcatalog(
        "train",
        "CartPole-v1",
        "--steps",
        "256",
        "--model",
        "fcnet_hiddens=[16]",
        *settings,
        "--out",
        str(out),
        "--record",
        str(tmp_path / "data"),
    )
    assert len(list((tmp_path / "data").glob("*.npz"))) == 2
    assert "training on CartPole-v1" in text.stdout
    assert "mean return" in text.stdout
    assert {p.name for p in out.iterdir()} == {
        "learning_curve.png",
        "metrics.jsonl",
        "config.json",
        "run.json",
        "policy",
        "checkpoints",
    }
    assert (out / "learning_curve.png").read_bytes().startswith(b"\x89PNG")
    lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    assert [line["timesteps_total"] for line in lines] == [128, 256]
    # Where a model's metrics stand.
    assert all(line["info"]["learner"]["model"] == {} for line in lines)
    config = json.loads((out / "config.json").read_text())
    assert config["env"] == "CartPole-v1"
    assert config["algorithm"]["seed"] == 3
    assert config["model"]["fcnet_hiddens"] == [16]
    assert config["parts"] == {
        "preprocessor": "none",
        "filter": "MeanStdFilter",
        "action_dist": "categorical",
        "trunk": "fcnet",
    }
    assert list((out / "policy").glob("filter-*.safetensors"))
    printed = rlcatalog("evaluate", str(out), "--episodes", "4").stdout
    assert float(printed.strip().rpartition("mean return ")[2]) > 0
    assert (
        "Pass the run's folder, or --env ID"
        in rlcatalog("evaluate", str(out / "policy"), code=1).stderr
    )
    assert (
        "mean return"
        in rlcatalog(
            "evaluate", str(out / "policy"), "--env", "CartPole-v1", "--episodes", "2"
        ).stdout
    )


@pytest.mark.attack
def test_a_space_that_cannot_be_written_down_is_evaluated_with_the_environments_own(tmp_path):
    """MiniGrid's missions are a space of its own class."""
    forget("minigrid")
    out = tmp_path / "run"
    settings = [f"--set={key}" for key in ("num_envs=2", "rollout_length=16", "minibatch_size=32")]
    missing = rlcatalog("train", "minigrid:MiniGrid-Empty-5x5-v0", "--out", str(out), code=1).stderr
    assert "obs['mission']: " in missing
    assert "'text_max_length'" in missing
    keys = ["--model", "text_max_length=40", "--model", "fcnet_hiddens=[8]", "--steps", "32"]
    rlcatalog("train", "minigrid:MiniGrid-Empty-5x5-v0", *keys, *settings, "--out", str(out))
    forget("minigrid")
    config = json.loads((out / "config.json").read_text())
    assert (config["env"], config["env_module"]) == ("MiniGrid-Empty-5x5-v0", "minigrid")
    assert (
        "pass --import minigrid"
        in rlcatalog("evaluate", str(out), "--episodes", "1", code=1).stderr
    )
    assert (
        "mean return"
        in rlcatalog("evaluate", str(out), "--episodes", "1", "--import", "minigrid").stdout
    )
    forget("minigrid")
    assert "pass --import minigrid" in rlcatalog("export", str(out), code=1).stderr
    exported = rlcatalog("export", str(out), "--import", "minigrid", "--format", "torch").stdout
    assert "policy.pt2: inputs " in exported


def test_a_folder_holds_one_run_and_its_config_imports_nothing(tmp_path):
    out, ran = tmp_path / "run", tmp_path / "ran"
    (tmp_path / "evilmod.py").write_text(f"open({str(ran)!r}, 'w')")
    settings = [f"--set={key}" for key in ("num_envs=2", "rollout_length=16", "minibatch_size=32")]
    train = [
        "train",
        "CartPole-v1",
        "--steps",
        "32",
        "--model",
        "fcnet_hiddens=[4]",
        *settings,
        "--out",
        str(out),
    ]
    rlcatalog(*train)
    before = {path.name: path.read_bytes() for path in out.iterdir() if path.is_file()}
    said = rlcatalog(*train, "--seed", "1", code=1).stderr
    assert "already contains a run" in said
    assert "--overwrite" in said
    assert {path.name: path.read_bytes() for path in out.iterdir() if path.is_file()} == before
    (out / "notes.txt").write_text("mine")
    rlcatalog(*train, "--seed", "1", "--overwrite")
    config = json.loads((out / "config.json").read_text())
    assert config["algorithm"]["seed"] == 1
    assert (out / "notes.txt").read_text() == "mine"
    (out / "config.json").write_text(json.dumps({**config, "env": "evilmod:CartPole-v1"}))
    evaluate = ["evaluate", str(out), "--episodes", "1"]
    said = rlcatalog(*evaluate, cwd=tmp_path, code=1, PYTHONPATH=str(tmp_path)).stderr
    assert "names the import path 'evilmod:CartPole-v1'" in said
    assert not ran.exists()
    rlcatalog(*evaluate, "--import", "evilmod", cwd=tmp_path, PYTHONPATH=str(tmp_path))
    assert ran.exists()  # the control: typed, it is imported


def test_a_module_in_the_working_folder_is_found(tmp_path):
    (tmp_path / "boards.py").write_text(
        "import gymnasium as gym\ngym.register('Board-v0',"
        " 'gymnasium.envs.classic_control:CartPoleEnv', max_episode_steps=9)\n"
    )
    command = [Path(sys.executable).with_name("rlcatalog"), "explain"]
    done = subprocess.run(
        [*command, "boards:Board-v0", "--json"],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["model"]["chosen"] == "fcnet"
    assert (
        "No module named 'nowhere'"
        in rlcatalog("explain", "nowhere:Board-v0", cwd=tmp_path, code=1).stderr
    )


def test_the_version_is_printed_without_looking_for_plugins(capsys, monkeypatch):
    from rlcatalog_cli import app, main

    monkeypatch.setattr(app, "default_catalog", None)
    with pytest.raises(SystemExit) as ended:
        main(["--version"])
    assert not ended.value.code
    assert capsys.readouterr().out == f"rlcatalog {__version__}\n"
