"""Loader for saved policies, which checks the files and finds the chosen parts by name.

Memory use is bounded by the lengths of the files or, for small files, by fixed limits:

- `policy.json` is read up to a limit.
- The weights' header must match the length of their file.
- Before a model is built, the header must contain the weights that the parts declare for the
  config (`Stage.weights`).
- Before an array is read, the model's names, shapes and dtypes must match the header's.

Memory for a part that does not declare its weights, such as a custom class, is not bounded.
Errors in it, including out-of-memory errors, become a `SavedPolicyError`.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np

from rlcatalog.catalog import Catalog, default_catalog
from rlcatalog.choice import MODEL_SLOTS, Pins, Resolution
from rlcatalog.errors import (
    CatalogError,
    ConfigError,
    MissingFrameworkError,
    MissingPluginError,
    ModelContractError,
    SavedPolicyError,
    SavedPolicyWarning,
    UnknownNameError,
)
from rlcatalog.internals import blame_part
from rlcatalog.models import check_weights, set_weights_of, weights_of
from rlcatalog.reporting import warn_caller
from rlcatalog_policy.files import MOST_JSON, RegularFile
from rlcatalog_policy.manifest import FILTER, MANIFEST, WEIGHTS, LeftOut, Manifest, decode
from rlcatalog_policy.policy import Policy
from rlcatalog_policy.space_json import (
    MOST_ENTRIES,
    of_known_kind,
    same_space,
    space_from_json,
    space_to_json,
)
from rlcatalog_policy.tensors import Array, TensorFile, describe_other_dtypes

#: Up to this number of weights, a model is always built, so that an error can name the weights that
#: differ.
_SMALL = 1 << 22

#: Maximum number of attempts to read while a writer interferes; one retry is enough for one save.
_ATTEMPTS = 10


def load(
    directory: str | os.PathLike[str],
    *,
    framework: str | None = None,
    model: Any = None,
    observation_space: gymnasium.Space[Any] | None = None,
    action_space: gymnasium.Space[Any] | None = None,
    catalog: Catalog | None = None,
) -> Policy:
    """Restore a policy that `Policy.save` wrote.

    Args:
        directory: The folder of the saved policy.
        framework: `"torch"` or `"tf"`, even if the policy was saved with the other one: weights and
            statistics are the same in both, and outputs agree to 1e-5. If None, the framework that
            the policy was saved with.
        model: The model's code, if it is neither registered nor from a package: the argument of
            `build(model=...)`. It can also be a dictionary with those arguments in
            `custom_model_config` that contained code.
        observation_space: Required if the space is of a plugin's kind that could not be saved, or
            if the space has more entries than `rlcatalog_policy.space_json.MOST_ENTRIES`. Otherwise
            it must equal the saved space.
        action_space: The same for actions.
        catalog: The catalog in which to look up parts. If None, the process's default catalog.

    Raises:
        SavedPolicyError: The files are truncated or changed, were not written by rlcatalog, or
            describe more data than they contain.
        MissingPluginError: A part's plugin is missing; the message names it.
        NotServedError: A part, such as a custom model, has no code for `framework`.

    Example:
        >>> rlcatalog.build(env="CartPole-v1").save("cartpole")
        >>> policy = rlcatalog.load("cartpole")  # pass framework="tf" to load it in TensorFlow
        >>> policy.framework
        'torch'
    """
    source, spaces = (
        Path(directory),
        {"observation_space": observation_space, "action_space": action_space},
    )
    return load_for(f"rlcatalog.load({str(source)!r}, ", source, spaces, framework, model, catalog)


def load_for(
    call: str,
    source: Path,
    spaces: Mapping[str, Any],
    framework: str | None,
    model: Any,
    catalog: Catalog | None,
) -> Policy:
    """Restore a policy for a function whose call starts with `call` in error
    messages; see `load`.
    """
    catalog = default_catalog() if catalog is None else catalog
    with _opened(source) as (manifest, files):
        tensors = {role: TensorFile(file) for role, file in files.items()}
        obs_space, action_space = (
            _space(manifest, name, source, spaces.get(name))
            for name in ("observation_space", "action_space")
        )
        with _restoring(source, manifest, call):
            config = _with_code(manifest, model)
            brings_model = model is not None and not isinstance(model, Mapping)
            parts = _without_own(manifest.parts) if brings_model else manifest.parts
            pins = Pins(parts, manifest.preprocessors, manifest.action_dists, manifest.versions)
            pins.check(catalog.registry)  # a missing plugin is named before its config keys are
            wanted = manifest.framework if framework is None else framework
            resolution = catalog.resolve(obs_space, action_space, config, wanted, pins=pins)
            if manifest.format_version == 2 and FILTER in tensors:
                digest = manifest.files[tensors[FILTER].file.path.name]
                with _damage(tensors[FILTER]):
                    filtered = tensors[FILTER].read(digest).get("filtered")
                config = config | _filter_paths(resolution, filtered)
                resolution = catalog.resolve(obs_space, action_space, config, wanted, pins=pins)
            _check_announced(resolution, tensors[WEIGHTS])
            policy = Policy(catalog, resolution, obs_space, action_space)
        arrays = {}
        for role, tensor_file in tensors.items():
            with _damage(tensor_file):
                if role == WEIGHTS:
                    _check(policy, manifest, tensor_file)
                arrays[role] = tensor_file.read(manifest.files[tensor_file.file.path.name])
                _warn_of_non_finite(tensor_file, arrays[role])
        with _damage(tensors[WEIGHTS]):
            set_weights_of(policy.model, arrays[WEIGHTS])
        if policy.filter is not None:
            assert policy.filter.part is not None
            with _damage(tensors[FILTER]), blame_part(policy.filter.part, "set_state"):
                policy.filter.set_state(arrays[FILTER])
    return policy


def _filter_paths(resolution: Resolution, filtered: Array | None) -> dict[str, list[str]]:
    """Return config keys that name the leaves which a filter's statistics are about.

    Earlier versions filtered images as well, without being asked.

    Args:
        resolution: A lookup with today's default.
        filtered: Which encoded values are filtered, `[size]`, as `MeanStdFilter` saves it; None for
            other filters.
    """
    preprocessor = resolution.preprocessor
    if filtered is None or filtered.shape != (preprocessor.size,):
        return {}
    leaves = preprocessor.leaves()
    return {
        "filter_include": [leaf.path for leaf in leaves if filtered[leaf.start : leaf.stop].any()]
    }


def read_manifest(source: Path) -> Manifest:
    """Read the manifest of a saved policy.

    Raises:
        SavedPolicyError: The folder contains no saved policy, or a damaged one.
    """
    try:
        with closing(RegularFile(source / MANIFEST, MOST_JSON)) as file:
            return decode(file)
    except FileNotFoundError:
        inside = source / "policy"  # the folder that a run saves it to
        hint = (
            f" Its folder {inside.name!r} is one: {inside}."
            if (inside / MANIFEST).is_file()
            else ""
        )
        raise SavedPolicyError(
            f"{source}: not a saved policy; it has no {MANIFEST}.{hint}"
        ) from None


@contextmanager
def _opened(source: Path) -> Iterator[tuple[Manifest, dict[str, RegularFile]]]:
    """Open all files of one save; if a writer removes one in the meantime, start again."""
    former = None
    for _ in range(_ATTEMPTS):
        manifest = read_manifest(source)
        names = {
            role: name for role in (WEIGHTS, FILTER) if (name := manifest.file(role)) is not None
        }
        with ExitStack() as stack:
            try:
                files = {
                    role: stack.enter_context(closing(RegularFile(source / name)))
                    for role, name in names.items()
                }
            except FileNotFoundError as error:
                if manifest == former:  # no process is writing, so the file is missing
                    raise SavedPolicyError(f"{error.filename}: cannot be read: {error}") from error
                former = manifest
                continue
            yield manifest, files
            return
    raise SavedPolicyError(
        f"{source}: was written {_ATTEMPTS} times while it was being read. Try again later."
    )


@contextmanager
def _restoring(source: Path, manifest: Manifest, call: str) -> Iterator[None]:
    """Add the folder and the saved versions to every error raised while parts are looked up
    and built.
    """
    versions = ", ".join(f"{name} {version}" for name, version in manifest.versions.items())
    saved = f"(It was saved for framework={manifest.framework!r}, with {versions}.)"
    named = [
        *manifest.parts.values(),
        *manifest.preprocessors.values(),
        *manifest.action_dists.values(),
    ]
    own = ", ".join(dict.fromkeys(repr(name) for name in named if "/" not in name))
    models = [manifest.parts[slot] for slot in _own_slots(manifest.parts)]
    code = "".join(f" Pass its code: {call}model={name})." for name in models)
    try:
        yield
    except CatalogError as error:
        if own and isinstance(error, UnknownNameError):
            first = "If it was registered, import" if code else "Import"
            saved = (
                f"{own} is not from a package.{code} {first} the module that registers it, and"
                f" load again. {saved}"
            )
        explanation = f"{error} {saved}"
        if isinstance(error, MissingPluginError | MissingFrameworkError):
            explanation = f"{saved} {error}"  # its line to paste comes last
        error.args = (f"{source}: this policy cannot be restored here. {explanation}",)
        raise
    # Values that a part does not check, such as a size that exceeds the memory.
    except Exception as error:
        raise SavedPolicyError(
            f"{source}: this policy cannot be restored here. {type(error).__name__}: {error}"
            f" {saved}"
        ) from error


def _with_code(manifest: Manifest, model: Any) -> dict[str, Any]:
    """Return the saved config, with the code itself in place of the saved names.

    Raises:
        ConfigError: `model` lacks code that `custom_model_config` contained, or has arguments that
            contained no code.
    """
    config, is_options = manifest.config, isinstance(model, Mapping)
    options = config.get("custom_model_config", {})
    code = {name: value for name, value in options.items() if _holds_code(value)}
    brought = model if is_options else model.keywords if isinstance(model, partial) else {}
    if missing := [name for name in code if name not in brought]:
        given = ", ".join(f"{name}={value!r}" for name, value in code.items())
        call = (
            f"functools.partial({config.get('custom_model')}, {given})"
            if _own_slots(manifest.parts)
            else code
        )
        raise ConfigError(
            f"custom_model_config: {', '.join(map(repr, missing))} contained code when the policy"
            f" was saved, but code is not saved. Pass it: model={call}."
        )
    if is_options and (others := [name for name in model if name not in code]):
        held = ", ".join(map(repr, code)) or "none"
        raise ConfigError(
            f"model: {', '.join(map(repr, others))} had no code when the policy was saved; {held}"
            " did."
        )
    own = {} if model is None or is_options else {"custom_model": model}
    filled = (
        {"custom_model_config": options | {name: brought[name] for name in code}} if code else {}
    )
    return config | own | filled


def _holds_code(value: Any) -> bool:
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return isinstance(value, LeftOut) or any(map(_holds_code, parts))


def _own_slots(parts: Mapping[str, str]) -> list[str]:
    """Return the model's slots that the program's own parts fill; their names are not
    addresses.
    """
    return [slot for slot in MODEL_SLOTS if "/" not in parts.get(slot, "/")]


def _without_own(parts: Mapping[str, str]) -> dict[str, str]:
    """Return the saved parts without the one that `model=` replaces.

    Raises:
        ConfigError: All parts of the model come from packages.
    """
    if not (own := _own_slots(parts)):
        named = ", ".join(parts[slot] for slot in MODEL_SLOTS if slot in parts)
        raise ConfigError(
            f"model= is for a model of the program, but this model comes from packages: {named}."
            " Remove the argument."
        )
    return {slot: name for slot, name in parts.items() if slot not in own}


@contextmanager
def _damage(tensors: TensorFile) -> Iterator[None]:
    """Add the file's name to every error caused by its arrays."""
    try:
        yield
    except Exception as error:
        if isinstance(error, SavedPolicyError) and str(tensors.file.path) in str(error):
            raise
        kind = (
            ""
            if isinstance(error, SavedPolicyError | ModelContractError)
            else f"{type(error).__name__}: "
        )
        raise SavedPolicyError(f"{tensors.file.path}: {kind}{error}") from error


