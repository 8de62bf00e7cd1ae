"""The command `export`: a saved policy, or a run's, as one file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from rlcatalog.catalog import default_catalog, make_env
from rlcatalog_cli import Modules, redirect_stdout
from rlcatalog_policy import load, read_manifest
from rlcatalog_runs.folders import POLICY, import_modules, policy_of, read_config


def export(
    run: Annotated[Path, typer.Argument(metavar="PATH", help="The folder of a run, or of a saved policy.")],
    format: Annotated[
        str | None,
        typer.Option("--format", metavar="NAME", help="The format, such as onnx; that of --out when missing."),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", metavar="PATH", help="The file to write; a new policy.* in PATH if missing."),
    ] = None,
    modules: Modules = None,
) -> None:
    """Write a trained policy as one file that acts without it."""
    with redirect_stdout():
        catalog = default_catalog()
        if out is None:
            format = format or "onnx"
            suffix = catalog.registry.get("exporter", format).declaration.suffix  # type: ignore[attr-defined]
            out = run / f"{POLICY}{suffix or f'-{format}'}"
        import_modules(modules or [])
        saved = policy_of(run)
        policy = load(saved, catalog=catalog, **({} if saved == run else _spaces(run, modules or [])))
        interface = policy.export(out, format)
    print(f"{out}: inputs {', '.join(port.name for port in interface.inputs)}; outputs"
          f" {', '.join(port.name for port in interface.outputs)}")  # fmt: skip


def _spaces(run: Path, modules: list[str]) -> dict[str, Any]:
    """Return the environment's spaces that a run's policy could not write down, by name."""
    manifest = read_manifest(run / POLICY)
    missing = [name for name in ("observation_space", "action_space") if getattr(manifest, name) is None]
    if not missing:
        return {}
    told = read_config(run, modules)
    env = make_env(told["env"], **told["algorithm"]["env_config"])
    try:
        wrapped = default_catalog().wrap_env(env, manifest.config)
        return {name: getattr(wrapped, name) for name in missing}
    finally:
        env.close()
