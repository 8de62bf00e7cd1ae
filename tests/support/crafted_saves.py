"""Saved policies as someone would craft them who wants memory, time or a raw error: each signed as
a true one is.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import random
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from sockets import make_socket

Craft = tuple[str, Callable[[Path], None]]

HUGE = 10**9
#: What a config asks for, the slot, and the part that a lookup would have put there.
PARTS = [
    ("use_lstm", "memory", "rlcatalog-lstm/lstm"),
    ("use_attention", "memory", "rlcatalog-attention/attention"),
    ("use_autoregressive", "head", "rlcatalog-autoregressive/autoregressive"),
    ("use_parametric", "head", "rlcatalog-parametric/parametric"),
    ("custom_model", "trunk", "rlcatalog-attention/gtrxl"),
]
NONSENSE = [
    None,
    True,
    -1,
    0,
    0.5,
    HUGE,
    10**30,
    "",
    "x",
    "a:b",
    [],
    [[]],
    [HUGE],
    ["x"],
    {},
    {"x": 1},
    {"$float": 3},
]


def sign(folder: Path, data: dict[str, Any]) -> None:
    """Write a manifest with the checksum it must have."""
    data = {key: value for key, value in data.items() if key != "checksum"}
    text = json.dumps(data, sort_keys=True, separators=(",", ":"))
    data["checksum"] = hashlib.sha256(text.encode()).hexdigest()
    (folder / "policy.json").write_text(json.dumps(data))


def manifest_of(folder: Path) -> dict[str, Any]:
    """Read a manifest."""
    return json.loads((folder / "policy.json").read_text())  # type: ignore[no-any-return]


def arrays_of(folder: Path, role: str = "weights") -> Path:
    """Return the file of the weights or of the filter."""
    return next(folder.glob(f"{role}-*.safetensors"))


def put_arrays(
    folder: Path, content: bytes, role: str = "weights", size: int | None = None
) -> None:
    """Put another file of arrays in the place of one, named and signed; longer by a hole where
    `size` says so.
    """
    data, old = manifest_of(folder), arrays_of(folder, role)
    digest = hashlib.sha256(content).hexdigest()
    new = folder / f"{role}-{digest[:16]}.safetensors"
    old.unlink()
    new.write_bytes(content)
    if size is not None:
        os.truncate(new, size)
    del data["files"][old.name]
    data["files"][new.name] = digest
    sign(folder, data)


def packed(header: Any, body: bytes = b"") -> bytes:
    """Return the content of a safetensors file with any header."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + body


def header_of(folder: Path, role: str = "weights") -> tuple[dict[str, Any], bytes]:
    """Return header and body of a file of arrays."""
    content = arrays_of(folder, role).read_bytes()
    length = int.from_bytes(content[:8], "little")
    return json.loads(content[8 : 8 + length]), content[8 + length :]


# --- what is crafted ------------------------------------------------------------------------------


def manifests(keys: list[str]) -> Iterator[Craft]:
    """Manifests with anything under any key of theirs, and of the config."""

    def under(key: str, value: Any) -> Callable[[Path], None]:
        return lambda folder: sign(folder, {**manifest_of(folder), key: value})

    for key in keys:
        yield (
            f"no {key}",
            lambda folder, key=key: sign(
                folder, {k: v for k, v in manifest_of(folder).items() if k != key}
            ),
        )
        for value in NONSENSE:
            yield f"{key} = {value!r}", under(key, value)


