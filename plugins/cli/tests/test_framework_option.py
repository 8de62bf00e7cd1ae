"""The option `--framework`: its help lists the frameworks that are installed."""

from __future__ import annotations

import pytest
import typer
from typer.testing import CliRunner

from rlcatalog import FrameworkSpec
from rlcatalog.catalog import Catalog
from rlcatalog_cli import FrameworkName, options
from rlcatalog_cli.options import Command
from rlcatalog_testing import PluginEntryPoint, isolated_catalog, plugin_of


def framework_plugin(name, module):
    """Return a plugin with a framework whose library is a module."""
    targets = {"backend": "acme:Backend", "ops": "acme:OPS"}
    spec = FrameworkSpec(name, targets, "a framework", module=module)
    return PluginEntryPoint(plugin_of(rlcatalog_frameworks=[spec]), name)


def help_with(catalog: Catalog, monkeypatch) -> str:
    """Return the help of a command that takes a framework, where a catalog is the default."""
    monkeypatch.setattr(options, "default_catalog", lambda: catalog)
    app = typer.Typer()

    @app.command(cls=Command)
    def build(framework: FrameworkName = None) -> None:
        """Build something."""

    return CliRunner().invoke(app, ["--help"], env={"COLUMNS": "120"}).output


def test_help_lists_frameworks_of_other_packages(monkeypatch):
    catalog = isolated_catalog("rlcatalog-torch", framework_plugin("acme", module="json"))
    assert "An installed framework: torch, acme." in help_with(catalog, monkeypatch)


def test_help_leaves_out_a_framework_without_its_library(monkeypatch):
    missing = framework_plugin("acme", module="no_such_library")
    catalog = isolated_catalog("rlcatalog-torch", missing)
    assert "An installed framework: torch." in help_with(catalog, monkeypatch)


def test_help_says_if_no_framework_is_installed(monkeypatch):
    assert "An installed framework: none." in help_with(isolated_catalog(), monkeypatch)


@pytest.mark.parametrize("command", ["explain", "summary", "train"])
def test_commands_that_take_a_framework_list_it(command, capsys):
    from rlcatalog_cli import main

    with pytest.raises(SystemExit):
        main([command, "--help"])

    printed = " ".join(capsys.readouterr().out.replace("│", " ").split())
    assert "--framework" in printed
    assert "{frameworks}" not in printed
