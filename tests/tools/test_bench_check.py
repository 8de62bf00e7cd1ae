"""What `make bench-check` says of a table and of what was measured, and how a case's figure comes
about.
"""

from __future__ import annotations

import json
import re
import statistics
import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).resolve().parents[2]))

from benchmarks import __main__ as command, harness, page, profiles, table
from benchmarks.harness import Case, Figure, Result
from rlcatalog.errors import nearest


def figure(ratio, low, high, better="lower"):
    return {"ratio": ratio, "spread": [low, high], "better": better}


BEFORE = figure(1.0, 0.9, 1.1)


@pytest.mark.parametrize(
    ("now", "expected"),
    [
        (figure(1.3, 1.2, 1.4), "worse"),
        (figure(0.7, 0.6, 0.8), "better"),
        (figure(1.05, 1.0, 1.2), "same"),
        (figure(1.3, 0.95, 1.6), "same"),  # its own spread holds the old median
        (figure(1.1, 1.08, 1.12), "same"),  # the old spread holds it
        (figure(1.11, 1.05, 1.2), "worse"),
        (figure(0.89, 0.8, 0.95), "better"),
    ],
)
def test_a_ratio_changed_when_each_median_lies_outside_the_others_spread(now, expected):
    assert table.verdict(BEFORE, now) == expected
    turned = {"worse": "better", "better": "worse"}.get(expected, "same")
    assert table.verdict({**BEFORE, "better": "higher"}, {**now, "better": "higher"}) == turned


def test_a_change_below_five_percent_is_none():
    narrow = figure(1.0, 0.999, 1.001)
    assert table.verdict(narrow, figure(1.04, 1.039, 1.041)) == "same"
    assert table.verdict(narrow, figure(1.06, 1.059, 1.061)) == "worse"
    assert table.verdict(narrow, figure(0.96, 0.959, 0.961)) == "same"


def stored(**parts):
    return {
        part: {"date": "2020-01-01", "versions": {"torch": "2.0"}, "cases": cases}
        for part, cases in parts.items()
    }


def test_new_and_gone_cases_are_told():
    before = stored(torch={"kept": BEFORE, "gone": BEFORE}, tf={"not measured": BEFORE})
    found = table.compare(before, stored(torch={"kept": BEFORE, "new": BEFORE}))
    assert (found.worse, found.better, found.same) == ({}, [], 1)
    assert found.new == ["torch: new: 1 (0.9 to 1.1)"]
    assert found.gone == ["torch: gone"]
    # Whoever asks for some cases misses none of the others.
    assert table.compare(before, stored(torch={"kept": BEFORE}), ["kep"]).gone == []
    assert table.compare(before, stored(torch={"kept": BEFORE}), ["go", "kep"]).gone == [
        "torch: gone"
    ]


@pytest.fixture
def write(tmp_path):
    def make(name, content):
        (tmp_path / name).write_text(json.dumps(content), encoding="utf-8")
        return str(tmp_path / name)

    return make


def test_the_check_of_an_earlier_run_tells_all_and_fails_for_what_is_worse(write, capsys):
    before = stored(torch={"act": BEFORE, "build": BEFORE, "sample": BEFORE})
    now = stored(
        torch={"act": figure(1.3, 1.2, 1.4), "build": figure(0.7, 0.6, 0.8), "sample": BEFORE}
    )
    now["torch"]["versions"] = {"torch": "2.1", "numpy": "2.0"}
    assert (
        command.main(
            ["--check", "--table", write("table", before), "--measured", write("now", now)]
        )
        == 1
    )
    assert capsys.readouterr().out.strip().splitlines() == [
        "torch: the table was made with torch 2.0",
        "worse: torch: act: 1.3 (1.2 to 1.4), was 1 (0.9 to 1.1)",
        "better: torch: build: 0.7 (0.6 to 0.8), was 1 (0.9 to 1.1)",
        "1 worse, 1 better, 1 as before, 0 new, 0 gone",
    ]
    del now["torch"]["cases"]["act"]
    assert (
        command.main(
            ["--check", "--table", write("table", before), "--measured", write("now", now)]
        )
        == 0
    )


@pytest.fixture
def measured(monkeypatch):
    """Injected figures, one dict of cases for each time a part is measured; what was asked for."""
    runs, asked = [], []

    def measure(parts, names, markdown=None):
        asked.append((list(parts), list(names)))
        if markdown is not None:
            markdown.write_text(
                "".join(f"\n## {part}\n\n| run {len(asked)} |\n" for part in parts),
                encoding="utf-8",
            )
        return {part: table.section(runs.pop(0)) for part in parts}

    monkeypatch.setattr(command, "measure", measure)
    return runs, asked


@pytest.mark.parametrize(("again", "code"), [(1.0, 0), (1.4, 1)])
def test_what_is_worse_is_measured_once_more(again, code, measured, write, capsys):
    runs, asked = measured
    runs += [
        {"act": figure(1.3, 1.2, 1.35), "act, fast": BEFORE},
        {"act": figure(again, again - 0.1, again + 0.1), "act, fast": figure(9, 9, 9)},
    ]
    path = write("table", stored(torch={"act": BEFORE, "act, fast": BEFORE}))
    assert command.main(["--check", "torch", "--table", path]) == code
    assert asked == [(["torch"], []), (["torch"], ["act"])]
    assert f"{code} worse, 0 better, {2 - code} as before" in capsys.readouterr().out


def test_without_a_table_the_check_says_how_one_is_made(tmp_path):
    with pytest.raises(SystemExit, match="make bench BENCH_ARGS=--save"):
        command.main(["--check", "--table", str(tmp_path / "none.json")])


