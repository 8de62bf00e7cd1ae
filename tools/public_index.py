"""Writes `public_index.json`, which package of this repository provides which name, and the stubs
of their classes.

Run it after a package was added or a declaration changed: `python tools/public_index.py`, or with
`--check` to only say whether they are up to date.
"""

from __future__ import annotations

import json
import sys
import tomllib
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
from generated import ROOT, write
from packaging.requirements import Requirement

from rlcatalog import Catalog, SpaceInfo
from rlcatalog.config import KernelConfig, keys_of
from rlcatalog.errors import CatalogError
from rlcatalog.plugins import Request
from rlcatalog.plugins.discovery import scan
from rlcatalog.spaces import Repeated, Simplex
from rlcatalog_cli.app import OWN_COMMANDS

KERNEL = ROOT / "catalog/src/rlcatalog"
TARGET = KERNEL / "public_index.json"
#: The frameworks of this repository, the default first; their doors show the classes of installed
#: parts.
FRAMEWORKS = ("torch", "tf")
#: What follows in a stub is generated.
MARK = "# The installed parts' classes: written by `make generate`."


def sample_spaces() -> list[gym.Space]:
    """Return one space of each kind the kernel reads."""
    box, discrete = gym.spaces.Box(-1, 1, (2,)), gym.spaces.Discrete(2)
    return [
        box,
        discrete,
        gym.spaces.MultiDiscrete([2, 3]),
        gym.spaces.MultiBinary(2),
        gym.spaces.Text(3),
        gym.spaces.Sequence(box),
        gym.spaces.Graph(box, None),
        gym.spaces.OneOf([box, discrete]),
        gym.spaces.Tuple([box]),
        gym.spaces.Dict({"a": box}),
        Repeated(box, 2),
        Simplex((3,)),
    ]


def packages() -> dict[str, Path]:
    """Return distribution → folder of the packages in this repository, the example left out."""
    found = {}
    for path in sorted(ROOT.glob("*/pyproject.toml")) + sorted(ROOT.glob("*/*/pyproject.toml")):
        name = tomllib.loads(path.read_text(encoding="utf-8"))["project"]["name"]
        if (name == "rlcatalog" or name.startswith("rlcatalog-")) and (
            path.parent / "src"
        ).is_dir():
            found[name] = path.parent
    return dict(sorted(found.items()))


def projects() -> dict[str, dict[str, Any]]:
    """Return distribution → the table `project` of its `pyproject.toml`."""
    return {
        name: tomllib.loads((folder / "pyproject.toml").read_text(encoding="utf-8"))["project"]
        for name, folder in packages().items()
    }


def needs() -> dict[str, list[str]]:
    """Return the packages of this repository that each package requires, directly or not, the
    kernel left out; under a name such as `"rlcatalog-export[torch]"`, those that an extra adds.
    """
    entries = {}
    for name, project in projects().items():
        required = _required_by(project["dependencies"])
        entries[name] = sorted(required - {name})
        if name == "rlcatalog":
            continue  # in a clone, its extras are those of the root, which name every folder
        for extra, lines in project.get("optional-dependencies", {}).items():
            entries[f"{name}[{extra}]"] = sorted(_required_by(lines) - required - {name})
    return {name: required for name, required in entries.items() if required}


def _required_by(lines: list[str]) -> set[str]:
    """Return the packages of this repository that some requirements bring, the kernel left out."""
    known = projects()
    done: set[str] = set()
    required: set[str] = set()
    waiting = list(lines)
    while waiting:
        line = waiting.pop()
        requirement = Requirement(line)
        if line in done or requirement.name not in known or requirement.name == "rlcatalog":
            continue
        done.add(line)
        required.add(requirement.name)
        project = known[requirement.name]
        waiting += project["dependencies"]
        for extra in requirement.extras:
            waiting += project["optional-dependencies"][extra]
    return required


