"""Rules for lines that today's PyTorch wants otherwise."""

from __future__ import annotations

import libcst as cst

from rlcatalog_compat.codemod.context import Context, code, dotted

#: Layers that take no number but Python's own.
RECURRENT = ("LSTM", "GRU", "RNN", "LSTMCell", "GRUCell", "RNNCell")


def is_recurrent(node: cst.Call) -> bool:
    """Return whether a call makes a recurrent layer of PyTorch's."""
    front, _, name = dotted(node.func).rpartition(".")
    return name in RECURRENT and front in ("nn", "torch.nn")


def number(context: Context, node: cst.Attribute) -> cst.BaseExpression:
    """Return `action_space.n` as a number of Python's, which Gymnasium's is not; recurrent layers take no other."""
    if not context.recurrent or context.whole or node.attr.value != "n" or not code(node.value).endswith("space"):
        return node
    return cst.Call(cst.Name("int"), [cst.Arg(node)])
