"""Runs the kernel's tests and those of what changed, and says which:
`python tools/quick.py [pytest's arguments]`.

What changed is what git says: since the branch left `main`, and what is not committed yet.
"""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
KERNEL = "catalog/tests"

#: More test folders than these may take more than a minute on two cores.
FEW = 3
#: What only `requirements/dev.txt` installs.
ENGINES = ("tensorflow", "ray", "stable_baselines3")

#: Where a changed file that belongs to no package is tested: beginning of its path → a test file.
#: The first that fits.
ELSEWHERE = {
    "tools/test_homes": "tests/tools/test_test_homes.py",
    "tools/": "tests/tools/test_makefile.py",
    "benchmarks/peers": "tests/tools/test_peers.py",
    "benchmarks/": "tests/tools/test_bench_check.py",
    "Makefile": "tests/tools/test_makefile.py",
    ".github/": "tests/tools/test_makefile.py",
    ".ci/": "tests/tools/test_makefile.py",
    "requirements/": "tests/docs/test_docs.py",
    "docs/concepts/": "tests/docs/test_docs_site.py",
    "docs/howto/": "tests/docs/test_docs_site.py",
    "docs/tutorials/": "tests/docs/test_docs_site.py",
    "docs/examples/": "tests/docs/test_docs_reference.py",
    "docs/reference/hooks/": "tests/docs/test_docs_plugins.py",
    "docs/reference/": "tests/docs/test_docs_reference.py",
    "docs/engines": "tests/engines/test_engines.py",
    "docs/config.md": "tests/docs/test_docs_config.py",
    "docs/hooks.md": "tests/docs/test_docs_plugins.py",
    "docs/plugins.md": "tests/docs/test_docs_plugins.py",
    "docs/": "tests/docs/test_docs.py",
    "README.md": "tests/docs/test_docs.py",
    "CONTRIBUTING.md": "tests/docs/test_docs.py",
    "CHANGELOG.md": "tests/docs/test_docs.py",
    "examples/browser/": "tests/docs/test_browser_example.py",
    "examples/": "tests/docs/test_examples.py",
}


def folders(changed: Iterable[str], root: Path = ROOT) -> list[str]:
    """Return the test folders and files for changed files, the kernel's first.

    Args:
        changed: Paths relative to the repository; those of deleted files too.
        root: The repository.
    """
    found = {KERNEL}
    for path in changed:
        found |= _tests_of(path, root)
    found = {
        path
        for path in found
        if (root / path).exists() and Path(path).parent.as_posix() not in found
    }
    return [KERNEL, *sorted(found - {KERNEL})]


def _tests_of(path: str, root: Path) -> set[str]:
    for folder in Path(path).parents:
        if folder != Path(".") and (root / folder / "pyproject.toml").is_file():
            return {f"{folder.as_posix()}/tests"}
    if path.startswith("tests/support/"):
        return _users(Path(path).stem, root)
    if path.startswith("tests/") and Path(path).name.startswith("test_"):
        return {str(Path(path).with_suffix(".py"))}  # a record of learning stands beside its test
    for start, test in ELSEWHERE.items():
        if path.startswith(start):
            return {test}
    return set()


def _users(module: str, root: Path) -> set[str]:
    """Return the test files that import a module of tests/support."""
    lines = (f"import {module}\n", f"from {module} import ")
    tests = sorted(root.glob("**/tests/**/test_*.py"))
    return {
        test.relative_to(root).as_posix()
        for test in tests
        if any(line in test.read_text(encoding="utf-8") for line in lines)
    }


def changed_files(root: Path = ROOT) -> tuple[list[str], str]:
    """Return the files that changed, and since when, in words."""

    def git(*arguments: str) -> list[str] | None:
        run = subprocess.run(
            ["git", *arguments], cwd=root, capture_output=True, text=True, check=False
        )
        return run.stdout.split("\0") if run.returncode == 0 else None

    try:
        untracked = git("ls-files", "--others", "--exclude-standard", "-z")
    except FileNotFoundError:
        untracked = None
    if untracked is None:
        return [], "git does not say what changed"
    base, since = "HEAD", "the last commit"
    for main in ("main", "origin/main"):
        point = git("merge-base", "HEAD", main)
        if point is not None:
            base, head = point[0].strip(), (git("rev-parse", "HEAD") or [""])[0].strip()
            since = since if base == head else f"the branch left {main}"
            break
    tracked = git("diff", "--name-only", "--no-renames", "-z", base) or []
    return sorted({*tracked, *untracked} - {""}), f"changed since {since}"


def split(chosen: Iterable[str], everything: bool) -> tuple[list[str], list[str]]:
    """Return what runs here and what does not: the tests that span packages need all of them, and
    both frameworks.
    """
    here = [path for path in chosen if everything or not path.startswith("tests/")]
    return here, [path for path in chosen if path not in here]


def main(arguments: list[str]) -> int:
    """Say what runs, and run it."""
    changed, since = changed_files()
    everything = all(importlib.util.find_spec(module) for module in ENGINES)
    chosen, left = split(folders(changed), everything)
    print(f"{len(changed)} files: {since}" if changed else f"nothing: {since}")
    if left:
        print("left to `make test`, which installs all packages:", *left)
    if len(chosen) > FEW:
        print("so much changed that this may take more than a minute")
    print("running:", *chosen, flush=True)
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-m",
        "not learn and not slow and not packaging",
        "-n",
        "2",
        "--dist",
        "loadfile",
        *chosen,
        *arguments,
    ]
    return subprocess.run(command, cwd=ROOT, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
