"""Wheels of the packages, and empty environments to install them into.

The third parties come from a folder of links to the packages of this environment, so that nothing
is downloaded; a framework is left out of the folder where its absence is the point.
"""

from __future__ import annotations

import subprocess
import sys
import sysconfig
import venv
from collections.abc import Iterable
from functools import cache
from pathlib import Path

import pytest
from package_environments import BUILD, FOLDERS, Environment, link_distributions, module_of


@pytest.fixture(scope="session")
def wheels(tmp_path_factory) -> dict[str, Path]:
    """Build every package of the repository, all in one process, as pip would in many; distribution
    → wheel.
    """
    folder = tmp_path_factory.mktemp("wheels")
    subprocess.run(
        [sys.executable, "-c", BUILD, folder, *FOLDERS.values()], check=True, timeout=120
    )
    built = {path.name.split("-")[0]: path for path in folder.iterdir()}
    assert set(built) == {module_of(name) for name in FOLDERS}
    return {name: built[module_of(name)] for name in FOLDERS}


@pytest.fixture(scope="session")
def third_parties(tmp_path_factory):
    """Make a folder of links to what is installed here, this repository's packages and some others
    left out.
    """
    ours = {module_of(name) for name in FOLDERS}

    @cache
    def make(*without: str) -> Path:
        folder = tmp_path_factory.mktemp("third_parties")
        for site in {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}:
            for path in Path(site).iterdir():
                name = path.name.partition("-")[0].partition(".")[0].lower()
                ignored = path.suffix in (".pth", ".egg-link") or path.name.startswith(
                    ("_editable", "__editable")
                )
                if (
                    not ignored
                    and name not in ours
                    and not name.startswith("rlcatalog")
                    and name not in without
                ):
                    (folder / path.name).symlink_to(path)
        return folder

    return make


@pytest.fixture(scope="session")
def environment(tmp_path_factory, wheels, third_parties):
    """Make an empty environment with some of our wheels, and third parties without some frameworks,
    or with none but those in `only`.
    """

    def make(
        *distributions: str, without: tuple[str, ...] = (), only: Iterable[str] | None = None
    ) -> Environment:
        made = Environment(tmp_path_factory.mktemp("environment") / "venv")
        venv.EnvBuilder(with_pip=False, symlinks=True).create(made.folder)
        if only is None:
            links = third_parties(*without)
        else:
            links = tmp_path_factory.mktemp("third_parties")
            link_distributions(only, links)
        (made.site / "third_parties.pth").write_text(f"{links}\n", encoding="utf-8")
        for name in distributions:
            made.install(wheels[name])
        return made

    return make


@pytest.fixture(scope="session")
def bare(environment):
    """An environment with nothing of ours and no framework, to fork from."""
    return environment(without=("torch", "tensorflow"))
