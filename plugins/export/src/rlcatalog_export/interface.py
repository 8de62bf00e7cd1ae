"""Interface: inputs, outputs and other metadata of an exported policy, as JSON."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Annotated, Any, ClassVar, Literal

import msgspec
from msgspec import Meta

import rlcatalog
from rlcatalog import __version__
from rlcatalog.errors import SavedPolicyError, one_line
from rlcatalog.internals import public_index

FORMAT = "rlcatalog-export"
FORMAT_VERSION = 2

Name = Annotated[str, Meta(pattern="^[A-Za-z0-9_]{1,200}$")]
Text = Annotated[str, Meta(max_length=2000)]
Role = Annotated[
    str,
    Meta(
        pattern="^(observation|mask|state|prev_reward|noise|deterministic|action|raw_action|logp|value|dist_inputs)$"
    ),
]
DType = Annotated[str, Meta(pattern="^(bool|float(16|32|64)|u?int(8|16|32|64))$")]
Shape = Annotated[tuple[Annotated[int, Meta(ge=0, le=1 << 24)], ...], Meta(max_length=32)]
Names = Annotated[dict[Text, Text], Meta(max_length=10_000)]
#: Maximum number of values in one row of a port.
_LARGEST = 1 << 26
#: Roles that at most one port has. An input with such a role is named like the role.
_SINGLE = (
    "mask",
    "prev_reward",
    "noise",
    "deterministic",
    "raw_action",
    "logp",
    "value",
    "dist_inputs",
)
_INPUTS = ("observation", "mask", "prev_reward", "noise", "deterministic", "state")
_OUTPUTS = ("action", "raw_action", "logp", "value", "dist_inputs", "state")


class Port(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True
):
    """Input or output of an exported policy; all except `deterministic` have a batch axis before
    their shape.

    Attributes:
        name: Name, which consists of letters, digits and `_`.
        role: For an input, `"observation"`, `"mask"`, `"state"`, `"prev_reward"`, `"noise"`,
            `"deterministic"`; for an output, `"action"`, `"raw_action"`, `"logp"`, `"value"`,
            `"dist_inputs"`, `"state"`.
        dtype: NumPy's name for the dtype.
        shape: Shape of one row.
        path: Path in the observation or the action, such as `obs['camera'][0]`.
        steps: The keys and positions that lead to the part.
        encoded: Whether an observation is encoded by its codec; otherwise it is as returned by the
            environment.
        initial: Flat values of one row at the start of an episode; empty means zeros.
        follows: For a returned state, the name of the input that receives it in the next step.
    """

    name: Name
    role: Role
    dtype: DType
    shape: Shape = ()
    path: Text = ""
    steps: Annotated[tuple[str | int, ...], Meta(max_length=100)] = ()
    encoded: bool = False
    initial: tuple[float, ...] = ()
    follows: Text = ""


class Interface(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Interface of an exported policy.

    Attributes:
        inputs: Its inputs, in order.
        outputs: Its outputs, in order.
        observation: Kind of observations that the policy takes: `"leaves"` (each leaf of the
            environment's observation is a separate port; some may already be encoded) or
            `"filtered"` (one port, encoded and filtered).
        framework: The policy's framework.
        model: Class of the policy's model, for error messages.
        observation_space: The environment's observation space as plain data, or None (see
            `space_to_json`); with `obs_groups`, only the entries that the policy sees.
        action_space: The same for actions.
        mask_key: Key of the action mask in Dict observations, or None.
        mask_apart: Whether the mask is hidden from the model.
        mask_columns: Path and number of values for each choice, in the order of the mask's columns.
        raw_kinds: For each leaf's path, how to read the leaf's raw actions.
        action_bounds: Rule that maps floats into their bounds.
        encoding: Config keys that the observation codecs read.
        config: Keys of the model config that differ from their defaults.
        parts: Slot → `"distribution/name"`.
        preprocessors: Path → `"distribution/name"`.
        action_dists: The same as `observation_space`, for the action space and its parts.
        versions: Distribution → version.
        format: `"rlcatalog-export"`.
        format_version: Version of this layout.
        rlcatalog: Version of the kernel that wrote the file.
    """

    #: Maximum number of characters in its JSON.
    LONGEST: ClassVar[int] = 1 << 23

    inputs: Annotated[tuple[Port, ...], Meta(max_length=10_000)]
    outputs: Annotated[tuple[Port, ...], Meta(max_length=10_000)]
    observation: Literal["leaves", "filtered"]
    framework: Text
    model: Text
    observation_space: Any
    action_space: Any
    mask_key: Text | None
    mask_apart: bool
    mask_columns: tuple[tuple[Text, int], ...]
    raw_kinds: Names
    action_bounds: Literal["clip", "affine", "affine_all"]
    encoding: dict[str, Any]
    config: dict[str, Any]
    parts: Names
    preprocessors: Names
    action_dists: Names
    versions: Names
    format: str = FORMAT
    format_version: int = FORMAT_VERSION
    rlcatalog: Text = __version__

    def input(self, role: str) -> Port | None:
        """Return the input with the given role, or None."""
        return next((port for port in self.inputs if port.role == role), None)

    def config_for_wrappers(self) -> dict[str, Any]:
        """Return the model config for the wrappers of an environment, without the keys of packages
        that are not installed and whose parts are in the file.

        Keys of other packages stay: a wrapper that is not installed is an error.
        """
        config = {}
        for key, value in self.config.items():
            is_in_file = public_index.provider_of("config", key) in self.versions
            if key in rlcatalog.MODEL_DEFAULTS or not is_in_file:
                config[key] = value
        return config

    def to_json(self) -> str:
        """Return the whole interface as JSON."""
        return msgspec.json.encode(self).decode()

    @classmethod
    def from_json(
        cls, text: str, where: str = "the file", checked: bool | None = None
    ) -> Interface:
        """Read an interface from the output of `to_json`.

        Args:
            text: The JSON.
            where: The file, for messages.
            checked: Whether the file has a (correct) checksum; None if its format has no checksums.

        Raises:
            SavedPolicyError: The text was not written by this version of `to_json`, or the checksum
                is missing.
        """
        try:
            if len(text) > cls.LONGEST:
                raise ValueError(
                    f"its interface has {len(text)} characters, but the limit is {cls.LONGEST}"
                )
            header = msgspec.json.decode(text, type=_Header)
            if header.format != FORMAT:
                raise ValueError(f"it does not name the format {FORMAT!r}")
            if header.format_version != FORMAT_VERSION:
                raise ValueError(
                    f"it has format version {header.format_version} instead of {FORMAT_VERSION}"
                )
            interface = msgspec.json.decode(text, type=cls)
            contradiction = next(_contradictions(interface), None)
            if contradiction is not None:
                raise ValueError(contradiction)
        except (ValueError, msgspec.MsgspecError, RecursionError) as error:
            raise SavedPolicyError(
                f"{where} is not a policy exported by rlcatalog: {one_line(str(error))}."
            ) from error
        if checked is False:
            raise SavedPolicyError(
                f"{where} is damaged: files of format version {FORMAT_VERSION} have a checksum,"
                " but this file has none. Export the policy again, or copy the file again."
            )
        return interface


