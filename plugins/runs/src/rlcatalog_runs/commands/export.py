"""The command `export`: export a saved policy or a run's policy to a single file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rlcatalog.catalog import default_catalog, make_env
from rlcatalog_cli import Modules, redirect_stdout
from rlcatalog_policy import load, read_manifest
from rlcatalog_runs.folders import POLICY, env_of, import_modules, policy_of, unwritten_spaces


def export(
    run: Annotated[
        Path, typer.Argument(metavar="PATH", help="Folder of a run or of a saved policy.")
    ],
    format: Annotated[
        str | None,
        typer.Option(
            "--format",
            metavar="NAME",
            help="Format, such as onnx; by default, from --out's suffix.",
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", "-o", metavar="PATH", help="File to write; by default, a new policy.* in PATH."
        ),
    ] = None,
    modules: Modules = None,
) -> None:
    """Export a trained policy as one file."""
    with redirect_stdout():
        catalog = default_catalog()
        if out is None:
            format = format or "onnx"
            suffix = catalog.registry.get("exporter", format).declaration.suffix  # type: ignore[attr-defined]
            out = run / f"{POLICY}{suffix or f'-{format}'}"
        import_modules(modules or [])
        saved = policy_of(run)
        spaces = (
            {}
            if saved == run
            else unwritten_spaces(read_manifest(saved), lambda: make_env(*env_of(run, modules)))
        )
        policy = load(saved, catalog=catalog, **spaces)
        interface = policy.export(out, format)
    print(
        f"{out}: inputs {', '.join(port.name for port in interface.inputs)}; outputs"
        f" {', '.join(port.name for port in interface.outputs)}"
    )
