"""Run-time contract checks for a policy's model and distribution, which name the part at
fault.

A backend compares shapes at each call, which takes a tenth of a microsecond per shape, and calls
this module if one differs. While TensorFlow traces, numbers of rows may be unknown; only known
lengths are compared.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

import numpy as np

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
from rlcatalog.frameworks import Tensor, TensorTree, frameworks, ops_of
from rlcatalog.internals import blame_part, name_method, signature_if_refused
from rlcatalog.models import ModelV2, models_inside
from rlcatalog.observations import Array, rows as rows_of
from rlcatalog.plugins import Part
from rlcatalog.spaces import parts_of

if TYPE_CHECKING:
    # A name of the kernel that only annotations need.
    from rlcatalog.internals import DistPlan
    from rlcatalog_policy.policy import Policy

#: A shape; None stands for an unknown length.
Shape = tuple[int | None, ...]


class OutputChecker:
    """Checker for the return values of a policy's parts, which names the part at fault.

    Args:
        policy: The policy.

    Attributes:
        outputs: Number of the model's outputs for one observation.
        width: Number of raw values of one action.
        checks_actions: Whether `check_actions` is needed: listed distributions draw only actions
            that the space and the mask allow.
    """

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        resolution = policy.resolution
        self.outputs = resolution.num_outputs
        self.width = policy.action_codec.width
        #: Path → distribution, for each node of the action space whose samples the conformance kit
        #: has not checked.
        self._untried_dists: dict[str, Any] = {}
        for node in resolution.dists.walk():
            if not node.part.is_indexed:
                self._untried_dists[node.info.path] = node.part.load(policy.framework)
        self.checks_actions = bool(self._untried_dists) or resolution.shows_mask

    # --- return values of models ------------------------------------------------------------------

    def check_outputs(self, outputs: Tensor, rows: int | None) -> None:
        """Raise an error unless a model's outputs are a tensor of the policy's framework, of shape
        `[rows, outputs]`.
        """
        forward = name_method(self._policy.acting_model, "forward")
        # The user's model may return anything. An object without a shape is no tensor at all, which
        # the second error says.
        if hasattr(outputs, "shape"):
            self._check_framework(outputs, forward)
        expected_shape = (rows, self.outputs)
        if not fits(outputs, expected_shape):
            raise ModelContractError(
                f"{forward} must return outputs of shape {_shape_text(expected_shape)}: a row for"
                f" each observation, and a column for each of the {self.outputs} inputs that"
                f" {self._name_dist()} takes for {self._policy.action_space}; found"
                f" {_describe(outputs)}."
            )

    def refuse_written_input(self, name: str) -> NoReturn:
        """Raise the error for a model that has written into one of its inputs."""
        raise ModelContractError(
            f"{name_method(self._policy.acting_model, 'forward')} must not write into its inputs;"
            f" {name} has changed. It shares memory with the caller's observations or state, which"
            " would also change. Write into a copy (x = x.clone()), or use operations that return a"
            " new tensor (x * 0.5 in place of x.mul_(0.5))."
        )

    # --- return values of distributions -----------------------------------------------------------

    def check_sample(self, sample: Tensor, rows: int | None, method: str = "sample") -> None:
        """Raise an error unless a flattened sample has the shape `[rows, width]`."""
        if fits(sample, (rows, self.width)):
            return
        who = self._name_dist(method)
        shape = shape_of(sample)
        if shape is not None and len(shape) == 2:
            has_right_rows = rows is None or shape[0] == rows
            if has_right_rows:
                raise ModelContractError(
                    f"{who} returned {shape[1]} values per action; {self._policy.action_space}"
                    f" needs {self.width}."
                )
        raise ModelContractError(
            f"{who} must return one action for each row, {_shape_text((rows, self.width))} for"
            f" {self._policy.action_space}, or {_shape_text((rows,))} for a single Discrete; found"
            f" {_describe(sample)}."
        )

    def check_tensors(self, value: TensorTree, method: str) -> None:
        """Raise an error unless a distribution returned the framework's tensors, as a single tensor
        or a structure.
        """
        tensors = parts_of(value) or [value]
        for tensor in tensors:
            self._check_framework(tensor, self._name_dist(method))

    def _check_framework(self, value: Tensor, who: str) -> None:
        """Raise an error unless a value is a tensor of the policy's framework."""
        framework = self._policy.framework
        framework_of_value = ops_of(value).framework
        if framework_of_value == framework:
            return
        if framework_of_value in frameworks():
            alternatives = [framework_of_value]
        else:
            alternatives = [name for name in frameworks() if name != framework]  # an array
        arguments = " or ".join([f"framework={name!r}" for name in alternatives])
        raise ModelContractError(
            f"{who} must return tensors of the policy's framework, {framework!r};"
            f" found {type(value).__name__} {shown(value, length=80)}. Return such tensors, or"
            f" name the framework that the class is written for: {arguments}."
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
        if self._untried_dists:
            self._check_in_space(raw)
        if mask is None:
            return
        columns = self._policy.action_codec.mask_taken(raw)
        if columns is None:
            return  # the codec does not know which columns of a mask an action uses
        is_allowed = np.take_along_axis(mask, columns, axis=1).all(axis=1)
        if not is_allowed.all():
            first_forbidden_row = int(np.argmin(is_allowed))
            self._refuse_masked(first_forbidden_row, raw, mask)

    def _check_in_space(self, raw: Array) -> None:
        """Raise an error if a distribution that was never tested drew actions outside its space."""
        start = 0
        for leaf in self._policy.action_codec.leaves:
            stop = start + leaf.width
            dist = self._untried_dist_of(leaf)
            if dist is not None:
                problem = _find_outside(leaf, raw[:, start:stop])
                if problem is not None:
                    # A class, or a `partial` of one that binds its options.
                    dist_name = getattr(dist, "__name__", dist)
                    raise ModelContractError(
                        f"{dist_name} drew an action outside the action space: {leaf.info.path}:"
                        f" expected {problem.expected} for {leaf.info.describe()}, found"
                        f" {problem.found}. Its sample() and deterministic_sample() must return raw"
                        " actions: choices count from 0."
                    )
            start = stop

    def _untried_dist_of(self, leaf: ActionCodec) -> Any:
        """Return the distribution that draws a leaf's actions if the kit has not checked it."""
        for path, dist in self._untried_dists.items():
            if leaf.info.path.startswith(path):
                return dist
        return None

    def _refuse_masked(self, row: int, raw: Array, mask: Array) -> NoReturn:
        """Raise the error for a row whose drawn action is forbidden by its mask."""
        who = self._name_dist()
        if self._policy.resolution.shows_mask:
            who = f"{name_method(self._policy.acting_model, 'forward')} or {who}"
        choices = self._policy.masks.by_choice(mask[row : row + 1])
        allowed = {path: np.flatnonzero(columns).tolist() for path, columns in choices}
        raise ActionMaskError(
            f"mask: row {row}: the raw action {raw[row].tolist()} was drawn, but the mask allows"
            f" {allowed}. rlcatalog masks the outputs of the model itself (True or 1 allows);"
            f" {who} overrides that. Leave masking to rlcatalog. If the observation entry means"
            " something else, set the model config key 'action_mask_key' to another name; then no"
            " mask is applied."
        )

    def check_rows(self, numbers: Tensor, rows: int | None, method: str) -> None:
        """Raise an error unless a distribution returned one number per row, as a tensor of shape
        `[rows]`.
        """
        self.check_tensors(numbers, method)
        if not fits(numbers, (rows,)):
            raise ModelContractError(
                f"{self._name_dist(method)} must return one number per row, shape"
                f" {_shape_text((rows,))}; found {_describe(numbers)}. Sum over each action's"
                " values."
            )

    def refuse_gradient(self, method: str) -> NoReturn:
        """Raise the error for a sample that gradients pass through."""
        raise ModelContractError(
            f"{self._name_dist(method)} must return actions without gradient; found a gradient that"
            " reaches the inputs. Detach the actions (tf.stop_gradient), and leave draws with"
            " gradient to rsample()."
        )

    def refuse_lost_weight(self, name: str, shape: Sequence[int]) -> NoReturn:
        """Raise the error for parts that use a weight that is neither trained nor saved."""
        model = self._policy.model
        users = [name_method(model, "forward"), self._name_dist()]
        raise ModelContractError(
            f"{' or '.join(_unique(users))} uses the weight {name!r} of shape {tuple(shape)}, which"
            f" is not in any attribute of {type(model).__name__} and would neither be trained nor"
            " saved. Make its owner an attribute; in PyTorch, lists and dicts of modules are"
            " nn.ModuleList and nn.ModuleDict."
        )

    # --- which part is at fault -------------------------------------------------------------------

    @contextmanager
    def name_part_in_errors(self) -> Iterator[None]:
        """Run the parts' code; see `raise_if_part_at_fault`."""
        try:
            yield
        except BaseException as error:
            self.raise_if_part_at_fault(error)
            raise

    def raise_if_part_at_fault(self, error: BaseException) -> None:
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
        parts_by_package = self._third_party_parts()
        if not parts_by_package:
            return
        # From the innermost call outwards: the first one in a plugin's package is at fault.
        for frame, line in reversed(list(traceback.walk_tb(error.__traceback__))):
            part = parts_by_package.get(_package_of(frame.f_globals.get("__name__")))
            if part is not None:
                code = frame.f_code
                # Python 3.11 introduced `co_qualname`, which other implementations may lack.
                method = getattr(code, "co_qualname", code.co_name)
                place = f"(at {Path(code.co_filename).name}:{line})"
                raise part.fault(f"{method}() raised {reason(error)} {place}") from error
        # The parts' caller raised it, because of a value that a part returned.
        titles = _unique([part.title for part in parts_by_package.values()])
        raise PartError(
            f"{' or '.join(titles)}: the policy failed on this part or its return value:"
            f" {reason(error)}"
        ) from error

    def _third_party_parts(self) -> dict[str, Part]:
        """Return the plugins' parts of the model and the distribution, by the package of their
        code.
        """
        resolution = self._policy.resolution
        parts = list(resolution.parts_by_slot(*MODEL_SLOTS).values())
        if resolution.critic is not None:
            parts += resolution.critic.parts_by_slot(*MODEL_SLOTS).values()
        parts += [node.part for node in resolution.dists.walk()]
        parts_by_package = {}
        for part in parts:
            if part.is_third_party and resolution.framework in part.frameworks:
                code = part.load(resolution.framework)
                # The plugin's object: a class, a function, or an instance without a module.
                module = getattr(code, "__module__", "")
                parts_by_package[_package_of(module)] = part
        return parts_by_package

    def _check_signatures(self, error: TypeError) -> None:
        """Raise an error if a method of the parts does not take the contract's arguments."""
        for call in self._calls():
            signature = signature_if_refused(call.method, call.arguments, call.keywords)
            if signature is None:
                continue
            arguments = f"{len(call.arguments)} arguments"
            if call.keywords:
                arguments += f" and {sorted(call.keywords)}"
            raise ModelContractError(
                f"{call.name} cannot be called as the contract requires, with {arguments}: it takes"
                f" {signature}. {reason(error)}"
            ) from error

    def _calls(self) -> Iterator[_Call]:
        """Yield the calls that the contract requires, with stand-ins for the arguments."""
        # A policy whose model failed to build has none yet.
        models = model_chain(getattr(self._policy, "model", None))
        for model in models:
            forward_arguments: tuple[Any, ...] = ({}, [], None)
            yield _Call(name_method(model, "forward"), model.forward, forward_arguments)
        for model in models:
            yield _Call(name_method(model, "get_initial_state"), model.get_initial_state)
        if models:
            outermost = models[0]
            yield _Call(name_method(outermost, "value_function"), outermost.value_function)

        dist, options = unbind(self._policy.dist_class)
        inputs = object()  # a stand-in, because nothing is called
        yield _Call(self._name_dist("__init__"), dist, (inputs, None), options)
        for name, num_arguments in _METHODS.items():
            # A user's distribution may lack a method that the engine at hand does not call.
            method = getattr(dist, name, None)
            if method is not None:
                self_and_arguments = (inputs,) * (1 + num_arguments)
                yield _Call(self._name_dist(name), method, self_and_arguments)

    def _name_dist(self, method: str = "") -> str:
        """Return the name of the distribution, or of its method, with the plugins' parts that
        it contains.
        """
        cls, _ = unbind(self._policy.dist_class)
        name = str(getattr(cls, "__name__", cls))  # the user's class, or a function that makes one
        if method:
            name += f".{method}()"
        parts = [node.part for node in self._policy.resolution.dists.walk()]
        labels = [part.label for part in parts if part.is_third_party]
        if not labels:
            # The first part is the distribution of the whole action. If the program defined it, it
            # has no label.
            labels = [part.label for part in parts[:1] if part.label]
        if labels:
            name += f" ({' with '.join(_unique(labels))})"
        return name


class _Call(NamedTuple):
    """A call that the contract requires.

    Attributes:
        name: The method's name, for messages.
        method: The method or class.
        arguments: Stand-ins for its positional arguments.
        keywords: Its keyword arguments.
    """

    name: str
    method: Callable[..., Any]
    arguments: tuple[Any, ...] = ()
    keywords: Mapping[str, Any] = MappingProxyType({})


#: Methods of a distribution that engines call → the number of their arguments.
_METHODS = {"sample": 0, "deterministic_sample": 0, "logp": 1, "entropy": 0, "kl": 1}


def _package_of(module: object) -> str:
    """Return the top-level package of a module, given by its name or None."""
    return str(module).partition(".")[0]


def _unique(texts: Iterable[str]) -> list[str]:
    """Return texts without repetitions, in their order."""
    return list(dict.fromkeys(texts))


def model_chain(model: ModelV2 | None) -> list[ModelV2]:
    """Return a model and all models inside it; return nothing for any other object."""
    if not isinstance(model, ModelV2):
        return []
    models: list[Any] = [model]
    for outer in models:  # the list grows in the loop
        for inner in models_inside(outer).values():
            if inner not in models:
                models.append(inner)
    return models


def shape_of(array: Any) -> Shape | None:
    """Return an array's or tensor's shape, with None for each axis of unknown length; None for any
    other object.
    """
    # While TensorFlow traces, even the number of axes may be unknown, which raises a ValueError.
    with suppress(AttributeError, TypeError, ValueError):
        return tuple(None if length is None else int(length) for length in array.shape)
    return None


def fits(array: Any, expected: Shape) -> bool:
    """Return whether an array or tensor has the expected shape, as far as its shape is known.

    If the number of rows is unknown, 1 is wrong, and any other number may be right.
    """
    shape = shape_of(array)
    if shape is None:
        # A user's object: no tensor, or a tensor of TensorFlow with an unknown number of axes.
        tensor_shape = getattr(array, "shape", None)
        # Only the latter has a shape with the rank None; it may fit.
        return getattr(tensor_shape, "rank", 0) is None
    if len(shape) != len(expected):
        return False
    lengths = zip(shape, expected, strict=True)
    return all(_length_fits(length, expected_length) for length, expected_length in lengths)


def _length_fits(length: int | None, expected: int | None) -> bool:
    """Return whether an axis may have the expected length; None is an unknown length."""
    if length is None or length == expected:
        return True
    return expected is None and length != 1


class _Outside(NamedTuple):
    """What is wrong with a raw action: what was expected, and what was found instead."""

    expected: str
    found: str


def _find_outside(codec: ActionCodec, raw: Array) -> _Outside | None:
    """Return the first raw action of `[B, width]` that a leaf's codec cannot map into the space."""
    counts = None
    if codec.whole:
        counts = codec.counts  # choices must be drawn as such; other numbers may be clipped
    is_right = np.isfinite(raw)
    if counts is not None:
        is_right &= (raw >= 0) & (raw < np.array(counts)) & (raw == np.floor(raw))
    if not is_right.all():
        row, column = np.argwhere(~is_right)[0].tolist()
        expected = "finite numbers"
        if counts is not None:
            expected = f"an integer from 0 to {counts[column] - 1}"
        return _Outside(expected, f"{raw[row, column]} in row {row}")

    # Choices were checked above; a codec that clips maps every finite number into the space.
    if codec.whole or codec.clips:
        return None
    for row, action in enumerate(rows_of(codec.info, codec.adapt(raw))):
        if not codec.info.space.contains(action):
            return _Outside("an action of the space", f"{shown(action, length=80)} in row {row}")
    return None


def _shape_text(shape: Shape) -> str:
    lengths = ["B" if length is None else str(length) for length in shape]
    return f"[{', '.join(lengths)}]"


def _describe(value: Any) -> str:
    shape = shape_of(value)
    if shape is None:
        return shown(value, length=80)
    return f"shape {_shape_text(shape)}"


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
        if plan.part.is_third_party:
            _check_dist(plan, resolution.framework, config)


def _check_dist(plan: DistPlan, framework: str, config: Mapping[str, Any]) -> None:
    """Raise an error unless a distribution's class takes the arguments and the number of inputs
    that its declaration promises.
    """
    part = plan.part
    cls, options = unbind(plan.load(framework, config))
    inputs_and_model = (None, None)  # stand-ins, because the class is not called
    signature = signature_if_refused(cls, inputs_and_model, options)
    if signature is not None:
        arguments = ", ".join(("inputs", "model", *(f"{name}=" for name in options)))
        raise part.fault(
            f"{cls.__name__}.__init__ is called with ({arguments}), but takes {signature}."
        )
    if plan.children:
        return  # the children's distributions take the inputs
    default = ActionDistribution.required_model_output_shape
    # A distribution with RLlib's methods alone may lack this one, which then asks nothing of it.
    output_shape = getattr(cls, "required_model_output_shape", default)
    if output_shape is default:
        return
    with blame_part(part, "required_model_output_shape"):
        num_inputs = int(np.prod(output_shape(plan.info.space, dict(config))))
    if num_inputs != plan.size:
        raise part.fault(
            f"according to its declaration, it takes {plan.size} inputs for {plan.info.describe()},"
            f" but {cls.__name__}.required_model_output_shape() returns {num_inputs}."
        )