class _Header(msgspec.Struct):
    """Header of an interface.

    It is read first, to check whether this version of rlcatalog can read the file.
    """

    format: str = ""
    format_version: int = 0


def _contradictions(interface: Interface) -> Iterator[str]:
    """Yield a description of each contradiction in an interface."""
    yield from _contradictions_of_ports(interface.inputs, what="inputs", roles=_INPUTS)
    yield from _contradictions_of_ports(interface.outputs, what="outputs", roles=_OUTPUTS)
    for role in ("deterministic", "mask", "noise", "prev_reward"):
        port = interface.input(role)
        if port is not None and port.name != role:
            yield f"the input {port.name!r} should be named {role!r}"
    if interface.input("deterministic") is None or interface.input("observation") is None:
        yield "an input is missing: 'deterministic', or an observation"
    missing = {"raw_action", "logp", "dist_inputs"}
    missing -= {port.role for port in interface.outputs}
    if missing:
        yield f"outputs are missing: {sorted(missing)}"
    yield from _contradictions_of_state(interface)


def _contradictions_of_ports(
    ports: Sequence[Port], *, what: str, roles: Sequence[str]
) -> Iterator[str]:
    """Yield the contradictions among the inputs, or among the outputs, which have these roles."""
    names = {port.name for port in ports}
    if len(names) < len(ports):
        yield f"two {what} have the same name"
    roles_in_order = [port.role for port in ports]
    for role in _SINGLE:
        if roles_in_order.count(role) > 1:
            yield f"two {what} are {role!r}"
    for port in ports:
        if math.prod(port.shape) > _LARGEST:
            yield (
                f"{port.name!r} has rows of shape {list(port.shape)}; the limit is"
                f" {_LARGEST} numbers"
            )
        if port.role not in roles:
            yield f"{port.role!r} is not one of {what}"


def _contradictions_of_state(interface: Interface) -> Iterator[str]:
    """Yield the contradictions between the state's inputs and outputs."""
    states = {port.name: port for port in interface.inputs if port.role == "state"}
    new_states = [port for port in interface.outputs if port.role == "state"]
    followed = [port.follows for port in new_states]
    if sorted(followed) != sorted(states):
        yield "the output state differs from the input state"
        return
    for new_state in new_states:
        state = states[new_state.follows]
        if (state.dtype, state.shape) != (new_state.dtype, new_state.shape):
            yield f"{new_state.name!r} differs in form from {state.name!r}"
    for state in states.values():
        if state.initial and len(state.initial) != math.prod(state.shape):
            yield (
                f"{state.name!r} has {len(state.initial)} initial values for shape"
                f" {list(state.shape)}"
            )
    if interface.input("prev_reward") is not None:
        # The reward of an episode's first step is 0, so the file must know which step it is.
        steps = states.get("steps")
        counts_steps = steps is not None and steps.dtype == "int64" and steps.shape == ()
        if not counts_steps:
            yield "rewards are requested, but steps are not counted"
