"""The command line: what a user types, and what it prints.

Most lines run in this process, one of each command in its own.

Crosses: cli, ppo, runs.
"""

import json
import re
import subprocess
import sys
from pathlib import Path

import command_line
import gymnasium as gym
import pytest
import warm
from command_line import forget

import rlcatalog
from rlcatalog import __version__, default_catalog
from rlcatalog_cli import app, main

#: A run of 32 steps.
SHORT_RUN = ["--steps", "32", "--model", "fcnet_hiddens=[8]"]
SHORT_RUN += ["--set=num_envs=2", "--set=rollout_length=16", "--set=minibatch_size=32"]


def run_command(*arguments, code=0, **where):
    """Run a command line in this process; it has to end with a status."""
    done = command_line.rlcatalog(*arguments, **where)
    assert done.returncode == code, done.stdout + done.stderr
    return done


def run_json(*arguments):
    """Run a command with --json, and return the data that it prints."""
    return json.loads(run_command(*arguments, "--json").stdout)


# --- processes ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def run_process(tmp_path_factory):
    """Return a function that runs a command line in its own process, and returns its output.

    All of them run in one folder, where `run` contains a short run.
    """
    folder = tmp_path_factory.mktemp("processes")

    def run(*arguments):
        done = warm.run(["-m", "rlcatalog_cli", *arguments], folder, {"COLUMNS": "200"})
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    assert "rlcatalog evaluate run" in run("train", "CartPole-v1", *SHORT_RUN, "--out", "run")
    return run


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("evaluate run --episodes 2", "mean return"),
        # test_screens.py runs these two in this process.
        pytest.param("export run", "policy.onnx: inputs ", marks=pytest.mark.slow),
        pytest.param("check rlcatalog-deterministic", "passed", marks=pytest.mark.slow),
        ("runs --json .", "CartPole-v1"),
        ("summary CartPole-v1", "fcnet"),
        ("new model acme-net", "acme-net"),
    ],
)
def test_command_runs_in_its_own_process(run_process, line, expected):
    assert expected in run_process(*line.split())


@pytest.mark.parametrize("line", ["list --json", "explain CartPole-v1 --json"])
def test_process_prints_the_same_data(run_process, line):
    in_this_process = run_command(*line.split()).stdout
    assert json.loads(run_process(*line.split())) == json.loads(in_this_process)


