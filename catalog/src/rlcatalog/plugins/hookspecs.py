"""The hooks of rlcatalog. Hooks only return declarations; they do not make decisions."""

from __future__ import annotations

import pluggy

from rlcatalog.plugins.declarations import (
    ActionCodecSpec,
    ActionDistSpec,
    CheckSpec,
    CommandSpec,
    EngineSpec,
    EnvAdapterSpec,
    EnvWrapperSpec,
    ExporterSpec,
    FilterSpec,
    FrameworkSpec,
    ModelSpec,
    PreprocessorSpec,
)

#: The name by which pluggy tells our hooks from those of other projects.
PROJECT = "rlcatalog"

hookspec = pluggy.HookspecMarker(PROJECT)
hookimpl = pluggy.HookimplMarker(PROJECT)


@hookspec(historic=True)
def rlcatalog_preprocessors() -> list[PreprocessorSpec]:  # type: ignore[empty-body]
    """Return the preprocessors that this plugin provides: one codec per kind of space."""


@hookspec(historic=True)
def rlcatalog_filters() -> list[FilterSpec]:  # type: ignore[empty-body]
    """Return the observation filters that this plugin provides, chosen by name with
    `observation_filter`.
    """


@hookspec(historic=True)
def rlcatalog_env_wrappers() -> list[EnvWrapperSpec]:  # type: ignore[empty-body]
    """Return the environment wrappers that this plugin provides, applied by
    `rlcatalog.wrap_env`.
    """


@hookspec(historic=True)
def rlcatalog_env_adapters() -> list[EnvAdapterSpec]:  # type: ignore[empty-body]
    """Return the adapters that this plugin provides, each for environments with another interface
    than that of Gymnasium.
    """


@hookspec(historic=True)
def rlcatalog_models() -> list[ModelSpec]:  # type: ignore[empty-body]
    """Return the models that this plugin provides: trunks, memories and heads."""


@hookspec(historic=True)
def rlcatalog_action_dists() -> list[ActionDistSpec]:  # type: ignore[empty-body]
    """Return the action distributions that this plugin provides."""


@hookspec(historic=True)
def rlcatalog_action_codecs() -> list[ActionCodecSpec]:  # type: ignore[empty-body]
    """Return the action codecs that this plugin provides: one for each kind of action space that it
    defines.
    """


@hookspec(historic=True)
def rlcatalog_frameworks() -> list[FrameworkSpec]:  # type: ignore[empty-body]
    """Return the frameworks that this plugin provides, or its additions to another package's
    framework.
    """


@hookspec(historic=True)
def rlcatalog_exporters() -> list[ExporterSpec]:  # type: ignore[empty-body]
    """Return the export formats that this plugin provides, each with its writer and its runner."""


@hookspec(historic=True)
def rlcatalog_commands() -> list[CommandSpec]:  # type: ignore[empty-body]
    """Return the sub-commands that this plugin adds to the command line."""


@hookspec(historic=True)
def rlcatalog_engines() -> list[EngineSpec]:  # type: ignore[empty-body]
    """Return the engines that this plugin provides, for `rlcatalog train --engine`."""


@hookspec(historic=True)
def rlcatalog_checks() -> list[CheckSpec]:  # type: ignore[empty-body]
    """Return the checks that this plugin adds to the conformance kit, such as one update with its
    engine.
    """
