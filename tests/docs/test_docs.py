"""The pages people read: their code runs, their links lead somewhere, and what is generated is
fresh.
"""

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

SITE = sorted(
    str(path.relative_to(ROOT)) for path in ROOT.glob("docs/**/*.md") if "_build" not in path.parts
)
#: Pages whose code runs as it stands; those of the site: `test_docs_site.py`.
RUNNABLE = ["README.md", *(f"{folder}/README.md" for folder in PACKAGES.values())]


# --- code in the pages ----------------------------------------------------------------------------


@pytest.mark.parametrize("page", RUNNABLE)
def test_python_in_page_runs(page, tmp_path):
    pages.check(page, ROOT, tmp_path, warm.run)


def test_the_other_code_of_the_page_of_hooks_runs(tmp_path):
    """That of the sections that are about no hook: the conformance kit, and weights."""
    rest = "".join(
        part
        for part in re.split(r"^(?=## )", read("docs/hooks.md"), flags=re.M)
        if part[:4] != "## `"
    )
    assert len(pages.blocks(rest)) >= 5
    options = ("-W", "error", "-W", "ignore:CUDA initialization:UserWarning")
    pages.printed(rest, "docs/hooks.md", tmp_path, warm.run, *options)


def test_commands_in_readme_run(tmp_path):
    """Each `rlcatalog ...` line of the tour, in order; training and evaluation are cut short."""
    lines = re.findall(r"^\$ rlcatalog (.*)$", read("README.md"), re.M)
    assert [line.split()[0] for line in lines] == [
        "list",
        "explain",
        "summary",
        "train",
        "evaluate",
    ]
    for line in lines:
        line = re.sub(
            r"--episodes \d+", "--episodes 2", re.sub(r"--steps \d+", "--steps 512", line)
        )
        done = command_line.rlcatalog(*line.split(), cwd=tmp_path)
        assert done.returncode == 0, done.stderr
    left = {path.name for path in (tmp_path / "runs/tour").iterdir()}
    assert left == {
        "learning_curve.png",
        "metrics.jsonl",
        "config.json",
        "run.json",
        "policy",
        "checkpoints",
    }


@pytest.mark.parametrize(
    "page",
    [
        "README.md",
        *(f"{folder}/README.md" for folder in PACKAGES.values()),
        *SITE,
        "CHANGELOG.md",
        "CONTRIBUTING.md",
        "SECURITY.md",
        "RELEASING.md",
    ],
)
def test_links_lead_somewhere(page):
    # Code may hold what looks like a link.
    text = re.sub(r"^```\w+\n.*?^```$", "", read(page), flags=re.S | re.M)
    for path, name in re.findall(r'\]\((\S+\.py) "(\w+)"\)', text):
        source = ((ROOT / page).parent / path).read_text(encoding="utf-8")
        assert re.search(rf"^def {name}\(", source, re.M), f"{path} has no {name}"
    for target, anchor in re.findall(r"\]\(([^)#\s]*)(?:#([^)\s]*))?\)", text):
        # The sources of what others published.
        if page == "docs/learning.md" and target.startswith("https://"):
            continue
        assert "://" not in target, target
        linked = (ROOT / page).parent / target if target else ROOT / page
        assert linked.exists(), target
        if anchor:
            titles = re.findall(r"^#+ (.*)$", linked.read_text(encoding="utf-8"), re.M)
            assert anchor in {
                re.sub(r"[^\w\- ]", "", title).lower().replace(" ", "-") for title in titles
            }, anchor


# --- security -------------------------------------------------------------------------------------


def test_every_sentence_of_the_security_section_names_a_test_that_is_there():
    section = read("SECURITY.md").partition("## Sentence by sentence\n")[2].partition("\n## ")[0]
    sentences = re.findall(r"^- (.*)$", section, re.M)
    assert len(sentences) > 15
    for sentence in sentences:
        tests = re.findall(r'\]\((\S+) "(\w+)"\)', sentence)
        for path, name in tests:
            assert re.search(rf"^def {name}\(", read(path), re.M), f"{path} has no {name}"
        assert tests, sentence


# --- RLlib's names --------------------------------------------------------------------------------


def seed_rows():
    return rows(read("docs/seeds.md").partition("## Names")[2].partition("\n## ")[0])


def resolve(path):
    """Return the object at a dotted path: the longest module that imports, then attributes."""
    names = path.split(".")
    for length in range(len(names), 0, -1):
        module = ".".join(names[:length])
        try:
            found = importlib.import_module(module)
        except ModuleNotFoundError as error:
            if error.name != module and not module.startswith(f"{error.name}."):
                raise
            continue
        for name in names[length:]:
            found = getattr(found, name)
        return found
    raise AssertionError(f"nothing at {path}")


@pytest.mark.parametrize(
    ("name", "here", "remarks"), seed_rows(), ids=[row[0] for row in seed_rows()]
)
def test_name_has_a_path(name, here, remarks):
    if not here.startswith("not supported: "):
        [path] = quoted(here)
        assert resolve(path) is not None
    for path in quoted(remarks.partition("also ")[2]):
        assert resolve(path) is not None


