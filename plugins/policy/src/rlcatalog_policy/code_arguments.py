"""The arguments of `load` that bring a program's own code: `model`, `memory` and `critic`.

A saved policy holds the names of classes and functions that the program defined, and no code.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, NamedTuple, TypeAlias

from rlcatalog.choice import MODEL_SLOTS
from rlcatalog.errors import ConfigError
from rlcatalog.internals import CRITIC_PREFIX
from rlcatalog_policy.building import ModelArgument
from rlcatalog_policy.manifest import CODE_KEYS, LeftOut, Manifest, is_address

#: A class, a module or a name; or a dictionary with code that the config contained.
Code: TypeAlias = ModelArgument | Mapping[str, Any] | None


class CodeArgument(NamedTuple):
    """An argument of `load` that brings code for one key of a saved config.

    Attributes:
        name: The argument's name.
        key: The config key that names what it brings.
        value: Its value, or None.
        prefix: The beginning of the slots' names in the manifest.
        config: The saved config of the policy's model or of its critic.
        parts: Slot → the saved name of the part, for the model or its critic.
    """

    name: str
    key: str
    value: Code
    prefix: str
    config: Mapping[str, Any]
    parts: Mapping[str, str]

    @property
    def brings_part(self) -> bool:
        """Whether the value is a class, a module or a name, and not a dictionary of arguments."""
        return self.value is not None and not isinstance(self.value, Mapping)

    @property
    def own_slots(self) -> list[str]:
        """The slots that the program's own parts fill and this argument brings."""
        names_memory = self.config.get("memory") is not None
        slots = []
        for slot, part in self.parts.items():
            if is_address(part):
                continue
            is_from_memory = slot == "memory" and names_memory
            if is_from_memory == (self.key == "memory"):
                slots.append(slot)
        return slots

    def saved_slots(self) -> list[str]:
        """Return the manifest's slots whose parts the value replaces.

        Raises:
            ConfigError: All of the parts that it could replace come from packages.
        """
        if not self.brings_part:
            return []
        own_slots = self.own_slots
        if own_slots:
            return [self.prefix + slot for slot in own_slots]
        if self.name == "memory" and "memory" not in self.parts:
            found = "this policy has none"
        else:
            found = f"this {self._what} comes from packages: {', '.join(self.parts.values())}"
        raise ConfigError(
            f"{self.name}= is for a {self._what} of the program, but {found}. Remove the argument."
        )

    @property
    def _what(self) -> str:
        return "model" if self.key == "custom_model" else "memory"

    def keys_with_code(self) -> dict[str, Any]:
        """Return the config keys for which the manifest has names of code, with the code itself.

        Raises:
            ConfigError: The value lacks code that the config contained, or has arguments that
                contained no code.
        """
        names_by_key = self._names_of_code()
        code_names: dict[str, Any] = {}
        for names in names_by_key.values():
            code_names |= names
        # The code comes as a dictionary of arguments, or as those of a class in a `partial`.
        code: Mapping[str, Any] = {}
        if isinstance(self.value, Mapping):
            code = self.value
        elif isinstance(self.value, partial):
            code = self.value.keywords
        for key, names in names_by_key.items():
            missing = [name for name in names if name not in code]
            if missing:
                raise ConfigError(
                    f"{key}: {', '.join(map(repr, missing))} contained code when the policy was"
                    " saved, but code is not saved. Pass it:"
                    f" {self.name}={self._example(code_names)}."
                )
        keys: dict[str, Any] = {}
        if isinstance(self.value, Mapping):
            self._refuse_others(self.value, code_names)
        elif self.value is not None:
            keys[self.key] = self.value
        for key, names in names_by_key.items():
            keys[key] = self.config[key] | {name: code[name] for name in names}
        return keys

    def _names_of_code(self) -> dict[str, dict[str, Any]]:
        """Return the keys of the saved config whose entries contained code, such as
        `custom_model_config`: key → these entries, which contain the code's name.
        """
        names_by_key = {}
        for key, entries in self.config.items():
            is_of_memory = key == CODE_KEYS["memory"]
            # The critic's config is another argument's.
            if key == "critic" or is_of_memory != (self.key == "memory"):
                continue
            if not isinstance(entries, dict):
                continue
            names = {name: value for name, value in entries.items() if _contains_code(value)}
            if names:
                names_by_key[key] = names
        return names_by_key

    def _example(self, code_names: Mapping[str, Any]) -> str:
        """Return a value that supplies code, for an error message."""
        if not self.own_slots:
            return str(dict(code_names))
        arguments = ", ".join(f"{name}={value!r}" for name, value in code_names.items())
        return f"functools.partial({self.config.get(self.key)}, {arguments})"

    def _refuse_others(self, code: Mapping[str, Any], code_names: Mapping[str, Any]) -> None:
        """Raise an error for arguments that contained no code."""
        other_names = [name for name in code if name not in code_names]
        if other_names:
            names_with_code = ", ".join(map(repr, code_names)) or "none"
            raise ConfigError(
                f"{self.name}: {', '.join(map(repr, other_names))} had no code when the policy was"
                f" saved; {names_with_code} did."
            )


def code_arguments(
    manifest: Manifest, model: Code, memory: Code, critic: Code
) -> list[CodeArgument]:
    """Return the arguments of `load` that bring code.

    Args:
        manifest: The saved policy's manifest.
        model: The argument `model`.
        memory: The argument `memory`.
        critic: The argument `critic`: code of the critic's model; or a dictionary, whose entries
            `"custom_model"` and `"memory"` bring the code for these keys of the critic's config.

    Raises:
        ConfigError: There is code for a critic, but the policy has none of its own.
    """
    parts = {slot: manifest.parts[slot] for slot in MODEL_SLOTS if slot in manifest.parts}
    arguments = [
        CodeArgument("model", "custom_model", model, "", manifest.config, parts),
        CodeArgument("memory", "memory", memory, "", manifest.config, parts),
    ]
    config = manifest.config.get("critic")
    if not isinstance(config, dict):  # a value of another type is refused when the config is parsed
        if critic is not None:
            raise ConfigError(
                "critic= is for the code of a critic of its own, which this policy does not have."
                " Remove the argument."
            )
        return arguments
    parts = {}
    for slot in MODEL_SLOTS:
        if CRITIC_PREFIX + slot in manifest.parts:
            parts[slot] = manifest.parts[CRITIC_PREFIX + slot]
    critic_model = critic
    critic_memory: Code = None
    if isinstance(critic, Mapping):
        entries = dict(critic)
        critic_memory = entries.pop("memory", None)
        critic_model = entries.pop("custom_model", None)
        if entries:
            critic_model = entries
    for key, value in (("custom_model", critic_model), ("memory", critic_memory)):
        arguments.append(CodeArgument("critic", key, value, CRITIC_PREFIX, config, parts))
    return arguments


def _contains_code(value: Any) -> bool:
    """Return whether a value of a saved config is or contains the name of code."""
    if isinstance(value, dict):
        return any(_contains_code(item) for item in value.values())
    if isinstance(value, list):
        return any(_contains_code(item) for item in value)
    return isinstance(value, LeftOut)
