"""Paths to the parts of an observation, as messages and model configs write them.

There are two spellings. `obs['arm']['camera']` is a path in Python syntax, as in `SpaceInfo.path`
and in messages. `arm.camera` is its short form, which joins the keys with dots. Places in a Tuple
or list look the same in both: `obs['wheels'][0]` and `wheels[0]`.
"""

from __future__ import annotations

import re
from ast import literal_eval
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise

from rlcatalog.errors import ConfigError, nearest

#: A step of a path: a key in quotes, a place, all places of a list, or a name such as `.lengths`.
_STEP = re.compile(r"""\[('(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")\]|\[-?\d+\]|\[:\]|\.\w+""")
#: The observation, with which each path begins.
_ROOT = re.compile(r"\w+")
#: A key in double quotes that Python itself would write in single quotes.
_DOUBLE_QUOTES = re.compile(r"""\["([^"'\\]*)"\]""")


def write_path(keys: Iterable[str | int], root: str = "obs") -> str:
    """Return the path to an entry, in Python syntax: what `find_path` reads.

    Args:
        keys: The keys of Dicts and places in Tuples that lead to the entry.
        root: The path with which it begins; `"obs"` for the observation, `""` for the last steps
            of a path.

    Example:
        >>> write_path(["arm", "camera", 0])
        "obs['arm']['camera'][0]"
    """
    return root + "".join(f"[{key!r}]" for key in keys)


def find_path(written: str, paths: Iterable[str], key: str) -> str:
    """Return the path that a model config names, in Python syntax.

    Args:
        written: The path in the config, in either spelling.
        paths: The paths that it can name, in Python syntax; see `parts_above`.
        key: The config key, for messages.

    Raises:
        ConfigError: None of the paths has this spelling, or several have the same short form.

    Example:
        >>> find_path("arm.camera", ["obs['arm']['camera']", "obs['speed']"], "input_nets")
        "obs['arm']['camera']"
    """
    known_paths = list(dict.fromkeys(paths))  # each once
    matches = matching_paths(written, known_paths)
    if not matches:
        spellings = [*known_paths, *map(short_path, known_paths)]
        raise ConfigError(
            f"{key}: {written!r} is not a part of the observation.{nearest(written, spellings)}"
            f" Parts: {', '.join(known_paths) or 'none'}."
        )
    if len(matches) > 1:
        raise ConfigError(
            f"{key}: {written!r} has several meanings: {' and '.join(matches)}. Write the one that"
            " you mean in this form."
        )
    return matches[0]


def matching_paths(written: str, paths: Iterable[str]) -> list[str]:
    """Return the paths that a path in a model config can mean.

    Python syntax has one meaning. A short form has several meanings if a key contains a dot:
    `a.b` is `obs['a.b']` and `obs['a']['b']`. The paths with fewer keys come first.

    Args:
        written: The path in the config, in either spelling.
        paths: The paths that it can name, in Python syntax.
    """
    known_paths = list(dict.fromkeys(paths))
    python_path = _DOUBLE_QUOTES.sub(r"['\1']", written)
    if python_path in known_paths:
        return [python_path]
    matches = [path for path in known_paths if short_path(path) == written]
    return sorted(matches, key=_count_steps)


def parts_above(leaf_paths: Iterable[str]) -> list[str]:
    """Return leaves' paths together with the paths of everything that contains them.

    With these, a config can name all leaves of a Dict, Tuple or list at once; `is_in_part` then
    tells which they are.
    """
    parts: dict[str, None] = {}
    for path in leaf_paths:
        for end in _ends_of_steps(path):
            parts[path[:end]] = None
    return list(parts)


def is_in_part(leaf_path: str, part_path: str) -> bool:
    """Return whether a leaf is a part of an observation, or inside the part.

    Args:
        leaf_path: Path of the leaf, in Python syntax.
        part_path: Path of the part, in Python syntax.
    """
    return leaf_path == part_path or leaf_path.startswith((f"{part_path}[", f"{part_path}."))


def short_path(path: str) -> str:
    """Return the short form of a path in Python syntax: `arm.camera` for `obs['arm']['camera']`.

    The whole observation, `obs`, has no shorter form.
    """
    ends = _ends_of_steps(path)
    text = ""
    for start, end in pairwise(ends):  # a step begins where the one before it ends
        step = path[start:end]
        quoted_key = _quoted_key(step)
        if quoted_key is None:
            text += step
        else:
            dot = "." if text else ""
            text += dot + _unquote(quoted_key)
    return text or path


def _count_steps(path: str) -> int:
    return len(_ends_of_steps(path))


def _ends_of_steps(path: str) -> Sequence[int]:
    """Return where the observation's name ends in a path, and where each step ends.

    A plugin's codec may name its leaves in any way. A path that cannot be read has no steps.
    """
    ends = list(_read_steps(path))
    if not ends or ends[-1] != len(path):
        return [len(path)]
    return ends


def _read_steps(path: str) -> Iterator[int]:
    """Yield the ends of the steps that can be read from the beginning of a path."""
    match = _ROOT.match(path)
    while match is not None:
        yield match.end()
        match = _STEP.match(path, match.end())


def _quoted_key(step: str) -> str | None:
    """Return the key of a step, in its quotes; None for a step without a key."""
    match = _STEP.fullmatch(step)
    return None if match is None else match.group(1)


def _unquote(quoted_key: str) -> str:
    """Return a key without its quotes."""
    key = quoted_key[1:-1]
    if "\\" not in key:
        return key
    try:
        return str(literal_eval(quoted_key))
    # A plugin's codec may have written a path that is no Python.
    except (SyntaxError, ValueError):
        return key
