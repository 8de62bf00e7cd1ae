"""Pages: their code runs, their links lead somewhere, and what is generated is fresh."""

import importlib
import importlib.util
import json
import os
import re
from pathlib import Path

import command_line
import pages
import public_index
import pytest
import warm
from page_texts import PACKAGES, ROOT, quoted, read, rows

from rlcatalog_testing import isolated_catalog

SITE = sorted(
    str(path.relative_to(ROOT)) for path in ROOT.glob("docs/**/*.md") if "_build" not in path.parts
)
READMES = ["README.md", *(f"{folder}/README.md" for folder in PACKAGES.values())]


# --- code in the pages ----------------------------------------------------------------------------


# `test_docs_site.py` runs the pages of the site.
@pytest.mark.parametrize("page", READMES)
def test_python_in_readme_runs(page, tmp_path):
    pages.check(page, ROOT, tmp_path, warm.run)


def test_commands_of_the_tour_run(tmp_path):
    lines = re.findall(r"^\$ rlcatalog (.*)$", read("docs/start.md"), re.MULTILINE)
    commands = [line.split()[0] for line in lines]
    assert commands == ["explain", "summary", "train", "evaluate"]

    for line in lines:
        # Train and evaluate for a shorter time.
        line = re.sub(r"--steps \d+", "--steps 512", line)
        line = re.sub(r"--episodes \d+", "--episodes 2", line)
        run = command_line.rlcatalog(*line.split(), cwd=tmp_path)
        assert run.returncode == 0, run.stderr

    files = {path.name for path in (tmp_path / "runs/tour").iterdir()}
    assert files == {
        "config.json",
        "run.json",
        "metrics.jsonl",
        "learning_curve.png",
        "policy",
        "checkpoints",
    }


# --- tables ---------------------------------------------------------------------------------------


def test_deterministic_actions_are_listed_per_distribution():
    page = read("docs/concepts/actions.md")
    section = page.partition("## Act without exploring")[2].partition("\n## ")[0]

    listed = [name for cells in rows(section) for name in quoted(cells[0])]
    packages = [name for name in PACKAGES if name != "rlcatalog"]
    parts = isolated_catalog(*packages).parts("action_dist")
    assert sorted(listed) == sorted(part.name for part in parts)


# --- links ----------------------------------------------------------------------------------------


