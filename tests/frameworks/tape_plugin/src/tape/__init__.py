"""Tape: NumPy arrays that remember how they were computed, and the gradients that follow from it.

This package knows nothing of rlcatalog. It is a tiny library with an `Array` class, a few functions
of arrays, and `gradients`.
"""

from tape.array import Array, Numbers, data_of
from tape.functions import clip, concat, exp, log, maximum, minimum, relu, tanh, where
from tape.gradients import gradients

__all__ = [
    "Array",
    "Numbers",
    "clip",
    "concat",
    "data_of",
    "exp",
    "gradients",
    "log",
    "maximum",
    "minimum",
    "relu",
    "tanh",
    "where",
]
