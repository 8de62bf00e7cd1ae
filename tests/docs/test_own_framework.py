"""The page for authors of frameworks: it names all targets, operations and operators.

Crosses: testing, ppo.
"""

from __future__ import annotations

import re
import sys

import framework_page
import pytest
import tape

from rlcatalog.frameworks import TensorOps, frameworks
from rlcatalog.frameworks.table import _TARGETS, FrameworkSpec
from rlcatalog_ppo import A2C, PG, PPO
from rlcatalog_testing import PluginEntryPoint, isolated_catalog

PARTS = ("rlcatalog-preprocessors", "rlcatalog-fcnet", "rlcatalog-categorical", "rlcatalog-ppo")
PAGE = framework_page.PAGE.read_text(encoding="utf-8")


def quoted_targets():
    """Return the targets in the first cells of the page's tables."""
    targets = []
    for line in PAGE.splitlines():
        first_cell = line.removeprefix("|").partition("|")[0]
        targets += re.findall(r'`"([\w-]+)"`', first_cell)
    return targets


def test_page_has_every_target_of_a_declaration():
    assert set(quoted_targets()) >= _TARGETS


@pytest.mark.parametrize("framework", ["torch", "tf"])
def test_page_has_every_target_that_packages_add(framework):
    assert framework in frameworks()
    added = set()
    for spec in FrameworkSpec.table.specs.values():
        if spec.extends is not None and spec.name == framework:
            added |= spec.targets.keys()
    formats = {name for name in added if name.startswith("export-")}  # the page says what they are
    assert set(quoted_targets()) >= added - formats


def test_page_has_the_current_table_of_operations():
    assert framework_page.operations_table() in PAGE


def test_table_has_all_files_that_ask_for_operations():
    assert framework_page.unlisted_files() == []


def test_operations_are_those_of_the_base_class():
    assert {"reshape", "without_gradient"} <= framework_page.OPERATIONS
    assert all(hasattr(TensorOps, name) for name in framework_page.OPERATIONS)


# --- operators of tensors -------------------------------------------------------------------------

#: Method of a tensor's class → how the page writes what calls it.
OPERATORS = {
    "__add__": "x + y",
    "__radd__": "2 + x",
    "__sub__": "x - y",
    "__rsub__": "2 - x",
    "__mul__": "x * y",
    "__rmul__": "2 * x",
    "__truediv__": "x / y",
    "__rtruediv__": "2 / x",
    "__pow__": "x ** 2",
    "__neg__": "-x",
    "__abs__": "abs(x)",
    "__lt__": "x < y",
    "__le__": "x <= y",
    "__gt__": "x > y",
    "__ge__": "x >= y",
    "__getitem__": "x[…]",
    "__len__": "len(x)",
    "shape": "x.shape",
    "dtype": "x.dtype",
}


@pytest.fixture
def methods_called(monkeypatch):
    """Names of the methods of tape's arrays that were called from rlcatalog's code."""
    called = set()

    def record(name, method):
        def recorded(*args, **kwargs):
            caller = sys._getframe(1).f_globals["__name__"]
            if caller.startswith("rlcatalog") and not caller.startswith("rlcatalog_tape"):
                called.add(name)
            return method(*args, **kwargs)

        return recorded

    for name, value in vars(tape.Array).items():
        if isinstance(value, property):
            monkeypatch.setattr(tape.Array, name, property(record(name, value.fget)))
        elif callable(value) and name not in ("__init__", "__hash__"):
            monkeypatch.setattr(tape.Array, name, record(name, value))
    return called


def test_page_has_the_operators_that_training_needs(methods_called):
    plugin = PluginEntryPoint("rlcatalog_tape.plugin", "rlcatalog-tape")
    catalog = isolated_catalog(*PARTS, plugin)
    config = {
        "framework": "tape",
        "model": {"fcnet_hiddens": [4]},
        "num_envs": 2,
        "rollout_length": 8,
        "entropy_coeff": 0.01,
    }

    for algorithm_class in (PPO, A2C, PG):
        more = {"kl_coeff": 0.2, "minibatch_size": 8} if algorithm_class is PPO else {}
        algorithm = algorithm_class("CartPole-v1", {**config, **more}, catalog=catalog)
        algorithm.train()
        algorithm.stop()

    listed = PAGE.partition("<!-- operators -->")[2].partition("<!-- /operators -->")[0]
    assert set(re.findall(r"`(.+?)`", listed)) == {OPERATORS[name] for name in methods_called}
