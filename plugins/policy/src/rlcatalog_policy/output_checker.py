"""Run-time contract checks for a policy's model and distribution, which name the part at
fault.

A backend compares shapes at each call, which takes a tenth of a microsecond per shape, and calls
this module if one differs. While TensorFlow traces, numbers of rows may be unknown; only known
lengths are compared.
"""

from __future__ import annotations

import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

import rlcatalog_policy
from rlcatalog.actions import ActionCodec, ActionDistribution, unbind
from rlcatalog.choice import MODEL_SLOTS, Resolution
from rlcatalog.errors import (
    ActionMaskError,
    CatalogError,
    ModelContractError,
    PartError,
    reason,
    shown,
)
from rlcatalog.frameworks import frameworks, ops_of
from rlcatalog.internals import blame_part, name_method, refusal
from rlcatalog.models import ModelV2, models_inside
from rlcatalog.observations import Array, rows as rows_of
from rlcatalog.plugins import Part
from rlcatalog.spaces import parts_of

Shape = tuple[int | None, ...]


class OutputChecker:
    """Checker for the return values of a policy's parts, which names the part at fault.

    Args:
        policy: The policy.
    """

    def __init__(self, policy: rlcatalog_policy.Policy) -> None:
        self._policy = policy
        resolution = policy.resolution
        self.outputs = resolution.num_outputs
        self.width = policy.action_codec.width
        #: Path → distribution, for each node of the action space whose samples the conformance kit
        #: has not checked.
        self._untried = {
            node.info.path: node.part.load(policy.framework)
            for node in resolution.dists.walk()
            if not node.part.is_indexed
        }
        #: Whether `check_actions` is needed: listed distributions draw only actions that the space
        #: and the mask allow.
        self.checks_actions = bool(self._untried) or resolution.shows_mask

    # --- return values of models ------------------------------------------------------------------

    def check_outputs(self, outputs: Any, rows: int | None) -> None:
        """Raise an error unless a model's outputs are a tensor of the policy's framework, of shape
        `[rows, outputs]`.
        """
        expected = (rows, self.outputs)
        if hasattr(outputs, "shape"):  # what is no tensor at all is described below
            self._check_framework(outputs, name_method(self._policy.model, "forward"))
        if not fits(outputs, expected):
            raise ModelContractError(
                f"{name_method(self._policy.model, 'forward')} must return outputs of shape"
                f" {_written(expected)}: a row for each observation, and a column for each of the"
                f" {self.outputs} inputs that {self._dist()} takes for"
                f" {self._policy.action_space}; found {_describe(outputs)}."
            )

    def refuse_written_input(self, name: str) -> NoReturn:
        """Raise the error for a model that has written into one of its inputs."""
        raise ModelContractError(
            f"{name_method(self._policy.model, 'forward')} must not write into its inputs; {name}"
            " has changed. It shares memory with the caller's observations or state, which would"
            " also change. Write into a copy (x = x.clone()), or use operations that return a new"
            " tensor (x * 0.5 in place of x.mul_(0.5))."
        )

    # --- return values of distributions -----------------------------------------------------------

    def check_sample(self, sample: Any, rows: int | None, method: str = "sample") -> None:
        """Raise an error unless a flattened sample has the shape `[rows, width]`."""
        if fits(sample, (rows, self.width)):
            return
        who, shape = self._dist(method), shape_of(sample)
        if shape is not None and len(shape) == 2 and (shape[0] == rows or rows is None):
            raise ModelContractError(
                f"{who} returned {shape[1]} values per action; {self._policy.action_space} needs"
                f" {self.width}."
            )
        raise ModelContractError(
            f"{who} must return one action for each row, {_written((rows, self.width))} for"
            f" {self._policy.action_space}, or {_written((rows,))} for a single Discrete; found"
            f" {_describe(sample)}."
        )

    def check_tensors(self, value: Any, method: str) -> None:
        """Raise an error unless a distribution returned the framework's tensors, as a single tensor
        or a structure.
        """
        for part in parts_of(value) or [value]:
            self._check_framework(part, self._dist(method))

    def _check_framework(self, value: Any, who: str) -> None:
        framework = self._policy.framework
        if (other := ops_of(value).framework) == framework:
            return
        others = (
            [other]
            if other in frameworks()
            else [name for name in frameworks() if name != framework]
        )
        raise ModelContractError(
            f"{who} must return tensors of the policy's framework, {framework!r};"
            f" found {type(value).__name__} {shown(value, 80)}. Return such tensors, or"
            " name the framework that the class is written for:"
            f" {' or '.join(f'framework={name!r}' for name in others)}."
        )

    def check_actions(self, raw: Array, mask: Array | None) -> None:
        """Raise an error unless drawn actions are in the action space and allowed by their masks.

        Args:
            raw: Raw actions `[B, width]`.
            mask: The actions' masks `[B, m]`, or None.

        Raises:
            ModelContractError: A third-party distribution drew an action outside the space.
            ActionMaskError: A drawn action is forbidden by its mask, because the model or the
                distribution overrides the masking.
        """
        start = 0
        for leaf in self._policy.action_codec.leaves if self._untried else ():
            part, start = raw[:, start : start + leaf.width], start + leaf.width
            dist = next(
                (cls for path, cls in self._untried.items() if leaf.info.path.startswith(path)),
                None,
            )
            if dist is not None and (wrong := _outside(leaf, part)) is not None:
                expected, found = wrong
                raise ModelContractError(
                    f"{getattr(dist, '__name__', dist)} drew an action outside the action space:"
                    f" {leaf.info.path}: expected {expected} for {leaf.info.describe()}, found"
                    f" {found}. Its sample() and deterministic_sample() must return raw actions:"
                    " choices count from 0."
                )
        if mask is not None and (taken := self._policy.action_codec.mask_taken(raw)) is not None:
            allowed = np.take_along_axis(mask, taken, axis=1).all(axis=1)
            if not allowed.all():
                self._refuse_masked(int(np.argmin(allowed)), raw, mask)

    def _refuse_masked(self, row: int, raw: Array, mask: Array) -> NoReturn:
        who = self._dist()
        if self._policy.resolution.shows_mask:
            who = f"{name_method(self._policy.model, 'forward')} or {who}"
        choices = self._policy.masks.by_choice(mask[row : row + 1])
        allowed = {path: np.flatnonzero(part).tolist() for path, part in choices}
        raise ActionMaskError(
            f"mask: row {row}: the raw action {raw[row].tolist()} was drawn, but the mask allows"
            f" {allowed}. rlcatalog masks the outputs of the model itself (True or 1 allows);"
            f" {who} overrides that. Leave masking to rlcatalog. If the observation entry means"
            " something else, set the model config key 'action_mask_key' to another name; then no"
            " mask is applied."
        )

    def check_rows(self, numbers: Any, rows: int | None, method: str) -> None:
        """Raise an error unless a distribution returned one number per row, as a tensor of shape
        `[rows]`.
        """
        self.check_tensors(numbers, method)
        if not fits(numbers, (rows,)):
            raise ModelContractError(
                f"{self._dist(method)} must return one number per row, shape {_written((rows,))};"
                f" found {_describe(numbers)}. Sum over each action's values."
            )

    def refuse_gradient(self, method: str) -> NoReturn:
        """Raise the error for a sample that gradients pass through."""
        raise ModelContractError(
            f"{self._dist(method)} must return actions without gradient; found a gradient that"
            " reaches the inputs. Detach the actions (tf.stop_gradient), and leave draws with"
            " gradient to rsample()."
        )

    def refuse_lost_weight(self, name: str, shape: Any) -> NoReturn:
        """Raise the error for parts that use a weight that is neither trained nor saved."""
        policy = self._policy
        parts = " or ".join(dict.fromkeys([name_method(policy.model, "forward"), self._dist()]))
        raise ModelContractError(
            f"{parts} uses the weight {name!r} of shape {tuple(shape)}, which is not in any"
            f" attribute of {type(policy.model).__name__} and would neither be trained nor saved."
            " Make its owner an attribute; in PyTorch, lists and dicts of modules are"
            " nn.ModuleList and nn.ModuleDict."
        )

    # --- which part is to blame -------------------------------------------------------------------

    @contextmanager
    def blaming(self) -> Iterator[None]:
        """Run the parts' code; see `blame`."""
        try:
            yield
        except BaseException as error:
            self.blame(error)
            raise

    def blame(self, error: BaseException) -> None:
        """Replace an error that a plugin's part raised with a typed error; do nothing for
        other errors.

        Errors from classes of the running program are unchanged, unless a method does not take the
        contract's arguments.

        Raises:
            ModelContractError: A method does not accept its arguments.
            PartError: A plugin's part raised the error.
        """
        if isinstance(error, CatalogError | KeyboardInterrupt | GeneratorExit):
            return
        if isinstance(error, TypeError):
            self._check_signatures(error)
        resolution = self._policy.resolution
        dists = (plan.part for plan in resolution.dists.walk())
        packages: dict[str, Part] = {}
        for part in (*resolution.parts_by_slot(*MODEL_SLOTS).values(), *dists):
            if part.is_third_party and resolution.framework in part.frameworks:
                home = str(getattr(part.load(resolution.framework), "__module__", ""))
                packages[home.partition(".")[0]] = part
        if not packages:
            return
        for frame, line in reversed(list(traceback.walk_tb(error.__traceback__))):
            if (package := str(frame.f_globals.get("__name__")).partition(".")[0]) in packages:
                method = getattr(frame.f_code, "co_qualname", frame.f_code.co_name)
                place = f"(at {Path(frame.f_code.co_filename).name}:{line})"
                raise packages[package].fault(
                    f"{method}() raised {reason(error)} {place}"
                ) from error
        # The parts' caller raised it, because of a value that a part returned.
        whose = " or ".join(dict.fromkeys(part.title for part in packages.values()))
        raise PartError(
            f"{whose}: the policy failed on this part or its return value: {reason(error)}"
        ) from error

    def _check_signatures(self, error: TypeError) -> None:
        inputs = object()
        dist, options = unbind(self._policy.dist_class)
        models = model_chain(getattr(self._policy, "model", None))
        calls: list[tuple[str, Any, tuple[Any, ...], Any]] = [
            *(
                (name_method(model, "forward"), model.forward, ({}, [], None), {})
                for model in models
            ),
            *(
                (name_method(model, "get_initial_state"), model.get_initial_state, (), {})
                for model in models
            ),
            *(
                (name_method(model, "value_function"), model.value_function, (), {})
                for model in models[:1]
            ),
            (self._dist("__init__"), dist, (inputs, None), options),
        ]
        for name, count in _METHODS.items():
            if (method := getattr(dist, name, None)) is not None:
                calls.append((self._dist(name), method, (inputs,) * (1 + count), {}))
        for who, method, arguments, keywords in calls:
            if (signature := refusal(method, arguments, keywords)) is not None:
                raise ModelContractError(
                    f"{who} cannot be called as the contract requires, with {len(arguments)}"
                    f" arguments{f' and {sorted(keywords)}' if keywords else ''}: it takes"
                    f" {signature}. {reason(error)}"
                ) from error

    def _dist(self, method: str = "") -> str:
        """Return the name of the distribution, or of its method, with the plugins' parts that
        it contains.
        """
        cls = unbind(self._policy.dist_class)[0]
        parts = [plan.part for plan in self._policy.resolution.dists.walk()]
        labels = [c.label for c in parts if c.is_third_party] or [
            c.label for c in parts[:1] if c.label
        ]
        part = " with ".join(dict.fromkeys(labels))
        return f"{getattr(cls, '__name__', cls)}{method and f'.{method}()'}{part and f' ({part})'}"


