"""Values that nobody means to write into a config, drawn from a seeded generator."""

import collections
import datetime
import decimal
import enum
import fractions
import functools
import types
from collections.abc import Mapping

import numpy as np

Point = collections.namedtuple("Point", "x y")
Colour = enum.Enum("Colour", "RED BLUE")


class Refuses:
    """Raises at whatever is asked of it: repr, str, comparison, hash, truth, length, iteration."""

    def _no(self, *arguments):
        raise ZeroDivisionError("asked too much")

    __repr__ = __str__ = __eq__ = __bool__ = __len__ = __iter__ = __getattr__ = __call__ = (
        __index__
    ) = _no
    __float__ = __int__ = __lt__ = __contains__ = __getitem__ = __format__ = _no
    __hash__ = object.__hash__


class RefusingMapping(Mapping):
    def __getitem__(self, key):
        raise ZeroDivisionError("no such thing")

    def __iter__(self):
        return iter(("a", "b"))

    def __len__(self):
        return 2


class Endless(list):
    def __iter__(self):
        while True:
            yield self


class LoudName(str):
    """Text whose repr fails."""

    def __repr__(self):
        raise ZeroDivisionError("no repr")


class BareException(BaseException):
    def __str__(self):
        raise RuntimeError("no text either")


def raises(*arguments, **options):
    raise ZeroDivisionError("called")


def raises_silently(*arguments, **options):
    raise BareException


class RaisingClass:
    def __init__(self, *arguments, **options):
        raise ZeroDivisionError("made")


class Meta(type):
    def __repr__(cls):
        raise ZeroDivisionError("no repr of the class")


class UnspeakableClass(metaclass=Meta):
    pass


def cyclic_list():
    found = [1]
    found.append(found)
    return found


def cyclic_dict():
    found = {"a": 1}
    found["self"] = {"b": [found]}
    return found


def cyclic_array():
    found = np.empty(2, object)
    found[:] = [[found], 1]
    return found


def laughs(depth=50):
    """A list of few objects and 2 ** depth leaves."""
    found = [1]
    for _ in range(depth):
        found = [found, found]
    return found


def deep(depth, mapping=False):
    found = 1
    for _ in range(depth):
        found = {"a": found} if mapping else [found]
    return found


_SCALARS = [
    None,
    True,
    False,
    0,
    1,
    -1,
    2,
    7,
    64,
    2**31,
    2**63,
    2**64,
    10**400,
    -(10**400),
    0.0,
    -0.0,
    0.5,
    1.5,
    -3.7,
    1e308,
    5e-324,
    float("inf"),
    float("-inf"),
    float("nan"),
    1j,
    complex("nan"),
    "",
    " ",
    "relu",
    "ReLU",
    "normc",
    "tanh",
    "torch",
    "first",
    "same",
    "nature",
    "obs",
    "obs[0]",
    "obs['a']",
    "fcnet",
    "lstm",
    "categorical",
    "MeanStdFilter",
    "rlcatalog-fcnet/fcnet",
    "no/such",
    "a/b/c",
    "../../etc/passwd",
    "os:system",
    "\ud800",
    "x\udfffy",
    "\x00",
    "[/]",
    "[bold]",
    "ünïcödé",
    "\u202eabc",
    "{0}",
    "%s",
    "a" * 100_000,
    b"",
    b"bytes",
    bytearray(b"x"),
    memoryview(b"abc"),
    (),
    [],
    {},
    set(),
    frozenset({1}),
    {1, "a"},
    range(3),
    range(10**12),
    slice(1),
    ...,
    NotImplemented,
    object,
    int,
    type,
    len,
    print,
    abs,
    raises,
    raises_silently,
    RaisingClass,
    UnspeakableClass,
    UnspeakableClass(),
    lambda: None,
    functools.partial(raises),
    Refuses(),
    RefusingMapping(),
    Endless([1]),
    LoudName("relu"),
    LoudName("fcnet"),
    types.MappingProxyType({"a": 1}),
    collections.OrderedDict(a=1),
    collections.ChainMap({"a": 1}),
    Point(1, 2),
    collections.deque([1]),
    collections.UserDict(a=1),
    Colour.RED,
    decimal.Decimal("NaN"),
    decimal.Decimal("1e999"),
    fractions.Fraction(1, 3),
    datetime.datetime(2020, 1, 1),
    datetime.timedelta(1),
    Exception("x"),
    BareException(),
    np.float32(1.5),
    np.float64("nan"),
    np.longdouble(1.5),
    np.int8(-1),
    np.uint64(2**64 - 1),
    np.bool_(True),
    np.str_("relu"),
    np.bytes_(b"x"),
    np.datetime64("NaT", "s"),
    np.array([64, 64]),
    np.array([[1, 2], [3, 4]]),
    np.array(3),
    np.zeros(0),
    np.array(["a"]),
    np.zeros(2, [("a", int)]),
    np.ma.masked,
    np.ma.array([1], mask=[True]),
    np.dtype("int8"),
    np.random,
    np,
    iter(()),
]
_MADE = [
    cyclic_list,
    cyclic_dict,
    cyclic_array,
    laughs,
    lambda: deep(50),
    lambda: deep(2_000),
    lambda: deep(100_000),
    lambda: deep(50, True),
    lambda: deep(100_000, True),
    lambda: (x for x in [1, 2]),
    lambda: np.array([[1], "a", None, UnspeakableClass], object),
    lambda: list(range(100_000)),
    lambda: [[1] * 300] * 300,
    lambda: {f"k{i}": i for i in range(20_000)},
]


def value(rng, depth=0):
    """Draw a value, nested up to three deep."""
    drawn = rng.random()
    if drawn < 0.62 or depth > 2:
        return rng.choice(_SCALARS)
    if drawn < 0.72:
        return rng.choice(_MADE)()
    items = [value(rng, depth + 1) for _ in range(rng.choice([0, 1, 1, 2, 3]))]
    if drawn < 0.86:
        return rng.choice([list, tuple])(items)
    return {key(rng): item for item in items}


def key(rng):
    """Draw a key of a nested dictionary."""
    return rng.choice(
        [
            "a",
            "std",
            "gain",
            "weights",
            "obs",
            "obs['a']",
            "",
            "\ud800",
            "a b",
            "self",
            "name",
            0,
            1,
            -1,
            1.5,
            True,
            None,
            b"a",
            (1, 2),
            frozenset(),
            Colour.RED,
            LoudName("std"),
            Refuses(),
            float("nan"),
            "x" * 10_000,
        ]
    )
