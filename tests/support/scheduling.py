"""Which worker runs which tests, and in which order: file by file, the long ones first."""

from __future__ import annotations

from typing import Any

import pytest

#: One worker runs all of these, one after the other, beginning at once: Ray is started once.
_TOGETHER = "plugins/rllib/tests/"
#: What comes last: many small files, so that both workers end at the same time.
_LAST = ("catalog/", "builtin_dists/", "builtin_models/")


def _place(path: str) -> int:
    return 0 if path.startswith(_TOGETHER) else 2 if path.startswith(_LAST) else 1


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Order the tests; each kind stays in the order it was found in."""
    items.sort(key=lambda item: _place(item.nodeid))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Return what hands out the files, where `--dist loadfile` asks for it."""
    if config.getvalue("dist") != "loadfile":
        return None
    from xdist.scheduler import LoadFileScheduling

    class ByFile(LoadFileScheduling):
        """Hands out files in their order."""

        def _split_scope(self, nodeid: str) -> str:
            return _TOGETHER if nodeid.startswith(_TOGETHER) else str(super()._split_scope(nodeid))

    config.option.loadscopereorder = False  # the most tests first, where the longest would be right
    return ByFile(config, log)
