"""Python in Markdown pages: its blocks, in order, and what each prints.

A block that ends a page's code so far sees all that stood before it. An `output` block after it is
what it prints.
"""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

#: A block of Python and, where there is one, what the page says that it prints.
BLOCK = re.compile(
    r"^```(?:python|\{code-cell\}[^\n]*)\n(?P<code>.*?)^```\n(?:\n^```output\n(?P<output>.*?)^```)?",
    re.S | re.M,
)
#: What takes long in pages → what runs in its place; the page prints the same.
SHORTER = {
    # test_torch_compiled_module.py compiles modules to machine code.
    "docs/howto/own_loop_features.md": [
        (
            "torch.compile(acting, fullgraph=True)",
            'torch.compile(acting, fullgraph=True, backend="eager")',
        )
    ],
    # test_conformance.py checks every package; this one has few cases.
    "docs/howto/test_a_plugin.md": [
        ('check_plugin("rlcatalog-deterministic")', 'check_plugin("rlcatalog-filters")')
    ],
    "docs/tutorials/first_policy.md": [("range(16)", "range(2)")],
    "docs/tutorials/masks_and_memory.md": [("range(1, 11)", "range(5, 6)")],
    "docs/tutorials/own_model.md": [("range(8)", "range(2)")],
    "plugins/sb3/README.md": [
        ('"CartPole-v1",\n    policy', '"CartPole-v1",\n    n_steps=64,\n    policy'),
        ("10_000", "64"),
    ],
}
_RUN = """
import contextlib, io, json, sys
blocks, path = json.loads(sys.argv[1]), sys.argv[2]
namespace, printed = {"__name__": "__main__"}, []
for number, (line, code) in enumerate(blocks):
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        exec(compile("\\n" * line + code, path, "exec"), namespace)
    printed.append(said.getvalue())
print("\\x1e" + json.dumps(printed))
"""


def blocks(text: str) -> list[tuple[int, str, str | None]]:
    """Return the blocks of Python: the line before each, its code, and what it is said to print."""
    return [
        (text[: m.start("code")].count("\n"), m["code"], m["output"]) for m in BLOCK.finditer(text)
    ]


def printed(
    text: str,
    path: str,
    cwd: Path,
    run: Callable[..., subprocess.CompletedProcess[str]],
    *options: str,
) -> list[str]:
    """Run the blocks of a page one after another in one process, and return what each prints.

    Args:
        text: The page.
        path: Its name, for tracebacks.
        cwd: The folder to run in.
        run: `warm.run`, or another function of its form.
        options: Options of the interpreter.
    """
    code = json.dumps([(line, code) for line, code, _ in blocks(text)])
    done = run([*options, "-c", _RUN, code, path], cwd, {"COLUMNS": "120"})
    assert done.returncode == 0, done.stdout + done.stderr
    found: list[str] = json.loads(done.stdout.rpartition("\x1e")[2])
    return found


def check(
    page: str, root: Path, cwd: Path, run: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    """Run the code of a page; a warning, and output that is not what the page says, are errors.

    Args:
        page: The page's path, from the root of the repository.
        root: That root.
        cwd: The folder to run in.
        run: See `printed`.
    """
    text = (root / page).read_text(encoding="utf-8")
    for long, short in SHORTER.get(page, ()):
        assert long in text, f"{page} has no {long}: tests/support/pages.py"
        text = text.replace(long, short)
    options = ["-W", "error"]
    for warning in (
        # PyTorch's CUDA build warns where there is no GPU, see filterwarnings in pyproject.toml.
        "CUDA initialization:UserWarning",
        # PyTorch's compiler still uses TorchScript.
        "`torch.jit.script_method` is deprecated:DeprecationWarning",
    ):
        options += ["-W", f"ignore:{warning}"]
    for said, (line, _, expected) in zip(
        printed(text, page, cwd, run, *options), blocks(text), strict=True
    ):
        assert expected is None or said == expected, (
            f"{page}:{line}: python tools/page_outputs.py {page}"
        )


def filled(text: str, said: list[str]) -> str:
    """Return the page with what its blocks print."""
    each = iter(said)

    def block(match: re.Match[str]) -> str:
        output = next(each)
        if match["output"] is None:
            return match[0]
        begin, end = match.start("output") - match.start(), match.end("output") - match.start()
        return match[0][:begin] + output + match[0][end:]

    return BLOCK.sub(block, text)