def test_module_in_the_working_folder_is_found(tmp_path):
    (tmp_path / "boards.py").write_text(
        "import gymnasium as gym\n"
        "cartpole = 'gymnasium.envs.classic_control:CartPoleEnv'\n"
        "gym.register('Board-v0', cartpole, max_episode_steps=9)\n"
    )
    program = Path(sys.executable).with_name("rlcatalog")

    done = subprocess.run(
        [program, "explain", "boards:Board-v0", "--json"],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    # The model for CartPole's four numbers.
    assert json.loads(done.stdout)["model"]["chosen"] == "fcnet"


def test_version_is_printed_without_looking_for_plugins(capsys, monkeypatch):
    monkeypatch.setattr(app, "default_catalog", None)  # would raise if it were called
    with pytest.raises(SystemExit) as ended:
        main(["--version"])
    assert not ended.value.code
    assert capsys.readouterr().out == f"rlcatalog {__version__}\n"


# --- list -----------------------------------------------------------------------------------------


def test_list_json_describes_plugins():
    for plugin in run_json("list")["plugins"]:
        assert set(plugin) == {"name", "distribution", "version", "status", "error"}
        assert plugin["status"] == "loaded"


def test_list_json_describes_parts():
    parts = run_json("list")["parts"]
    for part in parts:
        keys = {"kind", "name", "distribution", "version", "frameworks", "summary"}
        assert set(part) == keys
    by_name = {(part["kind"], part["name"]): part for part in parts}
    assert by_name["model", "fcnet"]["frameworks"] == ["torch", "tf"]
    assert by_name["command", "train"]["distribution"] == "rlcatalog-runs"
    assert by_name["engine", "ppo"]["distribution"] == "rlcatalog-ppo"


def test_list_kind_leaves_out_other_parts():
    parts = run_json("list", "--kind", "action_dist")["parts"]
    assert [part["name"] for part in parts] == [
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
        "one_of",
        "quantiles",
        "slate_multi_categorical",
        "squashed_gaussian",
    ]


def test_list_of_unknown_kind_is_an_error():
    assert "No parts of kind 'dists'" in run_command("list", "--kind", "dists", code=1).stderr


def test_list_shows_packages_and_summaries():
    text = run_command("list").stdout
    assert "rlcatalog-fcnet" in text
    assert "one of n values, from n logits" in text  # categorical's


def test_list_fits_into_100_columns():
    for line in run_command("list", COLUMNS="100").stdout.splitlines():
        assert len(line) <= 100


def test_list_shows_nothing_internal():
    text = run_command("list").stdout
    # The pieces of code by which rlcatalog uses a framework, and the checks of the kit.
    assert "separate_value" not in text
    assert "ppo_moves_every_weight" not in text
    torch = next(line for line in text.splitlines() if line.startswith("  torch  rlcatalog-torch"))
    assert torch.split() == ["torch", "rlcatalog-torch", "PyTorch"]


def test_list_kind_shows_the_checks_of_the_kit():
    assert "ppo_moves_every_weight" in run_command("list", "--kind", "check").stdout


def test_list_json_has_frameworks_and_no_other_code():
    for part in run_json("list")["parts"]:
        assert set(part["frameworks"]) <= {"torch", "tf"}
        if part["kind"] in ("framework", "command"):
            assert part["frameworks"] == []


def test_list_names_the_package_of_each_part():
    text = run_command("list").stdout
    for part in default_catalog().parts():
        if part.declaration.extends is None and part.kind != "check":
            columns = map(re.escape, (part.name, part.distribution))
            assert re.search(rf"^  {' +'.join(columns)}  ", text, re.M)


def test_narrow_terminal_cuts_no_names():
    text = run_command("list", COLUMNS="40").stdout
    text += run_command("explain", "CartPole-v1", "--all", COLUMNS="40").stdout
    assert "…" not in text
    words = text.split()
    for part in default_catalog().parts():
        if part.declaration.extends is None and part.kind != "check":
            assert part.name in words
            assert part.distribution in words


# --- explain --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("slot", "expected"),
    [("preprocessor", "none"), ("model", "fcnet"), ("action_dist", "categorical")],
)
def test_explain_json_describes_a_choice(slot, expected):
    choice = run_json("explain", "CartPole-v1")[slot]
    assert choice["chosen"] == expected
    assert choice["distribution"].startswith("rlcatalog-")
    assert choice["version"]
    assert choice["reason"]
    assert choice["candidates"][0]["name"] == expected
    for candidate in choice["candidates"]:
        assert {"name", "rank", "reason"} <= set(candidate)


def test_explain_json_has_the_shapes_of_all_stages():
    explanation = run_json("explain", "CartPole-v1", "--model", "fcnet_hiddens=[32]")
    shapes = [(stage["stage"], stage["shape"]) for stage in explanation["shapes"]]
    assert shapes == [
        ("observation", [4]),
        ("preprocessor: none", [4]),
        ("fcnet: hidden 1 (tanh)", [32]),
        ("fcnet: value", []),
        ("fcnet: logits (linear)", [2]),
        ("categorical: inputs", [2]),
        ("action", []),
    ]


def test_explain_json_has_the_plan_of_the_encoding():
    leaf = {"path": "obs", "kind": "box", "slice": [0, 4], "shape": [4], "scaling": "", "image": ""}
    assert run_json("explain", "CartPole-v1")["plan"] == [leaf]


def test_explain_chooses_a_gaussian_for_pendulum():
    choice = run_json("explain", "Pendulum-v1")["action_dist"]
    assert choice["chosen"] == "diag_gaussian"
    assert choice["reason"] != run_json("explain", "CartPole-v1")["action_dist"]["reason"]


def test_explain_chooses_onehot_for_frozen_lake():
    assert run_json("explain", "FrozenLake-v1")["preprocessor"]["chosen"] == "onehot"


def test_explain_says_why_another_part_does_not_fit():
    candidates = run_json("explain", "Pendulum-v1")["action_dist"]["candidates"]
    (categorical,) = (part for part in candidates if part["name"] == "categorical")
    assert categorical["rank"] is None
    assert categorical["reason"] == "takes Discrete, not box"