#: Methods of a distribution that engines call → the number of their arguments.
_METHODS = {"sample": 0, "deterministic_sample": 0, "logp": 1, "entropy": 0, "kl": 1}


def model_chain(model: Any) -> list[Any]:
    """Return a model and all models inside it; return nothing for any other object."""
    models = [model] if isinstance(model, ModelV2) else []
    for one in models:
        models += [inner for inner in models_inside(one).values() if inner not in models]
    return models


def shape_of(array: Any) -> Shape | None:
    """Return an array's or tensor's shape, with None for each axis of unknown length; None for any
    other object.
    """
    # TensorFlow, while tracing: the number of axes is unknown.
    with suppress(AttributeError, TypeError, ValueError):
        return tuple(None if n is None else int(n) for n in array.shape)
    return None


def fits(array: Any, expected: Shape) -> bool:
    """Return whether an array or tensor has the expected shape, as far as its shape is known.

    If the number of rows is unknown, 1 is wrong, and any other number may be right.
    """
    if (shape := shape_of(array)) is None:
        return getattr(getattr(array, "shape", 0), "rank", 0) is None
    return len(shape) == len(expected) and all(
        n is None or n == wanted or (wanted is None and n != 1)
        for n, wanted in zip(shape, expected, strict=True)
    )


def _outside(codec: ActionCodec, raw: Array) -> tuple[str, str] | None:
    """If a leaf's codec cannot map raw actions `[B, width]` into the space, return what was
    expected and found.
    """
    within, expected = np.isfinite(raw), "finite numbers"
    # Choices must be drawn as such; other numbers may be clipped.
    if codec.whole and codec.counts is not None:
        within, expected = (raw >= 0) & (raw < np.array(codec.counts)) & (raw == np.floor(raw)), ""
    if not within.all():
        row, column = (int(place) for place in np.argwhere(~within)[0])
        if codec.whole and codec.counts is not None:
            expected = f"an integer from 0 to {codec.counts[column] - 1}"
        return expected, f"{raw[row, column]} in row {row}"
    if codec.whole or codec.clips:
        return None
    actions = rows_of(codec.info, codec.adapt(raw))
    outside = (
        (row, action) for row, action in enumerate(actions) if not codec.info.space.contains(action)
    )
    return next(
        (
            ("an action of the space", f"{shown(action, 80)} in row {row}")
            for row, action in outside
        ),
        None,
    )