def _check_announced(resolution: Resolution, weights: TensorFile) -> None:
    """Raise an error if the config needs more weights than the file contains.

    Raises:
        SavedPolicyError: The file belongs to a smaller model, or encoded observations have too many
            values.
    """
    if (encoded := math.prod(resolution.preprocessor.shape)) > max(MOST_ENTRIES, weights.elements):
        raise SavedPolicyError(
            f"its observations are encoded into {encoded} values; the limit is {MOST_ENTRIES}."
        )
    announced = [stage.weights for stage in resolution.shapes if stage.weights]
    if sum(announced) > max(_SMALL, weights.elements) or len(announced) > max(
        1000, len(weights.tensors)
    ):
        raise SavedPolicyError(
            f"{weights.file.path} contains {weights.elements} weights in {len(weights.tensors)}"
            f" arrays, but the config describes a model of {sum(announced)} or more in"
            f" {len(announced)} layers."
        )


def _check(policy: Policy, manifest: Manifest, tensors: TensorFile) -> None:
    """Raise an error unless the file has the model's names, shapes and dtypes."""
    have = weights_of(policy.model)
    # Strides of zero, to create shapes without memory, because headers are not trusted.
    shapes = {
        name: np.broadcast_to(np.zeros((), info.dtype), info.shape)
        for name, info in tensors.tensors.items()
    }
    try:
        check_weights(policy.model, {name: array.shape for name, array in have.items()}, shapes)
    except ModelContractError as error:
        if policy.framework != manifest.framework:
            error.args = (
                f"{error} They were saved for framework={manifest.framework!r}; to load them for"
                f" framework={policy.framework!r}, the model must use the same weight names in"
                " both.",
            )
        raise
    if wrong := describe_other_dtypes(
        {name: info.dtype for name, info in tensors.tensors.items()}, have
    ):
        raise SavedPolicyError(f"weights with a different dtype than the model's: {wrong}.")


def _warn_of_non_finite(tensors: TensorFile, arrays: Mapping[str, Array]) -> None:
    names = sorted(
        name
        for name, array in arrays.items()
        if array.dtype.kind == "f" and not np.isfinite(array).all()
    )
    if names:
        warn_caller(
            f"{tensors.file.path}: some values are not finite, in {', '.join(names)}. Acting with"
            " this policy fails, or its actions are meaningless.",
            SavedPolicyWarning,
        )


def _space(manifest: Manifest, key: str, source: Path, given: Any) -> Any:
    written = getattr(manifest, key)
    try:
        space = space_from_json(written)
    except Exception as error:  # Gymnasium's spaces may raise anything
        if given is None:
            raise SavedPolicyError(
                f"{source / MANIFEST}: its {key} cannot be read: {error}"
            ) from error
        space = written
    # A space of another class may be written as a standard one, with which it cannot be compared.
    known = None if given is None else space_to_json(given, of_known_kind)
    if known is not None and written is not None and not same_space(known, written):
        raise SavedPolicyError(f"{source / MANIFEST}: its {key} is {space}, not {given}.")
    return space if given is None else given