def test_save_replaces_the_parts_that_were_measured(measured, tmp_path):
    runs, _ = measured
    path, speed = tmp_path / "ratios.json", tmp_path / "speed.md"
    speed.write_text(f"# Speed\n\n{page.BEGIN}\n{page.END}\nThe end.\n", encoding="utf-8")
    for part, cases in (
        ("torch", {"act": BEFORE}),
        ("kernel", {"old": BEFORE}),
        ("kernel", {"new": BEFORE}),
    ):
        runs.append(cases)
        assert command.main([part, "--save", "--table", str(path), "--page", str(speed)]) == 0
    kept = table.read(path)
    assert {part: entry["cases"] for part, entry in kept.items()} == {
        "kernel": {"new": BEFORE},
        "torch": {"act": BEFORE},
    }
    assert kept["torch"]["versions"]["rlcatalog"]
    before, tables, after = re.split(f"{page.BEGIN}|{page.END}", speed.read_text(encoding="utf-8"))
    assert (before, after) == ("# Speed\n\n", "\nThe end.\n")
    assert re.findall(r"^### (\w+)$|^\| run (\d) \|$", tables, re.MULTILINE) == [
        ("kernel", ""),
        ("", "3"),
        ("torch", ""),
        ("", "1"),
    ]
    assert tables.count(f"torch {kept['torch']['versions']['torch']}") == 2
    assert page.machine() not in ("", " ")


def test_a_page_without_a_place_for_tables_is_refused_before_anything_is_measured(
    measured, tmp_path
):
    speed = tmp_path / "speed.md"
    speed.write_text("# Speed\n", encoding="utf-8")
    with pytest.raises(SystemExit, match="between which the tables stand"):
        command.main(
            ["torch", "--save", "--table", str(tmp_path / "ratios.json"), "--page", str(speed)]
        )
    assert measured[1] == []


def test_the_page_of_the_repository_has_a_place_for_its_tables():
    shown = page.PAGE.read_text(encoding="utf-8")
    assert shown.count(page.BEGIN) == 1
    tables, end, _ = shown.partition(page.BEGIN)[2].partition(page.END)
    assert end
    assert set(page.sections(tables)) <= set(command.PARTS)


@pytest.mark.parametrize(
    "wrong", [["nope"], ["--save", "--case", "x"], ["--save", "--check"], ["--measured", "x"]]
)
def test_what_makes_no_sense_is_refused(wrong, capsys):
    with pytest.raises(SystemExit):
        command.main(wrong)
    assert "error:" in capsys.readouterr().err


@pytest.mark.attack
def test_one_part_is_measured_in_a_process_of_its_own(tmp_path, capsys):
    """The whole way, with one fast case."""
    markdown, path = tmp_path / "out.md", tmp_path / "out.json"
    code = command.main(
        [
            "kernel",
            "--case",
            "repeated lookup, CartPole",
            "--markdown",
            str(markdown),
            "--json",
            str(path),
        ]
    )
    assert code == 0
    assert list(table.read(path)["kernel"]["cases"]) == ["repeated lookup, CartPole"]
    assert markdown.read_text(encoding="utf-8") == capsys.readouterr().out
    assert "| repeated lookup, CartPole |" in markdown.read_text(encoding="utf-8")


def busy(steps):
    return lambda: sum(range(steps))


def test_a_ratio_is_that_of_the_work():
    """Forty times the work takes about forty times as long; without a floor the yardstick takes its
    place.
    """
    found = harness.measure(Case("a", busy(20_000), busy(500), None), rounds=5, seconds=0.005)
    assert 10 < found.figure < 160
    entry = found.kept.entry
    assert entry["ratio"] == pytest.approx(statistics.median(found.ratios), rel=1e-3)
    assert entry["spread"] == pytest.approx([min(found.ratios), max(found.ratios)], rel=1e-3)
    alone = harness.measure(
        Case("a", harness.yardstick, None, 1000.0, "8"), rounds=5, seconds=0.005
    )
    assert alone.kept.name == "a, batch 8"
    assert 0.3 < alone.kept.entry["ratio"] < 3
    assert alone.figure == statistics.median(alone.ours)  # printed is the time


def test_what_is_kept_has_a_name_of_its_own_and_is_ours():
    ours = harness.Result(Case("a", busy(1), None, None), [2.0], [1.0], [])
    peer = harness.Result(Case("b", busy(1), None, None, peer=True), [2.0], [1.0], [])
    assert [one.name for one in harness.figures([ours, peer, Figure("c", [1.0])])] == ["a", "c"]
    with pytest.raises(ValueError, match="two cases are called a"):
        harness.figures([ours, Figure("a", [1.0])])


def test_what_is_over_budget_has_a_profile(capsys, monkeypatch):
    monkeypatch.setattr(profiles, "SECONDS", 0.02)
    monkeypatch.setattr(profiles, "LEAST", 0.0)
    words = [f"word {number}" for number in range(200)]
    slow = Case("nearest", lambda: nearest("wort 7", words), lambda: None, 1.0, "7")
    profiles.report(
        [Result(slow, [3.0], [2.0], []), Result(Case("quick", dict, dict, 2.0), [3.0], [2.0], [])]
    )
    lines = capsys.readouterr().out.strip().splitlines()
    assert len(lines) == 3
    title, share, largest = re.fullmatch(r"\| (.*) \| (\d+)% \| (.*) \|", lines[2]).groups()
    assert title == "nearest, batch 7"
    assert largest.startswith("`errors.nearest` ")
    assert 0 <= int(share) < 50  # difflib does the work
    profiles.report(
        [Result(Case("quick", dict, dict, 2.0), [3.0], [2.0], []), Figure("kept", [9.0])]
    )
    assert capsys.readouterr().out == ""
