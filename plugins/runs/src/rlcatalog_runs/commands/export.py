"""The command `export`: export a saved policy or a run's policy to a single file."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from rlcatalog.catalog import default_catalog, make_env
from rlcatalog_cli import Modules, redirect_stdout
from rlcatalog_policy import load, read_manifest
from rlcatalog_runs.folders import POLICY, import_modules, policy_of, read_config, unwritten_spaces


def export(
    run: Annotated[Path, typer.Argument(metavar="PATH", help="Folder of a run or of a saved policy.")],
    format: Annotated[
        str | None,
        typer.Option("--format", metavar="NAME", help="Format, such as onnx; by default, from --out's suffix."),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", metavar="PATH", help="File to write; by default, a new policy.* in PATH."),
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
        make = partial(_make_env, run, modules or [])
        spaces = {} if saved == run else unwritten_spaces(read_manifest(saved), make)
        policy = load(saved, catalog=catalog, **spaces)
        interface = policy.export(out, format)
    print(f"{out}: inputs {', '.join(port.name for port in interface.inputs)}; outputs"
          f" {', '.join(port.name for port in interface.outputs)}")  # fmt: skip


def _make_env(run: Path, modules: list[str]) -> Any:
    """Create a run's environment."""
    config = read_config(run, modules)
    return make_env(config["env"], config["algorithm"]["env_config"])
