"""Interface: the named inputs and outputs of an exported policy, and what else is to be known of it, as JSON."""

from __future__ import annotations

import json
from typing import Any

import msgspec

from rlcatalog._version import __version__
from rlcatalog.errors import SavedPolicyError

FORMAT, FORMAT_VERSION = "rlcatalog-export", 1


class Port(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One input or output; all but `deterministic` have a batch axis in front of their shape.

    Attributes:
        name: Its name: letters, digits and `_`.
        role: Of an input: `"observation"`, `"mask"`, `"state"`, `"prev_reward"`, `"noise"`, `"deterministic"`; of an
            output: `"action"`, `"raw_action"`, `"logp"`, `"value"`, `"dist_inputs"`, `"state"`.
        dtype: NumPy name of its dtype.
        shape: Shape of one row.
        path: Where it stands in the observation or the action: `obs['camera'][0]`.
        steps: The keys and places that lead there.
        encoded: An observation as its codec encodes it; else as the environment emits it.
        initial: Values of one row at the start of an episode, flat; empty: zeros.
        follows: Of a state that is returned: the name of the input it is at the next step.
    """

    name: str
    role: str
    dtype: str
    shape: tuple[int, ...] = ()
    path: str = ""
    steps: tuple[str | int, ...] = ()
    encoded: bool = False
    initial: tuple[float, ...] = ()
    follows: str = ""


class Interface(msgspec.Struct, frozen=True, kw_only=True):
    """What an exported policy says of itself.

    Attributes:
        inputs: Its inputs, in order.
        outputs: Its outputs, in order.
        observation: What its observations are: `"leaves"` of what the environment emits, each a port of its own (some
            may come encoded), or `"filtered"`: one port, encoded and filtered.
        framework: The framework of the policy.
        model: Class of its model, for messages.
        observation_space: The environment's observation space as plain data, or None (see `space_to_json`).
        action_space: The same for actions.
        mask_key: Key of Dict observations under which the action mask stands, or None.
        mask_apart: Whether the mask is no part of what the model is shown.
        mask_columns: Path and number of values of each choice that the columns of a mask stand for.
        raw_kinds: Path → how raw actions of a leaf are to be read.
        action_bounds: How floats meet their bounds.
        encoding: The config keys that the codecs of observations read.
        config: The keys of the model config that are not at their default.
        parts: Slot → `"distribution/name"`.
        preprocessors: Path → `"distribution/name"`.
        action_dists: The same for the action space and its parts.
        versions: Distribution → version.
        format: `"rlcatalog-export"`.
        format_version: Version of this layout.
        rlcatalog: Version of the kernel that wrote it.
    """

    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    observation: str
    framework: str
    model: str
    observation_space: Any
    action_space: Any
    mask_key: str | None
    mask_apart: bool
    mask_columns: tuple[tuple[str, int], ...]
    raw_kinds: dict[str, str]
    action_bounds: str
    encoding: dict[str, Any]
    config: dict[str, Any]
    parts: dict[str, str]
    preprocessors: dict[str, str]
    action_dists: dict[str, str]
    versions: dict[str, str]
    format: str = FORMAT
    format_version: int = FORMAT_VERSION
    rlcatalog: str = __version__

    def input(self, role: str) -> Port | None:
        """Return the input of a role that one input has at most, or None."""
        return next((port for port in self.inputs if port.role == role), None)

    def to_json(self) -> str:
        """Return all of it as JSON."""
        return msgspec.json.encode(self).decode()

    @classmethod
    def from_json(cls, text: str, where: str = "the file") -> Interface:
        """Read what `to_json` wrote.

        Raises:
            SavedPolicyError: It was not written by it, or by another version.
        """
        try:
            data = json.loads(text)
            if not isinstance(data, dict) or data.get("format") != FORMAT:
                raise ValueError(f"no format {FORMAT!r} in it")
            if data.get("format_version") != FORMAT_VERSION:
                raise ValueError(f"format version {data.get('format_version')!r} instead of {FORMAT_VERSION}")
            return msgspec.convert(data, cls)
        except (ValueError, RecursionError) as error:
            raise SavedPolicyError(f"{where}: no policy that rlcatalog exported: {error}.") from error
