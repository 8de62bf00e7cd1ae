"""The command `export`: a saved policy, or a run's, as one file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rlcatalog.catalog import default_catalog
from rlcatalog.cli.isolation import aside
from rlcatalog.cli.runs import POLICY
from rlcatalog.export import exporter_for
from rlcatalog.policy import load


def export(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="The folder of a run, or of a saved policy.")],
    format: Annotated[
        str | None, typer.Option("--format", help="The format, such as onnx; that of OUT's suffix when missing.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", help="The file to write; policy.SUFFIX in RUN when missing.")
    ] = None,
) -> None:
    """Write a trained policy as one file that acts without it."""
    with aside():
        catalog = default_catalog()
        if out is None:
            format = format or "onnx"
            suffix = exporter_for(catalog, run, format).declaration.suffix  # type: ignore[attr-defined]
            out = run / f"{POLICY}{suffix or f'-{format}'}"
        saved = run / POLICY
        policy = load(catalog, saved if saved.is_dir() else run)
        interface = policy.export(out, format)
    print(f"{out}: inputs {', '.join(port.name for port in interface.inputs)}; outputs"
          f" {', '.join(port.name for port in interface.outputs)}")  # fmt: skip