PAGES = [*READMES, *SITE, "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "RELEASING.md"]


def without_code(page):
    return re.sub(r"^```\w+\n.*?^```$", "", read(page), flags=re.S | re.M)


def assert_has_function(path, name):
    text = path.read_text(encoding="utf-8")
    assert re.search(rf"^ *def {name}\(", text, re.M), f"{path} has no {name}"


#: Pages that link the sources of published results, and of facts about other libraries.
PAGES_WITH_SOURCES = ("docs/learning.md", "docs/engines.md")


def anchors_of(page):
    """Return the anchors of a page's titles, as GitHub makes them."""
    titles = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.M)
    return {re.sub(r"[^\w\- ]", "", title).lower().replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", PAGES)
def test_links_to_functions_in_page_lead_there(page):
    for path, name in re.findall(r'\]\((\S+\.py) "(\w+)"\)', without_code(page)):
        assert_has_function((ROOT / page).parent / path, name)


@pytest.mark.parametrize("page", PAGES)
def test_links_to_files_in_page_lead_there(page):
    for target, anchor in re.findall(r"\]\(([^)#\s]*)(?:#([^)\s]*))?\)", without_code(page)):
        if page in PAGES_WITH_SOURCES and target.startswith("https://"):
            continue
        assert "://" not in target, f"{target} is outside the repository"
        file = (ROOT / page).parent / target if target else ROOT / page
        assert file.exists(), target
        assert not anchor or anchor in anchors_of(file), anchor


def test_security_page_links_a_test_in_each_sentence():
    section = read("SECURITY.md").partition("## Sentence by sentence\n")[2].partition("\n## ")[0]
    sentences = re.findall(r"^- (.*)$", section, re.M)
    assert len(sentences) > 15
    for sentence in sentences:
        assert re.search(r'\]\(\S+\.py "test_\w+"\)', sentence), sentence


# --- RLlib's names --------------------------------------------------------------------------------


def read_seed_names():
    """Return (name in RLlib, place here, remarks) for each name of the page on the seeds."""
    return rows(read("docs/seeds.md").partition("## Names")[2].partition("\n## ")[0])


def import_path(path):
    """Return the object at a dotted path: the longest module that imports, then attributes."""
    names = path.split(".")
    for length in range(len(names), 0, -1):
        module = ".".join(names[:length])
        try:
            value = importlib.import_module(module)
        except ModuleNotFoundError as error:
            is_attribute = error.name == module or module.startswith(f"{error.name}.")
            if not is_attribute:
                raise  # the module is there, but one that it imports is not
            continue
        for name in names[length:]:
            value = getattr(value, name)
        return value
    raise AssertionError(f"nothing at {path}")


@pytest.mark.parametrize(
    ("name", "here", "remarks"), read_seed_names(), ids=[row[0] for row in read_seed_names()]
)
def test_name_of_rllib_is_at_the_listed_place(name, here, remarks):
    if not here.startswith("not supported: "):
        (path,) = quoted(here)
        assert import_path(path) is not None
    for path in quoted(remarks.partition("also ")[2]):
        assert import_path(path) is not None


#: Places of the names that the import lines of RLlib's page use, in its five editions.
PLACES = {
    "rlcatalog.ModelCatalog",
    "rlcatalog.Preprocessor",
    "rlcatalog.one_hot",
    "rlcatalog.ActionDistribution",
    "rlcatalog.TupleActions",
    "rlcatalog.restore_original_dimensions",
    "rlcatalog_tf.TFModelV2",
    "rlcatalog_tf.RecurrentNetwork",
    "rlcatalog_tf.RecurrentTFModelV2",
    "rlcatalog_tf.FullyConnectedNetwork",
    "rlcatalog_tf.Categorical",
    "rlcatalog_tf.normc_initializer",
    "rlcatalog_torch.TorchModelV2",
    "rlcatalog_torch.RecurrentNetwork",
    "rlcatalog_ppo",
    "rlcatalog_ppo.PPO",
    "rlcatalog_ppo.PPOTrainer",
    "rlcatalog.spaces.Repeated",
}


def test_page_of_seeds_has_all_places():
    assert {here.strip("`") for _, here, _ in read_seed_names()} >= PLACES


@pytest.mark.parametrize(
    "name", ["A2CTrainer", "ray.init", "RepeatedValues", "ComplexInputNetwork", "gym.Env"]
)
def test_page_of_seeds_has_names_without_a_place(name):
    assert any(name in row[0] for row in read_seed_names())


# --- generated files ------------------------------------------------------------------------------


def read_stub(framework):
    """Return name → the class that type checkers see behind it."""
    _, text = public_index.stub(framework)
    return dict(re.findall(r"^(\w+) = (\w[\w.]+)$", text, re.M))


@pytest.mark.parametrize("framework", ["torch", "tf"])
def test_stub_has_the_exported_classes_of_parts(framework):
    provided = json.loads(read("catalog/src/rlcatalog/public_index.json"))["provides"]
    prefix = f"export/{framework}/"
    exported = {key.removeprefix(prefix) for key in provided if key.startswith(prefix)}
    assert set(read_stub(framework)) == exported


@pytest.mark.parametrize("framework", ["torch", "tf"])
def test_type_checkers_see_the_classes_that_are_imported(framework):
    package = importlib.import_module(f"rlcatalog_{framework}")
    for name, place in read_stub(framework).items():
        assert getattr(package, name) is import_path(place), name


# --- packages -------------------------------------------------------------------------------------


def read_installed_folders(file):
    """Return the folders that a file of requirements installs."""
    return re.findall(r"^-e \./(\S+)", read(f"requirements/{file}.txt"), re.M)


def test_requirements_install_every_package():
    installed = []
    for file in ("demo", "torch", "dev", "without_dependencies"):
        installed += read_installed_folders(file)
    assert sorted(installed) == sorted(PACKAGES.values())


def test_packages_are_those_on_disk_without_the_example():
    folders = {str(path.relative_to(ROOT)) for path in public_index.packages().values()}
    assert folders == set(PACKAGES.values())
    assert "plugins/example" not in folders


def test_demo_installs_no_engine_but_ours():
    only_for_tests = read_installed_folders("dev") + read_installed_folders("without_dependencies")
    engines = ["plugins/rllib", "plugins/rsl_rl", "plugins/sb3", "plugins/skrl"]
    expected = ["plugins/export", *engines, "plugins/tf"]
    assert sorted(only_for_tests) == expected


def test_page_of_packages_lists_every_package():
    listed = {}
    for first_cell, *_ in rows(read("docs/packages/index.md")):
        folder = re.search(r"\(../../(.*)\)", first_cell)[1]
        listed[quoted(first_cell)[0]] = folder
    assert listed == PACKAGES


def test_packages_all_have_a_page():
    package_pages = [page for page in SITE if page.startswith("docs/packages/")]
    package_pages.remove("docs/packages/index.md")
    included = {
        re.search(r"include\} ../../(.*)/README.md", read(page))[1] for page in package_pages
    }
    assert included == {*PACKAGES.values(), "plugins/example"}


# --- paths and hosts ------------------------------------------------------------------------------


#: Folders without text of ours.
SKIPPED = {"__pycache__", "runs", "dist", "build", "_build", "node_modules"}


def is_skipped(folder):
    is_hidden = folder.startswith(".") and folder not in (".ci", ".github")
    return folder in SKIPPED or is_hidden or folder.endswith(".egg-info")


def texts_of_repository():
    """Yield (path, text) for each text file."""
    for folder, subfolders, files in os.walk(ROOT):
        subfolders[:] = [name for name in subfolders if not is_skipped(name)]
        for name in files:
            path = Path(folder, name)
            try:
                text = path.read_text(encoding="utf-8")
            except UnicodeDecodeError:
                continue
            yield path.relative_to(ROOT), text


def test_files_name_no_machine_paths_or_package_hosts():
    # In pieces, so that this file does not match itself.
    folders = "|".join(("work", "root", "home", "Users", "tmp", "mnt"))
    machine_path = re.compile(rf"(?<![\w.~/])/({folders})/\w")
    host = re.compile(r"pypi\.o" r"rg|pythonho" r"sted|anaconda\.c" r"om")
    wrong = []
    for path, text in texts_of_repository():
        for found in (*machine_path.finditer(text), *host.finditer(text)):
            number = text.count("\n", 0, found.start()) + 1
            wrong.append(f"{path}:{number}: {found[0]}")
    assert wrong == []