def test_explain_shows_parts_that_do_not_fit_on_request():
    short = run_command("explain", "CartPole-v1").stdout
    long = run_command("explain", "CartPole-v1", "--all").stdout

    assert re.search("^model: fcnet ", short, re.M)
    # The network for images does not fit CartPole's four numbers.
    assert "not chosen: visionnet" not in short
    assert "not chosen: visionnet" in long
    assert f"not shown: {long.count('not chosen: ')} other parts" in short
    assert "not shown" not in long


def test_explain_prints_framework_and_action_space():
    text = run_command("explain", "Pendulum-v1", "--framework", "tf").stdout
    assert "framework: tf" in text
    assert "the action is a Box of 1 floats" in text


# --- errors ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("explain CartPole-v1 --model fcnet_hidden=[3]", "Did you mean 'fcnet_hiddens'?"),
        ("explain CartPole-v1 --model fcnet_hiddens", "--model: expected KEY=VALUE, found"),
        ("explain CartPole-v1 --model fcnet_hiddens=wide", "expected a list, found a string"),
        ("explain CartPole-v1 --model custom_model=resnet", "Unknown model 'resnet'. Known: "),
        ("explain CartPole-v1 --framework jax", "Unknown framework 'jax'. Known: 'torch', 'tf'"),
        ("explain Nowhere-v0", "Environment 'Nowhere-v0' cannot be made"),
        ("explain nowhere:Board-v0", "No module named 'nowhere'"),
        ("trian CartPole-v1", "Unknown command 'trian'. Did you mean 'train'?"),
        ("train CartPole-v1 --set gama=0.9", "Did you mean 'gamma'?"),
        ("train CartPole-v1 --set seed=1", "Use its option instead: --seed"),
        ("evaluate nowhere", "nowhere: not a saved policy"),
    ],
)
def test_wrong_line_ends_with_one_readable_message(line, message, tmp_path):
    done = run_command(*line.split(), cwd=tmp_path, code=1)
    assert message in done.stderr
    assert done.stderr.startswith("error: ")
    assert "Traceback" not in done.stderr
    assert list(tmp_path.iterdir()) == []  # nothing was written


# --- train and evaluate ---------------------------------------------------------------------------


@pytest.fixture(scope="module")
def filtered_run(tmp_path_factory):
    """The folder of a run of two iterations with a filter, recorded into `data` beside it, and what
    was printed.
    """
    folder = tmp_path_factory.mktemp("filtered")
    settings = ["num_envs=2", "rollout_length=64", "minibatch_size=64"]
    settings += ["observation_filter=MeanStdFilter"]
    line = ["train", "CartPole-v1", "--steps", "256", "--model", "fcnet_hiddens=[16]"]
    line += [f"--set={setting}" for setting in settings]
    line += ["--seed", "3", "--out", str(folder / "run"), "--record", str(folder / "data")]
    return folder / "run", run_command(*line).stdout


def test_train_prints_its_progress(filtered_run):
    _, text = filtered_run
    assert "PPO on CartPole-v1, engine ppo" in text
    assert re.search(r"^net +fcnet, 131 weights", text, re.M)
    assert re.search(r"^ +128 +[\d.]+ +[\d.]+ ", text, re.M)  # steps, return and length


def test_train_writes_records_policy_and_picture(filtered_run):
    folder, _ = filtered_run
    records = {"config.json", "run.json", "metrics.jsonl", "learning_curve.png"}
    assert {path.name for path in folder.iterdir()} == records | {"policy", "checkpoints"}
    png = b"\x89PNG"
    assert (folder / "learning_curve.png").read_bytes().startswith(png)


def test_train_writes_metrics_of_each_iteration(filtered_run):
    folder, _ = filtered_run
    lines = (folder / "metrics.jsonl").read_text().splitlines()
    rows = [json.loads(line) for line in lines]
    assert [row["timesteps_total"] for row in rows] == [128, 256]
    for row in rows:
        assert row["info"]["learner"]["model"] == {}  # a place for the model's own metrics


def test_train_writes_the_config_and_the_chosen_parts(filtered_run):
    folder, _ = filtered_run
    config = json.loads((folder / "config.json").read_text())
    # The run was started with --seed 3 and with fcnet_hiddens=[16] and a filter in its config.
    assert config["env"] == "CartPole-v1"
    assert config["algorithm"]["seed"] == 3
    assert config["model"]["fcnet_hiddens"] == [16]
    assert config["parts"] == {
        "preprocessor": "none",
        "filter": "MeanStdFilter",
        "action_dist": "categorical",
        "trunk": "fcnet",
    }