def configs(keys: list[str]) -> Iterator[Craft]:
    """Configs with anything under any key."""

    def under(**values: Any) -> Callable[[Path], None]:
        def craft(folder: Path) -> None:
            data = manifest_of(folder)
            chosen = {slot: part for key, slot, part in PARTS if values.get(key) in (True, "gtrxl")}
            sign(
                folder,
                {
                    **data,
                    "config": {**data["config"], **values},
                    "parts": {**data["parts"], **chosen},
                },
            )

        return craft

    deep: Any = []
    for _ in range(900):
        deep = [deep]
    for name, values in {
        "wide layers": {"fcnet_hiddens": [20_000] * 4},
        "very wide layers": {"fcnet_hiddens": [HUGE] * 4},
        "wide last layers": {"post_fcnet_hiddens": [20_000] * 4},
        "many layers": {"fcnet_hiddens": [1] * 200_000},
        "many last layers": {"post_fcnet_hiddens": [1] * 200_000},
        "a deep list": {"custom_model_config": {"x": deep}},
        "a wide cell": {"use_lstm": True, "lstm_cell_size": 30_000},
        "a wide transformer": {"use_attention": True, "attention_dim": 20_000},
        "many units": {"use_attention": True, "attention_num_transformer_units": HUGE},
        "a long memory": {"use_attention": True, "attention_memory_inference": HUGE},
        "a memory as long as wide": {
            "use_attention": True,
            "attention_memory_inference": 10**6,
            "attention_dim": 3000,
        },
        "many past actions": {"use_attention": True, "attention_use_n_prev_actions": HUGE},
        "a transformer by itself": {
            "custom_model": "gtrxl",
            "custom_model_config": {"attention_dim": 20_000},
        },
        "a class by its path": {"custom_model": "os:system"},
        "an initialiser by its path": {"fcnet_weights_initializer": "os.system"},
        "a filter by its path": {"observation_filter": "os:system"},
    }.items():
        yield name, under(**values)
    for key in keys:
        for value in NONSENSE:
            yield f"config {key} = {value!r}", under(**{key: value})


SPACES: list[Any] = [
    {"space": "box", "dtype": "float32", "shape": [10**6, 10**6], "low": "0.0", "high": "1.0"},
    {"space": "box", "dtype": "float32", "shape": [10**30], "low": "0.0", "high": "1.0"},
    {"space": "box", "dtype": "float32", "shape": [1] * 100, "low": "0.0", "high": "1.0"},
    {"space": "box", "dtype": "float32", "shape": [-1], "low": "0.0", "high": "1.0"},
    {"space": "box", "dtype": "float32", "shape": "x", "low": "0.0", "high": "1.0"},
    {"space": "box", "dtype": "float99", "shape": [3], "low": "0.0", "high": "1.0"},
    {"space": "box", "dtype": "O", "shape": [3], "low": "0.0", "high": "1.0"},
    {"space": "box", "dtype": "V99999999", "shape": [3], "low": "0.0", "high": "1.0"},
    {"space": "box", "dtype": 7, "shape": [3], "low": "0.0", "high": "1.0"},
    {"space": "box", "dtype": "float32", "shape": [3], "low": "1.0", "high": "0.0"},
    {"space": "box", "dtype": "float32", "shape": [3], "low": ["0.0"], "high": "1.0"},
    {"space": "box", "dtype": "float32", "shape": [3], "low": "__import__('os')", "high": "1.0"},
    {"space": "box", "dtype": "int64", "shape": [3], "low": "9" * 5000, "high": "1"},
    {"space": "discrete", "n": 10**12, "start": 0, "dtype": "int64"},
    {"space": "discrete", "n": 10**30, "start": 0, "dtype": "int64"},
    {"space": "discrete", "n": -1, "start": 0, "dtype": "int64"},
    {"space": "discrete", "n": 0.5, "start": "x", "dtype": "int64"},
    {"space": "discrete", "n": 3, "start": 10**30, "dtype": "int8"},
    {"space": "multi_discrete", "nvec": [10**12] * 3, "start": [0] * 3, "dtype": "int64"},
    {"space": "multi_discrete", "nvec": [[3], [3, 4]], "start": [0], "dtype": "int64"},
    {"space": "multi_discrete", "nvec": [], "start": [], "dtype": "int64"},
    {"space": "multi_discrete", "nvec": "x", "start": [0], "dtype": "int64"},
    {"space": "multi_binary", "n": 10**12},
    {"space": "multi_binary", "n": [10**6, 10**6]},
    {"space": "multi_binary", "n": -5},
    {"space": "text", "max_length": 10**12, "min_length": 1, "charset": "ab"},
    {"space": "text", "max_length": 1, "min_length": 5, "charset": ""},
    {"space": "sequence", "stack": False},
    {"space": "sequence", "stack": False, "children": []},
    {"space": "sequence", "stack": False, "children": 3},
    {"space": "graph"},
    {"space": "graph", "children": [None]},
    {"space": "repeated", "n": 3},
    {
        "space": "repeated",
        "n": HUGE,
        "children": [{"space": "discrete", "n": HUGE, "start": 0, "dtype": "int64"}],
    },
    {
        "space": "repeated",
        "n": "x",
        "children": [{"space": "discrete", "n": 3, "start": 0, "dtype": "int64"}],
    },
    {"space": "tuple"},
    {"space": "tuple", "children": [3, None, "x"]},
    {"space": "oneof"},
    {"space": "dict"},
    {"space": "dict", "keys": ["a"], "children": []},
    {"space": "dict", "keys": [["a"]], "children": [{"space": "multi_binary", "n": 2}]},
    {"space": "simplex", "shape": [10**12], "concentration": [1.0], "dtype": "float32"},
    {"space": "simplex", "shape": [2], "concentration": ["x", None], "dtype": "float32"},
    {"space": "os.system", "n": 1},
    {"space": ["box"]},
    {"space": None},
    {},
    {
        "space": "tuple",
        "children": [
            {"space": "box", "dtype": "float64", "shape": [1 << 24], "low": "0.0", "high": "1.0"}
        ]
        * 40,
    },
]