def test_seed_table_has_the_names_the_page_imports():
    """The names in the import lines of the five editions."""
    served = {here.strip("`") for _, here, _ in seed_rows()}
    tf, torch = "rlcatalog_tf.", "rlcatalog_torch."
    assert served >= {
        *("rlcatalog.ModelCatalog", "rlcatalog.Preprocessor", "rlcatalog.one_hot"),
        *(
            "rlcatalog.ActionDistribution",
            "rlcatalog.TupleActions",
            "rlcatalog.restore_original_dimensions",
        ),
        *(
            f"{tf}TFModelV2",
            f"{tf}RecurrentNetwork",
            f"{tf}RecurrentTFModelV2",
            f"{tf}FullyConnectedNetwork",
        ),
        *(
            f"{tf}Categorical",
            f"{tf}normc_initializer",
            f"{torch}TorchModelV2",
            f"{torch}RecurrentNetwork",
        ),
        *(
            "rlcatalog_ppo",
            "rlcatalog_ppo.PPO",
            "rlcatalog_ppo.PPOTrainer",
            "rlcatalog.spaces.Repeated",
        ),
    }
    names = " ".join(row[0] for row in seed_rows())
    assert all(
        word in names
        for word in ("A2CTrainer", "ray.init", "RepeatedValues", "ComplexInputNetwork", "gym.Env")
    )


# --- what is generated, and the house -------------------------------------------------------------


def test_install_hints_are_fresh():
    written = json.loads(read("catalog/src/rlcatalog/plugins/public_index.json"))
    assert written == public_index.data(), "run `make generate`"


@pytest.mark.parametrize("framework", ["torch", "tf"])
def test_type_checkers_see_the_classes_that_are_imported(framework):
    """The stub of a framework's door says for each part which class it is; the door gives that
    class.
    """
    path, text = public_index.stub(framework)
    assert path.read_text(encoding="utf-8") == text, "run `make generate`"
    said = dict(re.findall(r"^(\w+) = (\w[\w.]+)$", text, re.M))
    exports = json.loads(read("catalog/src/rlcatalog/plugins/public_index.json"))["provides"]
    assert set(said) == {
        key.rpartition("/")[2] for key in exports if key.startswith(f"export/{framework}/")
    }
    door = importlib.import_module(f"rlcatalog_{framework}")
    for name, place in said.items():
        module, _, attribute = place.rpartition(".")
        assert getattr(door, name) is getattr(importlib.import_module(module), attribute), name


def test_the_packages_on_disk_are_installed():
    on_disk = {str(path.relative_to(ROOT)) for path in public_index.packages().values()}
    demo, torch, dev, alone = (
        re.findall(r"^-e \./(\S+)", read(f"requirements/{name}.txt"), re.M)
        for name in ("demo", "torch", "dev", "without_dependencies")
    )
    assert sorted(demo + torch + dev + alone) == sorted(on_disk)
    # The demo has no use for these.
    assert sorted(dev + alone) == [
        "plugins/export",
        "plugins/rllib",
        "plugins/sb3",
        "plugins/tf",
    ]
    assert on_disk == set(PACKAGES.values())
    assert "plugins/example" not in on_disk


def test_the_page_of_packages_names_them_and_each_has_one():
    named = {
        quoted(row[0])[0]: re.search(r"\(../../(.*)\)", row[0])[1]
        for row in rows(read("docs/packages/index.md"))
    }
    assert named == PACKAGES
    included = {
        re.search(r"include\} ../../(.*)/README.md", read(page))[1]
        for page in SITE
        if page.startswith("docs/packages/") and not page.endswith("index.md")
    }
    assert included == {*PACKAGES.values(), "plugins/example"}


#: Folders that hold no text of ours.
SKIPPED = {"__pycache__", "runs", "dist", "build", "_build", "node_modules"}


def test_no_machine_paths():
    """No file names a folder of somebody's machine, or the host of a package registry."""
    # Spelt apart, so that this file does not match itself.
    folders = re.compile(
        rf"(?<![\w.~/])/({'|'.join(('work', 'root', 'home', 'Users', 'tmp', 'mnt'))})/\w"
    )
    hosts = re.compile(r"pypi\.o" r"rg|pythonho" r"sted|anaconda\.c" r"om")
    wrong = []
    for folder, folders_below, files in os.walk(ROOT):
        folders_below[:] = [
            name
            for name in folders_below
            if name not in SKIPPED
            and not (name.startswith(".") and name not in (".ci", ".github"))
            and not name.endswith(".egg-info")
        ]
        for name in files:
            path = Path(folder, name)
            try:
                text = path.read_text(encoding="utf-8")
            except UnicodeDecodeError:
                continue
            for number, line in enumerate(text.splitlines(), 1):
                if folders.search(line) or hosts.search(line):
                    wrong.append(f"{path.relative_to(ROOT)}:{number}: {line.strip()[:100]}")
    assert not wrong, "\n".join(wrong)
