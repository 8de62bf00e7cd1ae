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
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np

from rlcatalog.catalog import Catalog, default_catalog
from rlcatalog.choice import PartAddresses, Resolution
from rlcatalog.errors import (
    CatalogError,
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
from rlcatalog_policy.code_arguments import Code, CodeArgument, code_arguments
from rlcatalog_policy.files import MOST_JSON, RegularFile
from rlcatalog_policy.manifest import (
    FILTER,
    MANIFEST,
    WEIGHTS,
    Manifest,
    decode,
    is_address,
)
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
_WEIGHTS_OF_SMALL_MODEL = 1 << 22
#: The same for the number of layers.
_LAYERS_OF_SMALL_MODEL = 1000

#: Maximum number of attempts to read while a writer interferes; one retry is enough for one save.
_ATTEMPTS = 10


def load(
    directory: str | os.PathLike[str],
    *,
    framework: str | None = None,
    model: Code = None,
    memory: Code = None,
    critic: Code = None,
    observation_space: gymnasium.Space[Any] | None = None,
    action_space: gymnasium.Space[Any] | None = None,
    catalog: Catalog | None = None,
) -> Policy:
    """Restore a policy that `Policy.save` wrote.

    Args:
        directory: The folder of the saved policy.
        framework: `"torch"` or `"tf"`. This can be another framework than the one that the policy
            was saved in: it has the same weights and statistics, and its outputs agree to 1e-5. If
            None, the framework that the policy was saved in.
        model: The model's code, because a saved policy contains none: what you passed to
            `build(model=...)`. You need not pass a model that is registered or from a package. If
            the config contained code, pass a dictionary of it: arguments of `custom_model_config`
            by name, or networks of `input_nets` by path.
        memory: The memory's code, in the same way: what you passed to `build(memory=...)`, or a
            dictionary of the code in `memory_config`.
        critic: The code of a critic of its own: its `custom_model`, or a dictionary, whose entry
            `"memory"` is the code of the critic's memory.
        observation_space: The observation space, if it could not be saved, because it is of a
            plugin's class or has more entries than `rlcatalog_policy.space_json.MOST_ENTRIES`. If
            it was saved, you need not pass it; if you do, it must equal the saved space.
        action_space: The action space, in the same case.
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
    source = Path(directory)
    spaces = {"observation_space": observation_space, "action_space": action_space}
    start_of_call = f"rlcatalog.load({str(source)!r}, "
    return load_for_call(start_of_call, source, spaces, framework, model, catalog, memory, critic)


def load_for_call(
    start_of_call: str,
    source: Path,
    spaces: Mapping[str, Any],
    framework: str | None,
    model: Code,
    catalog: Catalog | None,
    memory: Code = None,
    critic: Code = None,
) -> Policy:
    """Restore a policy for a call of the user: of `load`, or of PPO for a run's folder.

    Args:
        start_of_call: How the user's call begins, for lines to paste in error messages.
        source: The folder of the saved policy.
        spaces: `"observation_space"` and `"action_space"` → the argument of `load`.
        framework: See `load`.
        model: See `load`.
        catalog: See `load`.
        memory: See `load`.
        critic: See `load`.
    """
    if catalog is None:
        catalog = default_catalog()
    with _open_save(source) as (manifest, files):
        tensor_files = {role: TensorFile(file) for role, file in files.items()}
        obs_space = _choose_space(
            manifest.observation_space, "observation_space", source, spaces.get("observation_space")
        )
        action_space = _choose_space(
            manifest.action_space, "action_space", source, spaces.get("action_space")
        )
        with _name_save_in_errors(source, manifest, start_of_call):
            arguments = code_arguments(manifest, model, memory, critic)
            resolution = _look_up(
                catalog, manifest, tensor_files, obs_space, action_space, framework, arguments
            )
            _check_expected_weights(resolution, tensor_files[WEIGHTS])
            policy = Policy(catalog, resolution, obs_space, action_space)
        _restore_arrays(policy, manifest, tensor_files)
    return policy


def _look_up(
    catalog: Catalog,
    manifest: Manifest,
    tensor_files: Mapping[str, TensorFile],
    obs_space: gymnasium.Space[Any],
    action_space: gymnasium.Space[Any],
    framework: str | None,
    arguments: Sequence[CodeArgument],
) -> Resolution:
    """Look up the parts that a manifest names, in the framework to load for."""
    if framework is None:
        framework = manifest.framework
    config = dict(manifest.config)
    parts = dict(manifest.parts)
    for argument in arguments:
        keys = argument.keys_with_code()
        if argument.name == "critic":
            config["critic"] = config["critic"] | keys
        else:
            config |= keys
        for slot in argument.saved_slots():
            del parts[slot]
    pins = PartAddresses(parts, manifest.preprocessors, manifest.action_dists, manifest.versions)
    pins.check(catalog.registry)  # a missing plugin is named before its config keys are
    resolution = catalog.resolve(obs_space, action_space, config, framework, pins=pins)
    if manifest.format_version == 2 and FILTER in tensor_files:
        # A config of this version does not name what is filtered, but the filter's statistics do:
        # by encoded value, which only a lookup maps to the leaves of the space.
        with _name_file_in_errors(tensor_files[FILTER]):
            statistics = _read_arrays(manifest, tensor_files[FILTER])
        config = config | _keys_of_filtered_leaves(resolution, statistics.get("filtered"))
        resolution = catalog.resolve(obs_space, action_space, config, framework, pins=pins)
    return resolution


def _restore_arrays(
    policy: Policy, manifest: Manifest, tensor_files: Mapping[str, TensorFile]
) -> None:
    """Read the weights and the filter's statistics, and then set them."""
    arrays = {}
    for role, tensor_file in tensor_files.items():
        with _name_file_in_errors(tensor_file):
            if role == WEIGHTS:
                _check_weights(policy, manifest, tensor_file)
            arrays[role] = _read_arrays(manifest, tensor_file)
            _warn_of_non_finite(tensor_file, arrays[role])
    with _name_file_in_errors(tensor_files[WEIGHTS]):
        set_weights_of(policy.model, arrays[WEIGHTS])
    if policy.filter is not None:
        filter_part = policy.filter.part
        assert filter_part is not None  # only a filter made by hand has none
        with (
            _name_file_in_errors(tensor_files[FILTER]),
            blame_part(filter_part, "set_state"),
        ):
            policy.filter.set_state(arrays[FILTER])


def _read_arrays(manifest: Manifest, tensor_file: TensorFile) -> dict[str, Array]:
    """Return a file's arrays; raise an error if its content is not what the manifest says."""
    digest = manifest.files[tensor_file.file.path.name]
    return tensor_file.read(digest)


def _keys_of_filtered_leaves(
    resolution: Resolution, filtered: Array | None
) -> dict[str, list[str]]:
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
    paths = []
    for leaf in preprocessor.leaves():
        if filtered[leaf.start : leaf.stop].any():
            paths.append(leaf.path)
    return {"filter_include": paths}


def read_manifest(source: Path) -> Manifest:
    """Read the manifest of a saved policy.

    Raises:
        SavedPolicyError: The folder contains no saved policy, or a damaged one.
    """
    try:
        with closing(RegularFile(source / MANIFEST, MOST_JSON)) as file:
            return decode(file)
    except FileNotFoundError:
        hint = " Pass a folder that policy.save or `rlcatalog train` has written."
        folder_of_run = source / "policy"  # a run saves its policy there
        if (folder_of_run / MANIFEST).is_file():
            hint = f" Its folder {folder_of_run.name!r} is one: {folder_of_run}."
        raise SavedPolicyError(
            f"{source}: not a saved policy; it has no {MANIFEST}.{hint}"
        ) from None


@contextmanager
def _open_save(source: Path) -> Iterator[tuple[Manifest, dict[str, RegularFile]]]:
    """Open all files of one save; if a writer removes one in the meantime, start again.

    It yields the manifest and the open files by role, `WEIGHTS` and `FILTER`.
    """
    manifest_before = None
    for _ in range(_ATTEMPTS):
        manifest = read_manifest(source)
        with ExitStack() as stack:
            files = {}
            try:
                for role in (WEIGHTS, FILTER):
                    name = manifest.file(role)
                    if name is not None:
                        file = RegularFile(source / name)
                        files[role] = stack.enter_context(closing(file))
            except FileNotFoundError as error:
                if manifest == manifest_before:
                    # No process is writing, so the file is missing.
                    raise SavedPolicyError(f"{error.filename}: cannot be read: {error}") from error
                manifest_before = manifest
                continue
            yield manifest, files
            return
    raise SavedPolicyError(
        f"{source}: was written {_ATTEMPTS} times while it was being read. Try again later."
    )


@contextmanager
def _name_save_in_errors(source: Path, manifest: Manifest, start_of_call: str) -> Iterator[None]:
    """Add the folder and the saved versions to every error raised while parts are looked up
    and built.
    """
    try:
        yield
    except CatalogError as error:
        saved = _describe_save(manifest)
        if isinstance(error, UnknownNameError):
            saved = _advice_for_own_parts(manifest, start_of_call) + saved
        if isinstance(error, MissingPluginError | MissingFrameworkError):
            explanation = f"{saved} {error}"  # the error's line to paste comes last
        else:
            explanation = f"{error} {saved}"
        error.args = (f"{source}: this policy cannot be restored here. {explanation}",)
        raise
    # Values that a part does not check, such as a size that exceeds the memory.
    except Exception as error:
        raise SavedPolicyError(
            f"{source}: this policy cannot be restored here. {type(error).__name__}: {error}"
            f" {_describe_save(manifest)}"
        ) from error


def _describe_save(manifest: Manifest) -> str:
    versions = ", ".join(f"{name} {version}" for name, version in manifest.versions.items())
    return f"(It was saved for framework={manifest.framework!r}, with {versions}.)"


def _advice_for_own_parts(manifest: Manifest, start_of_call: str) -> str:
    """Return what to do about names of parts that the program defined; empty if there are none."""
    all_names = [
        *manifest.parts.values(),
        *manifest.preprocessors.values(),
        *manifest.action_dists.values(),
    ]
    own_names = dict.fromkeys(repr(name) for name in all_names if not is_address(name))
    if not own_names:
        return ""
    advice = f"{', '.join(own_names)} is not from a package."
    what_to_do = "Import"
    code = []
    for argument in code_arguments(manifest, model=None, memory=None, critic=None):
        for slot in argument.own_slots:
            code.append(f"{argument.name}={argument.parts[slot]}")
    if code:
        advice += f" Pass its code: {start_of_call}{', '.join(code)})."
        what_to_do = "If it was registered, import"
    return f"{advice} {what_to_do} the module that registers it, and load again. "


@contextmanager
def _name_file_in_errors(tensor_file: TensorFile) -> Iterator[None]:
    """Add the file's name to every error caused by its arrays."""
    path = str(tensor_file.file.path)
    try:
        yield
    except (SavedPolicyError, ModelContractError) as error:
        if isinstance(error, SavedPolicyError) and path in str(error):
            raise  # it names the file already
        raise SavedPolicyError(f"{path}: {error}") from error
    except Exception as error:
        raise SavedPolicyError(f"{path}: {type(error).__name__}: {error}") from error


def _check_expected_weights(resolution: Resolution, weights_file: TensorFile) -> None:
    """Raise an error if the config needs more weights than the file contains.

    Raises:
        SavedPolicyError: The file belongs to a smaller model, or encoded observations have too many
            values.
    """
    encoded_size = math.prod(resolution.preprocessor.shape)
    if encoded_size > max(MOST_ENTRIES, weights_file.elements):
        raise SavedPolicyError(
            f"its observations are encoded into {encoded_size} values; the limit is {MOST_ENTRIES}."
        )
    # A stage without weights, or one that does not announce them, has 0 or None.
    weights_by_layer = [stage.weights for stage in resolution.shapes if stage.weights]
    num_weights = sum(weights_by_layer)
    has_too_many_weights = num_weights > max(_WEIGHTS_OF_SMALL_MODEL, weights_file.elements)
    has_too_many_layers = len(weights_by_layer) > max(
        _LAYERS_OF_SMALL_MODEL, len(weights_file.tensors)
    )
    if has_too_many_weights or has_too_many_layers:
        raise SavedPolicyError(
            f"{weights_file.file.path} contains {weights_file.elements} weights in"
            f" {len(weights_file.tensors)} arrays, but the config describes a model of"
            f" {num_weights} or more in {len(weights_by_layer)} layers."
        )


def _check_weights(policy: Policy, manifest: Manifest, weights_file: TensorFile) -> None:
    """Raise an error unless the file has the model's names, shapes and dtypes."""
    model_weights = weights_of(policy.model)
    model_shapes = {name: array.shape for name, array in model_weights.items()}
    # `check_weights` takes arrays. Those of the file are not read yet, and its header is not
    # trusted, so these views of a single zero have the shapes without the memory.
    arrays_of_shapes = {
        name: np.broadcast_to(np.zeros((), info.dtype), info.shape)
        for name, info in weights_file.tensors.items()
    }
    try:
        check_weights(policy.model, model_shapes, arrays_of_shapes)
    except ModelContractError as error:
        if policy.framework != manifest.framework:
            error.args = (
                f"{error} They were saved for framework={manifest.framework!r}; to load them for"
                f" framework={policy.framework!r}, the model must use the same weight names in"
                " both.",
            )
        raise
    file_dtypes = {name: info.dtype for name, info in weights_file.tensors.items()}
    other_dtypes = describe_other_dtypes(file_dtypes, model_weights)
    if other_dtypes:
        raise SavedPolicyError(f"weights with a different dtype than the model's: {other_dtypes}.")


def _warn_of_non_finite(tensor_file: TensorFile, arrays: Mapping[str, Array]) -> None:
    names = []
    for name, array in arrays.items():
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            names.append(name)
    if names:
        warn_caller(
            f"{tensor_file.file.path}: some values are not finite, in {', '.join(sorted(names))}."
            " Acting with this policy fails, or its actions are meaningless.",
            SavedPolicyWarning,
        )


def _choose_space(
    saved_data: dict[str, Any] | None,
    name: str,
    source: Path,
    space_of_user: gymnasium.Space[Any] | None,
) -> gymnasium.Space[Any]:
    """Return the space that the user passed to `load`, or else the saved space.

    Args:
        saved_data: The saved space as plain data, or None if it could not be saved.
        name: `"observation_space"` or `"action_space"`.
        source: The folder of the saved policy.
        space_of_user: The argument of `load`, or None.

    Raises:
        SavedPolicyError: The saved space cannot be read, or is a different one.
    """
    saved_space: Any = saved_data  # shown in the last error below if it cannot be rebuilt
    try:
        saved_space = space_from_json(saved_data)
    except Exception as error:  # Gymnasium's spaces may raise anything
        if space_of_user is None:
            raise SavedPolicyError(
                f"{source / MANIFEST}: its {name} cannot be read: {error}"
            ) from error
    if space_of_user is None:
        return saved_space  # type: ignore[no-any-return]
    # Like saving, this writes a subclass of a known class as that class. What cannot be written, or
    # was not, cannot be compared.
    data_of_user = space_to_json(space_of_user, of_known_kind)
    if data_of_user is None or saved_data is None:
        return space_of_user
    if not same_space(data_of_user, saved_data):
        raise SavedPolicyError(
            f"{source / MANIFEST}: its {name} is {saved_space}, not {space_of_user}."
        )
    return space_of_user
