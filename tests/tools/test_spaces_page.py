"""The tool that writes what is chosen for the spaces of a page: its tables and pictures."""

from __future__ import annotations

import pytest
import spaces_page

PAGE = """\
# Spaces

## A coin

```python
import gymnasium as gym

import rlcatalog

space = gym.spaces.Box(-1, 1, (3,))
policy = rlcatalog.build(space, gym.spaces.Discrete(2))
```

<!-- a-coin -->

<!-- /a-coin -->

## More to read

This section has no code.
"""


@pytest.fixture
def page(tmp_path, monkeypatch):
    """A page with one case, whose table and picture are not written yet."""
    page = tmp_path / "spaces.md"
    page.write_text(PAGE, encoding="utf-8")
    monkeypatch.setattr(spaces_page, "TARGET", page)
    monkeypatch.setattr(spaces_page, "PICTURES", tmp_path / "pictures")
    return page


def change(page, old, new):
    page.write_text(page.read_text(encoding="utf-8").replace(old, new), encoding="utf-8")


def test_table_and_picture_show_what_the_code_builds(page):
    assert spaces_page.main([]) == 0

    row = "| distribution | `categorical` | the action is one of 2 values |"
    assert row in page.read_text(encoding="utf-8")
    picture = (page.parent / "pictures/a-coin.svg").read_text(encoding="utf-8")
    assert "action_dist: categorical" in picture
    assert "prefers-color-scheme: dark" in picture


def test_table_has_the_critic_and_the_parts_of_an_action(page):
    change(page, "Discrete(2)", "Tuple((gym.spaces.Discrete(2), gym.spaces.Box(0, 1)))")
    change(page, ")\n```", ', {"critic": {"fcnet_hiddens": [4]}})\n```')

    spaces_page.main([])

    rows = [line for line in page.read_text(encoding="utf-8").splitlines() if line[:2] == "| "]
    assert [line.split(" | ")[:2] for line in rows[2:]] == [
        ["| preprocessor", "`none`"],
        ["| model", "`fcnet`"],
        ["| critic's model", "`fcnet`"],
        ["| distribution", "`multi_action`"],
        ["| `action[0]`", "`categorical`"],
        ["| `action[1]`", "`diag_gaussian`"],
    ]


def test_check_fails_after_the_code_has_changed(page):
    spaces_page.main([])
    assert spaces_page.main(["--check"]) == 0

    change(page, "Discrete(2)", "Discrete(3)")

    assert spaces_page.main(["--check"]) == 1
