"""Ports models that others wrote for RLlib, tries them and reports; it fetches nothing.

`python tools/port_report.py DIR` takes a folder with one folder per item: `item.toml`, and `code/`
with the files as they were. Each item is copied, ported by `rlcatalog port --write` alone, and
tried in a process of its own. `--write` puts the table into `docs/ported_models.md`, from
`docs/ported_models.json`, which holds results and no code.

`item.toml` holds `repository`, `commit`, `path` (below `code/`), `class`, `framework` (`"torch"` or
`"tf"`), `observation_space` and `action_space` (expressions over `spaces` and `np`), and where they
are needed:

- `model`: the model config, an expression; `memory`: whether the model has one
- `kind`: `"model"`, `"distribution"` or `"preprocessor"`
- `roots`: folders below `code/` for `sys.path`; `ones`: masks in the observations that are to allow
  everything
- `stubs`: modules that have no part in the model, and `stubs_why`; `beside`: what lies in `code/`
  of a library's
- `class_alone`: for a script that trains when it is imported: the class with the statements whose
  names it reads
- `noisy`: the model draws random numbers
- `bound`: why the class cannot run without its project; `broken`: why it does not under RLlib
  either
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path
from typing import Any

from port_child import STAGES

from rlcatalog.errors import one_line

ROOT = Path(__file__).resolve().parents[1]
PAGE, DATA = ROOT / "docs/ported_models.md", ROOT / "docs/ported_models.json"
RESULTS = ("runs", "bound", "broken", "fails")
START, END = "<!-- table -->", "<!-- /table -->"
KEPT = ("repository", "commit", "path", "class", "framework", "memory", "kind")


def tried(folder: Path, seconds: float) -> dict[str, Any]:
    """Return what came of an item.

    Args:
        folder: The item's.
        seconds: How long its process may run.
    """
    item = tomllib.loads((folder / "item.toml").read_text(encoding="utf-8"))
    found: dict[str, Any] = {"item": folder.name, "memory": False, "kind": "model"}
    found |= {key: item[key] for key in KEPT if key in item}
    found |= {key: item[key] for key in ("stubs", "class_alone", "beside") if key in item}
    with tempfile.TemporaryDirectory() as made:
        code = Path(made) / "code"
        shutil.copytree(folder / "code", code)
        main = "import sys; from rlcatalog_cli import main; sys.exit(main())"
        ported = child([sys.executable, "-c", main, "port", str(code), "--write"], made, 120)
        found["notes"] = [
            line.removeprefix(f"{code}/")
            for line in ported.stdout.splitlines()
            if line.startswith(str(code))
        ]
        if ported.returncode not in (0, 1):
            return {
                **found,
                "stages": {},
                "stage": "port",
                "error": one_line(ported.stderr),
                "result": "fails",
            }
        command = [sys.executable, str(ROOT / "tools/port_child.py"), str(code), json.dumps(item)]
        try:
            last = child(command, made, seconds)
            found |= json.loads((last.stdout.strip().splitlines() or ["{}"])[-1])
        except subprocess.TimeoutExpired:
            found |= {
                "stages": {},
                "stage": "import",
                "error": f"stopped after {seconds:g} seconds",
            }
        except json.JSONDecodeError:
            found |= {"stages": {}, "stage": "import", "error": one_line(last.stderr[-300:])}
    found["stages"] = {"port": "ok", **found.get("stages", {})}
    found["result"] = verdict(found, item)
    return found


def verdict(found: dict[str, Any], item: dict[str, Any]) -> str:
    """Return `"runs"`, `"bound"`, `"broken"` or `"fails"`, and note why an item is
    bound or broken.
    """
    missing = (found.pop("missing", None) or "").partition(".")[0]
    if "error" not in found:
        return "runs"
    if missing and missing != "ray":
        found["why"] = f"needs `{missing}`"
        return "bound"
    for result in ("bound", "broken"):
        if result in item:
            found["why"] = item[result]
            return result
    return "fails"


def child(command: list[str], folder: str, seconds: float) -> Any:
    """Run a command in a folder, with one thread and few words."""
    variables = {
        **os.environ,
        "OMP_NUM_THREADS": "1",
        "TF_CPP_MIN_LOG_LEVEL": "3",
        "CUDA_VISIBLE_DEVICES": "",
    }
    return subprocess.run(
        command,
        cwd=folder,
        env=variables,
        capture_output=True,
        text=True,
        timeout=seconds,
        check=False,
    )


def line(found: dict[str, Any]) -> str:
    """Return an item's line for the terminal."""
    passed = " ".join(
        f"{stage}:{'ok' if stage in found['stages'] else '-'}" for stage in ("port", *STAGES)
    )
    memory = "memory" if found["memory"] else ""
    words = f"{found['item']:<40} {found['framework']:<5} {memory:<6} {found['result']:<5} {passed}"
    return f"{words}\n    {found['stage']}: {found['error'][:300]}" if "error" in found else words