def data() -> dict[str, object]:
    """Read the hints from the declarations of the installed packages."""
    distributions = list(packages())
    catalog = Catalog([ep for ep in scan() if ep.dist.name in distributions], environ={})
    provides: dict[str, str] = {}
    for part in catalog.parts():
        provides[f"{part.kind}/{part.name}"] = part.distribution
        for framework, target in (
            part.declaration.targets.items() if part.declaration.shows_classes else ()
        ):
            provides[f"export/{framework}/{target.partition(':')[2]}"] = part.distribution
        for target, extensions in part.extensions.items() if part.kind == "framework" else ():
            provides[f"framework/{part.name}: {target}"] = extensions[0].distribution
        for entry in part.declaration.entries if part.kind != "framework" else ():
            provides[f"{part.kind}/{entry}"] = part.distribution
    for part in catalog.registry.active("exporter"):
        provides[f"exporter/{part.name}"] = part.distribution
        if part.declaration.suffix:
            provides[f"suffix/{part.declaration.suffix}"] = part.distribution
    provides |= {f"command/{name}": "rlcatalog-cli" for name in OWN_COMMANDS}
    for struct, owner in {KernelConfig: "rlcatalog", **catalog.registry.config_classes}.items():
        provides |= {f"config/{key.name}": owner for key in keys_of(struct)}
    values = catalog.schema.defaults()
    for space in sample_spaces():
        for kind, path, slot in (
            ("space", "obs", "preprocessor"),
            ("action_space", "action", "action_dist"),
        ):
            info = SpaceInfo.read(space, path)
            request = Request(info, info, values)
            try:
                choice = (
                    catalog.slots.choose_preprocessor(request, None)
                    if slot == "preprocessor"
                    else (catalog.slots.choose_action_dist(request, None))
                )
            except CatalogError:
                continue
            assert choice.part is not None
            provides[f"{kind}/{info.kind}"] = choice.part.distribution
    provides |= model_entries(catalog)
    return {
        "folders": {
            name: folder.relative_to(ROOT).as_posix() for name, folder in packages().items()
        },
        "frameworks": list(FRAMEWORKS),
        "needs": needs(),
        "provides": dict(sorted(provides.items())),
    }


def model_entries(catalog: Catalog) -> dict[str, str]:
    """Return whose models fill a slot by themselves: by the number of axes of what they see, and
    for composites.
    """
    vector, image = gym.spaces.Box(-1, 1, (4,)), gym.spaces.Box(0, 255, (84, 84, 3), np.uint8)
    samples = {
        "trunk/1": vector,
        "trunk/3": image,
        "trunk/composite": gym.spaces.Dict({"eye": image, "self": vector}),
        "head/composite": gym.spaces.Dict(
            {"action_mask": gym.spaces.Box(0, 1, (2,)), "self": vector}
        ),
    }
    found = {}
    for entry, space in samples.items():
        choices = catalog.resolve(space, gym.spaces.Discrete(2), {}, FRAMEWORKS[0]).choices
        part = choices[entry.partition("/")[0]].part
        assert part is not None
        found[entry] = part.distribution
    return found | {"model/fallback": found["trunk/1"]}


def stub(framework: str) -> tuple[Path, str]:
    """Return the stub of a framework's door, with the classes of the packages' parts, for type
    checkers and editors.
    """
    path = ROOT / f"plugins/{framework}/src/rlcatalog_{framework}/__init__.pyi"
    catalog = Catalog([ep for ep in scan() if ep.dist.name in packages()], environ={})
    targets = {
        c.declaration.targets[framework]
        for c in catalog.parts()
        if c.declaration.shows_classes and framework in c.declaration.targets
    }
    parts = sorted(tuple(target.split(":")) for target in targets)
    modules = sorted({module for module, _ in parts})
    lines = [
        *(f"import {module}" for module in modules),
        "",
        *(f"{name} = {module}.{name}" for module, name in parts),
    ]
    by_hand = path.read_text(encoding="utf-8").partition(MARK)[0].rstrip()
    return path, "\n".join([by_hand, "", MARK, "", *lines, ""])


def main(arguments: list[str]) -> int:
    """Write the files, or with `--check` say whether they are up to date."""
    return write(
        {TARGET: json.dumps(data(), indent=1) + "\n", **dict(map(stub, FRAMEWORKS))}, arguments
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