def spaces() -> Iterator[Craft]:
    """Spaces that are too large, too deep or none."""

    def under(key: str, space: Any) -> Callable[[Path], None]:
        return lambda folder: sign(folder, {**manifest_of(folder), key: space})

    for key in ("observation_space", "action_space"):
        for number, space in enumerate(SPACES):
            yield f"{key} {number}: {str(space)[:70]}", under(key, space)
        for depth in (200, 450):
            nested: Any = {"space": "multi_binary", "n": 2}
            for _ in range(depth):
                nested = {"space": "tuple", "children": [nested]}
            yield f"{key} {depth} deep", under(key, nested)

    def far_too_deep(folder: Path) -> None:
        text = (folder / "policy.json").read_text()
        (folder / "policy.json").write_text(
            text.replace('"children"', '"x"')[:-2] + ', "x": ' + "[" * 10**5 + "}"
        )

    yield "a space 100,000 deep", far_too_deep


def special_files() -> Iterator[Craft]:
    """What is no regular file, or longer than it may be."""

    def replaced(role: str, make: Callable[[Path], Any]) -> Callable[[Path], None]:
        def craft(folder: Path) -> None:
            path = folder / "policy.json" if role == "manifest" else arrays_of(folder, role)
            path.unlink()
            make(path)

        return craft

    def sparse(path: Path) -> None:
        path.touch()
        os.truncate(path, 1 << 40)

    ways: dict[str, Callable[[Path], Any]] = {
        "a pipe": os.mkfifo,
        "/dev/zero": lambda path: path.symlink_to("/dev/zero"),
        "/dev/stdin": lambda path: path.symlink_to("/dev/stdin"),
        "a link to itself": lambda path: path.symlink_to(path.name),
        "a link to nowhere": lambda path: path.symlink_to("nowhere"),
        "a folder": Path.mkdir,
        "a socket": make_socket,
        "a hole of a terabyte": sparse,
        "nothing in it": Path.touch,
    }
    for role in ("manifest", "weights", "filter"):
        for name, make in ways.items():
            yield f"{role}: {name}", replaced(role, make)


