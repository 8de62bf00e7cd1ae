"""`python -m benchmarks`: measure, print the tables, and compare with the stored ratios; `--help`
says how.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from benchmarks import page, table

#: Each in a process of its own: the frameworks' thread settings and imports must not meet.
PARTS = (
    "kernel", "preprocessors", "torch", "tensors", "tf", "models", "models_tf", "frozen", "dists",
    "dists_tf", "compiled", "autoregressive", "autoregressive_tf", "ppo", "sb3", "rllib",
)  # fmt: skip


def arguments(given: Sequence[str] | None = None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description="Speed, as ratios to hand-written floors measured in the same run. Lower is"
        " faster, but for those of training, which compare steps per second.",
        epilog=f"Parts: {', '.join(PARTS)}. `--save` wants an idle machine and replaces whole"
        " parts of the table.",
    )
    parser.add_argument(
        "parts", nargs="*", metavar="PART", help="what to measure; all when none is named"
    )
    parser.add_argument(
        "--case",
        action="append",
        default=[],
        metavar="TEXT",
        help="only the cases whose name contains this; may be given several times",
    )
    parser.add_argument(
        "--markdown", type=Path, metavar="FILE", help="write what is printed to a file too"
    )
    parser.add_argument(
        "--json", type=Path, metavar="FILE", help="write ratios and spreads to a file"
    )
    parser.add_argument(
        "--save",
        action="store_true",
        help="store the ratios as the table, and what is printed in docs/reference/speed_floors.md",
    )
    parser.add_argument(
        "--check",
        action="store_true",
        help="compare with the table; exit 1 when a case is worse, and worse once more",
    )
    parser.add_argument(
        "--measured",
        type=Path,
        metavar="FILE",
        help="with --check: compare an earlier run's --json file, and measure nothing",
    )
    parser.add_argument(
        "--table", type=Path, default=table.STORED, metavar="FILE", help="another table"
    )
    parser.add_argument(
        "--page", type=Path, default=page.PAGE, metavar="FILE", help="another page for --save"
    )
    chosen = parser.parse_args(given)
    unknown = [part for part in chosen.parts if part not in PARTS]
    if unknown:
        parser.error(
            f"no part {', '.join(unknown)}; there are {', '.join(PARTS)}. A case is named by"
            " --case."
        )
    if chosen.save and (chosen.case or chosen.check):
        parser.error("--save stores whole parts: it goes with no --case, and not with --check")
    if chosen.measured and not chosen.check:
        parser.error("--measured goes with --check")
    return chosen


def measure(
    parts: Sequence[str], names: Sequence[str], markdown: Path | None = None
) -> table.Table:
    """Measure parts, each in a process of its own, and print their tables as they come.

    Raises:
        subprocess.CalledProcessError: A part failed; what came before is in the Markdown file.
    """
    # With it, what imports cost is what compiling them costs.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    found = {}
    with (
        tempfile.TemporaryDirectory() as folder,
        (markdown or Path("/dev/null")).open("w", encoding="utf-8") as file,
    ):
        for part in parts:
            target = Path(folder) / f"{part}.json"
            command = [sys.executable, "-m", "benchmarks.part", part, str(target), *names]
            _say(f"\n## {part}\n\n", file)
            with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
                assert process.stdout is not None
                for line in process.stdout:
                    _say(line, file)
            if process.returncode:
                raise subprocess.CalledProcessError(process.returncode, command)
            found[part] = table.section(json.loads(target.read_text(encoding="utf-8")))
    return found


def _say(line: str, file: object) -> None:
    print(line, end="", flush=True)
    print(line, end="", flush=True, file=file)  # type: ignore[call-overload]


def check(chosen: argparse.Namespace) -> int:
    """Say what became of the stored ratios; 1 when something is worse."""
    stored = table.read(chosen.table)
    parts = chosen.parts or PARTS
    if chosen.measured:
        earlier = table.read(chosen.measured)
        measured = {part: entry for part, entry in earlier.items() if part in parts}
    else:
        measured = measure(parts, chosen.case, chosen.markdown)
    found = table.compare(stored, measured, chosen.case)
    if found.worse and not chosen.measured:
        print("\nWhat is worse, once more:", flush=True)
        for part in dict.fromkeys(part for part, _ in found.worse):
            cases = measured[part]["cases"]
            again = measure([part], [name for slow, name in found.worse if slow == part])
            cases |= {
                name: figure
                for name, figure in again[part]["cases"].items()
                if (part, name) in found.worse
            }
        found = table.compare(stored, measured, chosen.case)
    if chosen.json:
        table.write(chosen.json, measured)
    print("", *table.other_versions(stored, measured), found.text(), sep="\n")
    return int(bool(found.worse))


def main(given: Sequence[str] | None = None) -> int:
    """Measure, and check or store when asked to."""
    chosen = arguments(given)
    if chosen.check:
        return check(chosen)
    if chosen.save:
        # Before an hour of measuring.
        page.updated(chosen.page.read_text(encoding="utf-8"), "", {}, PARTS, "")
    with tempfile.TemporaryDirectory() as folder:
        printed = chosen.markdown or Path(folder) / "printed.md"
        measured = measure(chosen.parts or PARTS, chosen.case, printed)
        text = printed.read_text(encoding="utf-8") if printed.exists() else ""
    if chosen.json:
        table.write(chosen.json, measured)
    if chosen.save:
        before = table.read(chosen.table) if chosen.table.exists() else {}
        table.write(
            chosen.table,
            {part: (before | measured)[part] for part in PARTS if part in before | measured},
        )
        shown = page.updated(
            chosen.page.read_text(encoding="utf-8"), text, measured, PARTS, page.machine()
        )
        chosen.page.write_text(shown, encoding="utf-8")
        print(f"\nstored in {chosen.table} and {chosen.page}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