def test_train_saves_the_filter_with_the_policy(filtered_run):
    folder, _ = filtered_run
    assert list((folder / "policy").glob("filter-*.safetensors"))


def test_train_records_each_iteration(filtered_run):
    folder, _ = filtered_run
    assert len(list((folder.parent / "data").glob("*.npz"))) == 2


def test_evaluate_prints_the_mean_return_of_a_run(filtered_run):
    folder, _ = filtered_run
    text = run_command("evaluate", str(folder), "--episodes", "4").stdout
    mean_return = re.search(r"^mean return +(\S+) ± \S+ \(standard deviation\)$", text, re.M)[1]
    mean_length = re.search(r"^mean length +(\S+) steps$", text, re.M)[1]
    assert float(mean_return) > 0
    assert float(mean_length) == pytest.approx(float(mean_return), abs=0.1)  # 1 per step


def test_evaluate_json_has_each_episode(filtered_run):
    folder, _ = filtered_run
    answer = run_json("evaluate", str(folder), "--episodes", "4")
    assert answer["env"] == "CartPole-v1"
    assert answer["episodes"] == 4
    assert answer["returns"] == answer["lengths"]  # CartPole pays 1 per step
    assert answer["return_mean"] == pytest.approx(sum(answer["returns"]) / 4)


def test_evaluate_needs_an_environment_for_a_policy_alone(filtered_run):
    policy = str(filtered_run[0] / "policy")
    error = run_command("evaluate", policy, code=1).stderr
    assert "Pass the run's folder, or --env ID" in error
    line = ["evaluate", policy, "--env", "CartPole-v1", "--episodes", "2"]
    assert "mean return" in run_command(*line).stdout


@pytest.mark.slow
class TestMiniGrid:
    """An environment of another package, with a space of its own class for missions."""

    ENV_ID = "minigrid:MiniGrid-Empty-5x5-v0"

    @pytest.fixture
    def run_folder(self, tmp_path):
        forget("minigrid")
        folder = tmp_path / "run"
        line = ["train", self.ENV_ID, *SHORT_RUN, "--model", "text_max_length=40"]
        run_command(*line, "--out", str(folder))
        forget("minigrid")
        return folder

    def test_train_asks_for_the_length_of_texts(self, tmp_path):
        error = run_command("train", self.ENV_ID, "--out", str(tmp_path / "run"), code=1).stderr
        assert "obs['mission']: " in error
        assert "'text_max_length'" in error

    def test_config_keeps_the_module_beside_the_id(self, run_folder):
        config = json.loads((run_folder / "config.json").read_text())
        assert config["env"] == "MiniGrid-Empty-5x5-v0"
        assert config["env_module"] == "minigrid"

    def test_evaluate_imports_the_module_on_request(self, run_folder):
        line = ["evaluate", str(run_folder), "--episodes", "1"]
        assert "pass --import minigrid" in run_command(*line, code=1).stderr
        assert "mean return" in run_command(*line, "--import", "minigrid").stdout

    def test_export_needs_no_module(self, run_folder):
        # The saved policy contains a Text in place of MiniGrid's own class.
        text = run_command("export", str(run_folder), "--format", "torch").stdout
        assert "policy.pt2: inputs " in text
        assert "minigrid" not in sys.modules


# --- modules and config files ---------------------------------------------------------------------

#: A module of a user, with an environment.
KITES = """
import gymnasium

cartpole = "gymnasium.envs.classic_control:CartPoleEnv"
gymnasium.register("Kite-v0", cartpole, max_episode_steps=9)
"""


@pytest.fixture
def kites(tmp_path):
    """A folder with the module `kites`, which registers Kite-v0."""
    (tmp_path / "kites.py").write_text(KITES)
    yield tmp_path
    forget("kites")
    gym.registry.pop("Kite-v0", None)


@pytest.mark.parametrize("command", ["explain", "summary"])
def test_command_imports_a_module_on_request(command, kites):
    assert "Kite-v0" in run_command(command, "Kite-v0", cwd=kites, code=1).stderr

    done = run_command(command, "Kite-v0", "--import", "kites", "--json", cwd=kites)

    assert json.loads(done.stdout)["env"] == "Kite-v0"