def headers() -> Iterator[Craft]:
    """Headers of weights that say what is not so."""

    def entry(dtype: Any = "F32", shape: Any = (2,), offsets: Any = (0, 8)) -> dict[str, Any]:
        return {"dtype": dtype, "shape": shape, "data_offsets": offsets}

    contents = {
        "no table": packed([1]),
        "no JSON": packed(b"{"),
        "not UTF-8": packed(b"\xff\xfe"),
        "deep": packed(b'{"a": ' + b"[" * 10**5),
        "a header longer than the file": struct.pack("<Q", 1 << 60) + b"{}",
        "a header of 2**64 - 1": b"\xff" * 8,
        "only a length": struct.pack("<Q", 0),
        "an entry that is none": packed({"a": 3}),
        "no offsets": packed({"a": {"dtype": "F32", "shape": [2]}}, b"\0" * 8),
        "unknown dtype": packed({"a": entry("F99")}, b"\0" * 8),
        "dtype of a list": packed({"a": entry(["F32"])}, b"\0" * 8),
        "half dtype of another kind": packed({"a": entry("BF16", [4])}, b"\0" * 8),
        "negative shape": packed({"a": entry(shape=[-2, -1])}, b"\0" * 8),
        "shape of floats": packed({"a": entry(shape=[2.0])}, b"\0" * 8),
        "shape of text": packed({"a": entry(shape="2")}, b"\0" * 8),
        "huge shape": packed(
            {"a": entry(shape=[1 << 40, 1 << 40], offsets=[0, 1 << 82])}, b"\0" * 8
        ),
        "many axes": packed({"a": entry(shape=[1] * 99 + [2])}, b"\0" * 8),
        "huge empty shape": packed({"a": entry(shape=[0, 1 << 80], offsets=[0, 0])}),
        "offsets that overlap": packed({"a": entry(), "b": entry(offsets=[4, 12])}, b"\0" * 12),
        "a gap": packed({"a": entry(), "b": entry(offsets=[12, 20])}, b"\0" * 20),
        "offsets turned round": packed({"a": entry(offsets=[8, 0])}, b"\0" * 8),
        "three offsets": packed({"a": entry(offsets=[0, 8, 8])}, b"\0" * 8),
        "bytes behind it": packed({"a": entry()}, b"\0" * 16),
        "no arrays": packed({}),
        "metadata alone": packed({"__metadata__": {"x": "y"}}),
        "other arrays": packed({"a": entry()}, b"\0" * 8),
        "a hundred thousand arrays": packed(
            {f"a{i}": entry(shape=[0], offsets=[0, 0]) for i in range(100_000)}
        ),
    }
    for role in ("weights", "filter"):
        for name, content in contents.items():
            yield (
                f"{role}: {name}",
                lambda folder, role=role, content=content: put_arrays(folder, content, role),
            )

    def hole(folder: Path) -> None:
        size = 1 << 38
        content = packed({"a": entry(shape=[size // 4], offsets=[0, size])})
        put_arrays(folder, content, size=len(content) + size)

    yield "an array of 256 gigabytes that are a hole", hole


def arrays(seed: int) -> Iterator[Craft]:
    """Files of arrays that are true but for one thing: a dtype, a shape, a name, an
    array left out.
    """
    sizes = {"F64": 8, "F16": 2, "I32": 4, "U8": 1, "BOOL": 1, "I64": 8}

    def changed(role: str, change: Callable[[dict[str, Any]], None]) -> Callable[[Path], None]:
        def craft(folder: Path) -> None:
            header, _ = header_of(folder, role)
            header.pop("__metadata__", None)
            change(header)
            place = 0
            for entry in header.values():
                size = math.prod(entry["shape"]) * {"F32": 4, **sizes}[entry["dtype"]]
                entry["data_offsets"], place = [place, place + size], place + size
            put_arrays(folder, packed(header, random.Random(seed).randbytes(place)), role)

        return craft

    for role in ("weights", "filter"):
        for index in range(4):

            def nth(header: dict[str, Any], index: int = index) -> str:
                return sorted(header)[index % len(header)]

            for dtype in sizes:
                yield (
                    f"{role} {index} as {dtype}",
                    changed(role, lambda h, nth=nth, dtype=dtype: h[nth(h)].update(dtype=dtype)),
                )
            for shape in ([], [0], [1], [7], [3, 3]):
                yield (
                    f"{role} {index} of shape {shape}",
                    changed(role, lambda h, nth=nth, shape=shape: h[nth(h)].update(shape=shape)),
                )
            yield f"{role} without {index}", changed(role, lambda h, nth=nth: h.pop(nth(h)))
            yield (
                f"{role} with {index} renamed",
                changed(role, lambda h, nth=nth: h.update(other=h.pop(nth(h)))),
            )
        yield f"{role} of random bits", changed(role, lambda h: None)


def texts() -> Iterator[Craft]:
    """Manifests that are no JSON."""
    for name, text in {
        "empty": b"",
        "no UTF-8": b"\xff\xfe\x00",
        "deep": b"[" * 10**6,
        "deep table": b'{"format": ' * 10**5,
        "a long number": b'{"format": "rlcatalog-policy", "format_version": ' + b"9" * 10**5 + b"}",
        "no number": b'{"format": "rlcatalog-policy", "format_version": NaN}',
        "null": b"null",
        "text": b'"x"',
        "zeros": b"\0" * 1000,
        "a version of true": b'{"format": "rlcatalog-policy", "format_version": true}',
    }.items():
        yield (
            f"policy.json: {name}",
            lambda folder, text=text: (folder / "policy.json").write_bytes(text),
        )


def crafts(manifest_keys: list[str], config_keys: list[str], seed: int = 0) -> list[Craft]:
    """Return all of them."""
    makers = (
        manifests(manifest_keys),
        configs(config_keys),
        spaces(),
        special_files(),
        headers(),
        arrays(seed),
        texts(),
    )
    return [craft for maker in makers for craft in maker]
