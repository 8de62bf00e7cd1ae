"""`tools/environments.py`: what it installs and tries, and the page that it writes. The run itself
is `make environments`.
"""

from __future__ import annotations

import json

import environments
import environments_child as child
import environments_page as page
import numpy as np
import pytest
from environment_makers import OnePlayer
from gymnasium import spaces

MASK = spaces.Box(0, 1, (9,), np.int8)
#: What pip prints when packages ask for different versions.
CONFLICT = """\
Collecting nle==1.3.0
ERROR: Cannot install nle==1.3.0 and rlcatalog==0.1.0 because these package versions conflict.

The conflict is caused by:
    rlcatalog 0.1.0 depends on gymnasium<2 and >=1.2.2
    nle 1.3.0 depends on gymnasium==1.2.0

ERROR: ResolutionImpossible: for help visit https://pip.pypa.io
"""
#: What pip prints when there is no wheel for this Python.
NO_WHEEL = """\
ERROR: Could not find a version that satisfies the requirement procgen==0.10.7 (from versions: none)
ERROR: No matching distribution found for procgen==0.10.7
"""
#: What pip prints when a source cannot be built.
NO_BUILD = """\
  error: subprocess-exited-with-error
      error in gym setup command: 'extras_require' must be a dictionary
note: This is an issue with the package mentioned above, not pip.
"""


def make_row(**changes):
    """Return the result of an environment that works, with changes."""
    row = {
        "name": "Game-v0",
        "id": "Game-v0",
        "package": "games",
        "version": "1.0",
        "group": "grids",
        "python": "3.11.7",
        "date": "2026-11-29",
        "gymnasium": "1.3.0",
        "numpy": "2.4.6",
        "torch": "2.13.0",
        "model": "fcnet",
        "distribution": "categorical",
        "failed": None,
    }
    return row | changes


@pytest.mark.parametrize(
    ("output", "reason"),
    [
        pytest.param(CONFLICT, "nle 1.3.0 depends on gymnasium==1.2.0", id="conflict"),
        pytest.param(NO_WHEEL, "No matching distribution found for procgen==0.10.7", id="no wheel"),
        pytest.param(
            NO_BUILD,
            "error in gym setup command: 'extras_require' must be a dictionary",
            id="no build",
        ),
    ],
)
def test_install_reason_is_one_line_of_pips_output(output, reason):
    assert environments.install_reason(output) == reason


def test_first_line_leaves_out_what_changes_from_run_to_run():
    error = ValueError("<function f at 0x7f659e1a5440> is wrong.\nMore.")
    assert child.first_line(error) == "ValueError: <function f> is wrong."


def test_list_names_each_environment_once():
    groups, entries = environments.read_list()
    names = [entry["name"] for entry in entries]
    assert None not in names
    assert len(names) == len(set(names))
    groups_of_tests = {test.group for test in environments.read_tests()}
    assert {entry["group"] for entry in entries} | groups_of_tests == set(groups)


def test_list_pins_every_requirement_and_package():
    groups, entries = environments.read_list()
    assert all("==" in requirement for group in groups.values() for requirement in group)
    for entry in entries:
        assert environments.pinned_version(entry["package"], groups[entry["group"]])


def test_kept_results_are_those_of_listed_environments():
    _, entries = environments.read_list()
    rows = json.loads(page.DATA.read_text(encoding="utf-8"))
    assert {row["name"] for row in rows} <= {entry["name"] for entry in entries}


def test_results_are_kept_in_the_lists_order(tmp_path, monkeypatch):
    monkeypatch.setattr(page, "DATA", tmp_path / "results.json")
    entries = [{"name": "one"}, {"name": "two"}]
    environments.write_results(
        entries, {"two": {"name": "two"}, "gone": {}, "one": {"name": "one"}}
    )
    assert list(environments.read_results()) == ["one", "two"]


def test_environment_with_a_result_is_not_tried_again(tmp_path, monkeypatch, capsys):
    kept = [make_row(name=entry["name"]) for entry in environments.read_list()[1]]
    monkeypatch.setattr(page, "DATA", tmp_path / "results.json")
    page.DATA.write_text(json.dumps(kept), encoding="utf-8")
    monkeypatch.setattr(page, "main", lambda arguments: 0)
    # Fails if an environment is tried, because its group has to be made first.
    monkeypatch.setattr(environments, "make_group", None)
    monkeypatch.setattr(environments, "read_tests", list)
    assert environments.main([]) == 0
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(("passes", "status"), [(True, 0), (False, 1)], ids=["pass", "fail"])
def test_tests_of_a_group_run_each_time(passes, status, monkeypatch, capsys):
    files = []

    def run_tests(tests, requirements, interpreter):
        assert "jax==0.10.2" in requirements
        files.append(tests.file)
        return passes

    monkeypatch.setattr(page, "main", lambda arguments: 0)
    monkeypatch.setattr(environments, "run_tests", run_tests)

    assert environments.main(["--group", "jax"]) == status

    assert files == ["tests/frameworks/test_jax_plugin.py"]
    assert ("failed: tests/frameworks/test_jax_plugin.py" in capsys.readouterr().out) != passes


class TakeTurns:
    """Game in PettingZoo's form: two players add 1 to 9 to a sum, and who reaches 5 wins.

    The second player may only add 2.
    """

    possible_agents = ("first", "second")

    def observation_space(self, player):
        return spaces.Dict({"observation": spaces.Box(0, 9, (1,)), "action_mask": MASK})

    def action_space(self, player):
        return spaces.Discrete(9)

    def reset(self, seed=None, options=None):
        self.sum = 0
        self.over = False
        self.agent_selection = "first"
        self.rewards = {"first": 0, "second": 0}

    def last(self):
        player = self.agent_selection
        mask = np.ones(9, np.int8)
        if player == "second":
            mask = (np.arange(9) == 1).astype(np.int8)
        obs = {"observation": [self.sum], "action_mask": mask}
        return obs, self.rewards[player], self.over, False, {}

    def step(self, action):
        player = self.agent_selection
        other = {"first": "second", "second": "first"}[player]
        if self.over:
            assert action is None
        else:
            self.sum += action + 1
            self.over = self.sum >= 5
            if self.over:
                self.rewards = {player: 1, other: -1}
        self.agent_selection = other


def play(game, actions):
    """Play a game as one player, and return each step's sum, reward and end."""
    env = OnePlayer(game)
    env.reset(seed=0)
    steps = [env.step(action) for action in actions]
    return [(obs["observation"][0], reward, over) for obs, reward, over, _, _ in steps]


def test_one_player_sees_the_game_at_its_turns():
    # 1, then the other player adds 2.
    assert play(TakeTurns(), actions=[0]) == [(3, 0.0, False)]


def test_one_player_is_rewarded_for_a_win():
    # 1 and 2 are 3, and 2 more are 5.
    assert play(TakeTurns(), actions=[0, 1])[-1] == (5, 1.0, True)


def test_one_player_is_punished_for_the_others_win():
    # 1 and 2 are 3, 1 more is 4, and the other player reaches 6.
    assert play(TakeTurns(), actions=[0, 0])[-1] == (6, -1.0, True)


class OverAtOnce(TakeTurns):
    """The same game; the first one is over before anybody moves."""

    games = 0

    def reset(self, seed=None, options=None):
        super().reset(seed, options)
        self.games += 1
        self.over = self.games == 1


def test_one_player_begins_in_a_game_that_is_not_over():
    game = OverAtOnce()
    OnePlayer(game).reset(seed=0)
    assert not game.over