def test_commands_read_the_same_config_file(tmp_path):
    (tmp_path / "config.yaml").write_text(
        "model: {fcnet_hiddens: [8]}\nnum_envs: 2\nrollout_length: 16\nminibatch_size: 32\n"
    )
    options = ["CartPole-v1", "--config", "config.yaml"]

    explanation = json.loads(run_command("explain", *options, "--json", cwd=tmp_path).stdout)
    summary = json.loads(run_command("summary", *options, "--json", cwd=tmp_path).stdout)
    train = ["train", *options, "--steps", "32", "--out", "run", "--set", "gamma=0.5"]
    run_command(*train, cwd=tmp_path)

    config = json.loads((tmp_path / "run/config.json").read_text())
    # (4 + 1) * 8 weights of the layer, (8 + 1) * 2 of the logits, and 8 + 1 of the value.
    assert explanation["weights"] == summary["weights"] == 40 + 18 + 9
    assert config["model"]["fcnet_hiddens"] == [8]
    assert config["algorithm"]["num_envs"] == 2
    assert config["algorithm"]["gamma"] == 0.5


def test_resumed_run_takes_no_config_file(filtered_run, tmp_path):
    folder, _ = filtered_run
    (tmp_path / "config.yaml").write_text("lr: 0.1")
    line = ["train", "--resume", str(folder), "--config", str(tmp_path / "config.yaml")]

    assert "a resumed run keeps its --config" in run_command(*line, code=1).stderr


@pytest.fixture
def run_with_a_model_of_a_module(tmp_path):
    """The folder of a run that was trained with `--import kites`, which registered its model."""
    torch = pytest.importorskip("torch")

    class Kite(torch.nn.Linear):
        def __init__(self, obs_space):
            super().__init__(obs_space.shape[0], 8)

    rlcatalog.ModelCatalog.register_custom_model("kite_net", Kite)
    policy = rlcatalog.build(env="CartPole-v1", config={"custom_model": "kite_net"})
    policy.save(tmp_path / "policy")
    record = {"status": "finished", "command": ["rlcatalog", "train", "--import", "kites"]}
    (tmp_path / "run.json").write_text(json.dumps(record))
    default_catalog.cache_clear()  # as in a new process, in which nothing is registered
    yield tmp_path
    default_catalog.cache_clear()


@pytest.mark.parametrize("command", ["evaluate", "export"])
def test_error_names_the_module_that_registered_the_model(command, run_with_a_model_of_a_module):
    options = ["--env", "CartPole-v1"] if command == "evaluate" else []

    error = run_command(command, str(run_with_a_model_of_a_module), *options, code=1).stderr

    assert "kite_net" in error
    assert "If you trust kites, add --import kites." in error


# --- folders of runs ------------------------------------------------------------------------------


def read_files(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


@pytest.fixture
def run_folder(tmp_path):
    folder = tmp_path / "run"
    run_command("train", "CartPole-v1", *SHORT_RUN, "--out", str(folder))
    return folder


def test_train_keeps_an_existing_run(run_folder):
    before = read_files(run_folder)
    line = ["train", "CartPole-v1", *SHORT_RUN, "--seed", "1", "--out", str(run_folder)]
    error = run_command(*line, code=1).stderr
    assert "already contains a run" in error
    assert "--overwrite" in error
    assert read_files(run_folder) == before


def test_evaluate_imports_no_module_that_a_config_names(run_folder, tmp_path):
    was_imported = tmp_path / "was_imported"
    (tmp_path / "evilmod.py").write_text(f"open({str(was_imported)!r}, 'w')")
    config = json.loads((run_folder / "config.json").read_text())
    config["env"] = "evilmod:CartPole-v1"
    (run_folder / "config.json").write_text(json.dumps(config))
    evaluate = ["evaluate", str(run_folder), "--episodes", "1"]
    environ = {"cwd": tmp_path, "PYTHONPATH": str(tmp_path)}

    error = run_command(*evaluate, code=1, **environ).stderr
    assert "names the import path 'evilmod:CartPole-v1'" in error
    assert not was_imported.exists()

    # A module that the user names is imported.
    run_command(*evaluate, "--import", "evilmod", **environ)
    assert was_imported.exists()
