"""Values that nobody means to write into a config, drawn from a seeded generator."""

import collections
import datetime
import decimal
import enum
import fractions
import functools
import types

import numpy as np

Point = collections.namedtuple("Point", "x y")
Colour = enum.Enum("Colour", "RED BLUE")


def raises(*arguments, **options):
    raise ZeroDivisionError("called")


class RaisingClass:
    def __init__(self, *arguments, **options):
        raise ZeroDivisionError("made")


def cyclic_list():
    items = [1]
    items.append(items)
    return items


def cyclic_dict():
    mapping = {"a": 1}
    mapping["self"] = {"b": [mapping]}
    return mapping


def cyclic_array():
    array = np.empty(2, object)
    array[:] = [[array], 1]
    return array


def list_of_shared_lists(depth=50):
    """Return a list of few objects, which has 2 ** depth leaves."""
    items = [1]
    for _ in range(depth):
        items = [items, items]
    return items


def nested_list(depth):
    value = 1
    for _ in range(depth):
        value = [value]
    return value


def nested_dict(depth):
    value = 1
    for _ in range(depth):
        value = {"a": value}
    return value


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
    RaisingClass,
    lambda: None,
    functools.partial(raises),
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
_CONSTRUCTORS = [
    cyclic_list,
    cyclic_dict,
    cyclic_array,
    list_of_shared_lists,
    lambda: nested_list(50),
    lambda: nested_list(2_000),
    lambda: nested_list(100_000),
    lambda: nested_dict(50),
    lambda: nested_dict(100_000),
    lambda: (x for x in [1, 2]),
    lambda: np.array([[1], "a", None, RaisingClass], object),
    lambda: list(range(100_000)),
    lambda: [[1] * 300] * 300,
    lambda: {f"k{i}": i for i in range(20_000)},
]


def draw_value(rng, depth=0):
    """Draw a value, nested up to three deep."""
    drawn = rng.random()
    if drawn < 0.62 or depth > 2:
        return rng.choice(_SCALARS)
    if drawn < 0.72:
        return rng.choice(_CONSTRUCTORS)()
    items = [draw_value(rng, depth + 1) for _ in range(rng.choice([0, 1, 1, 2, 3]))]
    if drawn < 0.86:
        return rng.choice([list, tuple])(items)
    return {draw_key(rng): item for item in items}


def draw_key(rng):
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
            float("nan"),
            "x" * 10_000,
        ]
    )