def table(results: list[dict[str, Any]]) -> str:
    """Return the page's table and its totals."""
    count = {result: sum(found["result"] == result for found in results) for result in RESULTS}
    tf, memory = (
        sum(map(test, results))
        for test in (lambda f: f["framework"] == "tf", lambda f: f["memory"])
    )
    rows = [
        f"{len(results)} classes from {len({found['repository'] for found in results})}"
        f" repositories, including {tf} in TensorFlow and {memory} with memory: {count['runs']}"
        f" run, {count['bound']} are bound, {count['broken']} are also broken under RLlib,"
        f" {count['fails']} fail.",
        "",
        "| repository | commit | path | class | | | result |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for found in results:
        what = found["framework"] + (", memory" if found["memory"] else "")
        kind = "" if found["kind"] == "model" else found["kind"]
        rows.append(
            f"| {found['repository']} | `{found['commit'][:10]}` | `{found['path']}` |"
            f" `{found['class']}` | {what} | {kind} | {outcome(found)} |"
        )
    return "\n".join(rows)


def outcome(found: dict[str, Any]) -> str:
    """Return an item's result in words."""
    if found["result"] == "runs":
        marks = [
            word
            for key, word in (("class_alone", "class alone"), ("stubs", "stubs"))
            if found.get(key)
        ]
        marks += [f"with {found['beside']}"] if "beside" in found else []
        return "runs" + (f" ({', '.join(marks)})" if marks else "")
    if "why" in found:
        return f"{found['result']}: {found['why']}"
    return f"fails at {found['stage']}: {found['error'][:200].replace('|', '/')}"


def page(text: str, results: list[dict[str, Any]]) -> str:
    """Return the page with its table renewed."""
    return re.sub(
        f"{START}.*{END}", lambda _: f"{START}\n{table(results)}\n{END}", text, flags=re.DOTALL
    )


def main() -> None:
    """Try the items and report."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "folder",
        type=Path,
        metavar="DIR",
        nargs="?",
        help="the items; none to write the table anew",
    )
    parser.add_argument("--only", default="", help="a regular expression of names of items")
    parser.add_argument(
        "--json", type=Path, default=None, help="where results are written; items not tried stay"
    )
    parser.add_argument("--seconds", type=float, default=240, help="how long each item may take")
    parser.add_argument("--write", action="store_true", help=f"write {DATA.name} and {PAGE.name}")
    given = parser.parse_args()
    target = DATA if given.write else given.json
    known = (
        {found["item"]: found for found in json.loads(target.read_text())}
        if target and target.exists()
        else {}
    )
    folders = sorted(given.folder.iterdir()) if given.folder else []
    for folder in folders:
        if (folder / "item.toml").is_file() and re.search(given.only, folder.name):
            known[folder.name] = tried(folder.resolve(), given.seconds)
            print(line(known[folder.name]), flush=True)
            if target:
                target.write_text(
                    json.dumps([known[name] for name in sorted(known)], indent=1) + "\n"
                )
    results = [known[name] for name in sorted(known)]
    if given.write:
        for found in results:
            found.pop("traceback", None)
        DATA.write_text(json.dumps(results, indent=1) + "\n")
        PAGE.write_text(page(PAGE.read_text(), results))
    print(table(results).splitlines()[0])


if __name__ == "__main__":
    main()
