"""The command `export`: export a saved policy or a run's policy to a single file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from rlcatalog.catalog import default_catalog, make_env
from rlcatalog_cli import Modules, import_modules, redirect_stdout
from rlcatalog_policy import load, read_manifest
from rlcatalog_runs.folders import POLICY, env_of, policy_of, unwritten_spaces
from rlcatalog_runs.import_hints import hint_at_imports


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
    with redirect_stdout(), hint_at_imports(run, modules or []):
        catalog = default_catalog()
        if out is None:
            format = format or "onnx"
            exporter: Any = catalog.registry.get("exporter", format).declaration
            suffix = exporter.suffix
            if not suffix:  # the format is a folder of files
                suffix = f"-{format}"
            out = run / f"{POLICY}{suffix}"
        import_modules(modules or [])
        policy_folder = policy_of(run)
        spaces: dict[str, Any] = {}
        is_run = policy_folder != run  # a run's folder contains the folder of its policy
        if is_run:

            def make() -> Any:
                env_id, env_config = env_of(run, modules)
                return make_env(env_id, env_config)

            spaces = unwritten_spaces(read_manifest(policy_folder), make)
        policy = load(policy_folder, catalog=catalog, **spaces)
        interface = policy.export(out, format)
    inputs = ", ".join(port.name for port in interface.inputs)
    outputs = ", ".join(port.name for port in interface.outputs)
    print(f"{out}: inputs {inputs}")
    print(f"  outputs {outputs}")