def _written(shape: Shape) -> str:
    return f"[{', '.join('B' if n is None else str(n) for n in shape)}]"


def _describe(value: Any) -> str:
    shape = shape_of(value)
    return shown(value, 80) if shape is None else f"shape {_written(shape)}"


def check_dists(resolution: Resolution, config: Mapping[str, Any]) -> None:
    """Raise an error if a plugin's distribution does not match its declaration, or its class cannot
    be called.

    Args:
        resolution: The lookup's choice.
        config: The model config.

    Raises:
        PartError: The class needs a different number of inputs than it declares, or its constructor
            does not accept `(inputs, model)`.
    """
    for plan in resolution.dists.walk():
        part = plan.part
        if not part.is_third_party:
            continue
        cls, options = unbind(plan.load(resolution.framework, config))
        if (signature := refusal(cls, (None, None), options)) is not None:
            given = ", ".join(("inputs", "model", *(f"{name}=" for name in options)))
            raise part.fault(
                f"{cls.__name__}.__init__ is called with ({given}), but takes {signature}."
            )
        shape = getattr(
            cls, "required_model_output_shape", ActionDistribution.required_model_output_shape
        )
        if plan.children or shape is ActionDistribution.required_model_output_shape:
            continue
        with blame_part(part, "required_model_output_shape"):
            needed = int(np.prod(shape(plan.info.space, dict(config))))
        if needed != plan.size:
            raise part.fault(
                f"according to its declaration, it takes {plan.size} inputs for"
                f" {plan.info.describe()}, but {cls.__name__}.required_model_output_shape()"
                f" returns {needed}."
            )
