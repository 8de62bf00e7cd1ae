"""The hooks of rlcatalog, all on this page. Each returns declarations; none decides anything."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from rlcatalog.plugins.declarations import (
    ActionDistSpec,
    CheckSpec,
    CommandSpec,
    EngineSpec,
    EnvWrapperSpec,
    ExporterSpec,
    FilterSpec,
    ModelSpec,
    PreprocessorSpec,
)
from rlcatalog.plugins.process_wide import ActionCodecSpec, FrameworkSpec

Hook = TypeVar("Hook", bound=Callable[..., Any])


def hookimpl(hook: Hook) -> Hook:
    """Mark a function of a plugin as a hook: it takes no arguments and returns a list of declarations."""
    hook.rlcatalog_impl = True  # type: ignore[attr-defined]
    return hook


def rlcatalog_preprocessors() -> list[PreprocessorSpec]:  # type: ignore[empty-body]
    """Return the preprocessors this plugin provides: one codec per kind of space."""


def rlcatalog_filters() -> list[FilterSpec]:  # type: ignore[empty-body]
    """Return the observation filters this plugin provides, chosen by name with `observation_filter`."""


def rlcatalog_env_wrappers() -> list[EnvWrapperSpec]:  # type: ignore[empty-body]
    """Return the environment wrappers this plugin provides, applied by `rlcatalog.wrap_env`."""


def rlcatalog_models() -> list[ModelSpec]:  # type: ignore[empty-body]
    """Return the models this plugin provides: trunks, memories and heads."""


def rlcatalog_action_dists() -> list[ActionDistSpec]:  # type: ignore[empty-body]
    """Return the action distributions this plugin provides."""


def rlcatalog_action_codecs() -> list[ActionCodecSpec]:  # type: ignore[empty-body]
    """Return the action codecs this plugin provides: one for each kind of action space of its own."""


def rlcatalog_frameworks() -> list[FrameworkSpec]:  # type: ignore[empty-body]
    """Return the frameworks this plugin provides, beside the kernel's own."""


def rlcatalog_exporters() -> list[ExporterSpec]:  # type: ignore[empty-body]
    """Return the formats this plugin exports policies in, each with what writes and what runs such files."""


def rlcatalog_commands() -> list[CommandSpec]:  # type: ignore[empty-body]
    """Return the sub-commands this plugin adds to the command line."""


def rlcatalog_engines() -> list[EngineSpec]:  # type: ignore[empty-body]
    """Return the engines this plugin provides: what `rlcatalog train --engine` names."""


def rlcatalog_checks() -> list[CheckSpec]:  # type: ignore[empty-body]
    """Return the checks this plugin adds to the conformance kit, such as one update under its engine."""
