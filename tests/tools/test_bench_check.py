"""`python -m benchmarks`: the check against stored ratios, the tables, how a case is measured."""

from __future__ import annotations

import json
import statistics
import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).resolve().parents[2]))

from benchmarks import __main__ as command, harness, page, profiles, table
from benchmarks.harness import Case, Figure, Result
from rlcatalog.errors import nearest


def make_figure(ratio, *, low, high, better="lower"):
    """Return a case's entry in a table: its median ratio, and the lowest and highest."""
    return {"ratio": ratio, "spread": [low, high], "better": better}


def make_table(**parts):
    """Return a table of the given parts: part → case → figure."""
    return {
        part: {"date": "2020-01-01", "versions": {"torch": "2.0"}, "cases": cases}
        for part, cases in parts.items()
    }


#: What was stored, and what was measured later: once slower, once faster, by more than any spread.
STORED = make_figure(1.0, low=0.9, high=1.1)
SLOWER = make_figure(1.3, low=1.2, high=1.4)
FASTER = make_figure(0.7, low=0.6, high=0.8)


# --- verdicts -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("now", "expected"),
    [
        pytest.param(SLOWER, "worse", id="slower"),
        pytest.param(FASTER, "better", id="faster"),
        pytest.param(make_figure(1.11, low=1.05, high=1.2), "worse", id="spreads overlap, slower"),
        pytest.param(make_figure(0.89, low=0.8, high=0.95), "better", id="spreads overlap, faster"),
        pytest.param(make_figure(1.05, low=1.0, high=1.2), "same", id="both spreads hold both"),
        pytest.param(make_figure(1.3, low=0.95, high=1.6), "same", id="new spread holds 1.0"),
        pytest.param(make_figure(1.1, low=1.08, high=1.12), "same", id="old spread holds 1.1"),
    ],
)
def test_verdict_compares_medians_with_spreads(now, expected):
    assert table.verdict(STORED, now) == expected


@pytest.mark.parametrize(("now", "expected"), [(SLOWER, "better"), (FASTER, "worse")])
def test_verdict_turns_where_a_higher_ratio_is_better(now, expected):
    stored = {**STORED, "better": "higher"}
    assert table.verdict(stored, {**now, "better": "higher"}) == expected


@pytest.mark.parametrize(("ratio", "expected"), [(1.04, "same"), (1.06, "worse"), (0.96, "same")])
def test_verdict_ignores_changes_below_five_percent(ratio, expected):
    stored = make_figure(1.0, low=0.999, high=1.001)
    now = make_figure(ratio, low=ratio - 0.001, high=ratio + 0.001)
    assert table.verdict(stored, now) == expected


def test_compare_names_new_and_missing_cases():
    stored = make_table(torch={"kept": STORED, "missing": STORED})
    measured = make_table(torch={"kept": STORED, "new": STORED})

    verdicts = table.compare(stored, measured)

    assert verdicts.new == ["torch: new: 1 (0.9 to 1.1)"]
    assert verdicts.gone == ["torch: missing"]
    assert verdicts.same == 1


def test_compare_misses_no_part_that_was_not_measured():
    stored = make_table(torch={"act": STORED}, tf={"act": STORED})
    assert table.compare(stored, make_table(torch={"act": STORED})).gone == []


@pytest.mark.parametrize(("names", "missing"), [(["ac"], []), (["build", "ac"], ["torch: build"])])
def test_compare_only_misses_cases_of_given_names(names, missing):
    stored = make_table(torch={"act": STORED, "build": STORED})
    measured = make_table(torch={"act": STORED})
    assert table.compare(stored, measured, names).gone == missing


# --- the check ------------------------------------------------------------------------------------


@pytest.fixture
def write(tmp_path):
    """Return a function that writes a table to a file, and returns the file's path."""

    def write_table(name, content):
        path = tmp_path / name
        path.write_text(json.dumps(content), encoding="utf-8")
        return str(path)

    return write_table


def test_check_prints_each_change_and_fails_for_a_slower_case(write, capsys):
    before = make_figure(1.0, low=0.9, high=1.1)
    slower = make_figure(1.3, low=1.2, high=1.4)
    faster = make_figure(0.7, low=0.6, high=0.8)
    stored = make_table(torch={"act": before, "build": before, "sample": before})
    measured = make_table(torch={"act": slower, "build": faster, "sample": before})
    stored["torch"]["versions"] = {"torch": "2.0", "processor": "AMD EPYC"}
    measured["torch"]["versions"] = {
        "processor": "Intel(R) Xeon(R)",
        "torch": "2.1",
        "numpy": "2.0",
    }
    files = ["--table", write("stored", stored), "--measured", write("measured", measured)]

    status = command.main(["--check", *files])

    assert status == 1
    assert capsys.readouterr().out.strip().splitlines() == [
        "torch: the table was made with processor AMD EPYC, torch 2.0",
        "worse: torch: act: 1.3 (1.2 to 1.4), was 1 (0.9 to 1.1)",
        "better: torch: build: 0.7 (0.6 to 0.8), was 1 (0.9 to 1.1)",
        "1 worse, 1 better, 1 as before, 0 new, 0 gone",
    ]


def test_table_names_the_processor():
    versions = table.section({})["versions"]
    assert versions["processor"] == page.processor()
    assert page.machine().startswith(versions["processor"])


def test_check_succeeds_if_no_case_is_slower(write):
    stored = write("stored", make_table(torch={"act": STORED, "build": STORED}))
    measured = write("measured", make_table(torch={"act": STORED, "build": FASTER}))
    assert command.main(["--check", "--table", stored, "--measured", measured]) == 0


class FakeMeasure:
    """Stands in for `measure`: returns given cases, one dict per call, and keeps the arguments."""

    def __init__(self):
        self.results = []
        self.calls = []

    def __call__(self, parts, names, markdown=None):
        self.calls.append((list(parts), list(names)))
        if markdown is not None:
            texts = [f"\n## {part}\n\n| run {len(self.calls)} |\n" for part in parts]
            markdown.write_text("".join(texts), encoding="utf-8")
        return {part: table.section(self.results.pop(0)) for part in parts}


@pytest.fixture
def fake_measure(monkeypatch):
    fake = FakeMeasure()
    monkeypatch.setattr(command, "measure", fake)
    return fake


@pytest.mark.parametrize(
    ("second_run", "code"), [(STORED, 0), (SLOWER, 1)], ids=["by chance", "slower again"]
)
def test_check_measures_slower_cases_a_second_time(second_run, code, fake_measure, write, capsys):
    fake_measure.results = [{"act": SLOWER, "build": STORED}, {"act": second_run}]
    stored = write("stored", make_table(torch={"act": STORED, "build": STORED}))

    assert command.main(["--check", "torch", "--table", stored]) == code

    # First all cases of the part, then the slower one.
    assert fake_measure.calls == [(["torch"], []), (["torch"], ["act"])]
    assert f"{code} worse, 0 better, {2 - code} as before" in capsys.readouterr().out


def test_check_keeps_first_results_of_cases_measured_beside(fake_measure, write, capsys):
    # A name chooses all cases that contain it, so "act, fast" is measured again beside "act".
    fake_measure.results = [
        {"act": SLOWER, "act, fast": STORED},
        {"act": STORED, "act, fast": SLOWER},
    ]
    stored = write("stored", make_table(torch={"act": STORED, "act, fast": STORED}))
    assert command.main(["--check", "torch", "--table", stored]) == 0
    assert "0 worse, 0 better, 2 as before" in capsys.readouterr().out


def test_check_without_a_table_says_how_to_make_one(tmp_path):
    with pytest.raises(SystemExit, match="make bench BENCH_ARGS=--save"):
        command.main(["--check", "--table", str(tmp_path / "none.json")])


# --- the stored table and the page ----------------------------------------------------------------


@pytest.fixture
def speed_page(tmp_path):
    """A page with a place for tables."""
    path = tmp_path / "speed.md"
    path.write_text(f"# Speed\n\n{page.BEGIN}\n{page.END}\nThe end.\n", encoding="utf-8")
    return path


@pytest.fixture
def saved(fake_measure, speed_page, tmp_path):
    """The table after three runs with --save: the parts torch, kernel, and kernel again."""
    fake_measure.results = [{"act": STORED}, {"old": STORED}, {"new": STORED}]
    path = tmp_path / "ratios.json"
    for part in ("torch", "kernel", "kernel"):
        command.main([part, "--save", "--table", str(path), "--page", str(speed_page)])
    return table.read(path)


def test_save_replaces_the_measured_part_of_the_table(saved):
    cases = {part: entry["cases"] for part, entry in saved.items()}
    assert cases == {"kernel": {"new": STORED}, "torch": {"act": STORED}}


def test_save_rejects_a_page_without_place_before_measuring(fake_measure, tmp_path):
    speed = tmp_path / "speed.md"
    speed.write_text("# Speed\n", encoding="utf-8")
    paths = ["--table", str(tmp_path / "ratios.json"), "--page", str(speed)]
    with pytest.raises(SystemExit, match="between which the tables stand"):
        command.main(["torch", "--save", *paths])
    assert fake_measure.calls == []


def test_page_of_the_repository_has_a_place_for_tables():
    text = page.PAGE.read_text(encoding="utf-8")
    assert text.count(page.BEGIN) == 1
    tables, end, _ = text.partition(page.BEGIN)[2].partition(page.END)
    assert end
    assert set(page.sections(tables)) <= set(command.PARTS)


@pytest.mark.parametrize(
    "options", [["nope"], ["--save", "--case", "x"], ["--save", "--check"], ["--measured", "x"]]
)
def test_unusable_options_are_rejected(options, capsys):
    with pytest.raises(SystemExit):
        command.main(options)
    assert "error:" in capsys.readouterr().err


# --- measuring ------------------------------------------------------------------------------------


@pytest.mark.slow
def test_command_measures_a_part_and_writes_both_files(tmp_path, capsys):
    markdown = tmp_path / "out.md"
    json_file = tmp_path / "out.json"
    case = "repeated lookup, CartPole"  # a fast one

    files = ["--markdown", str(markdown), "--json", str(json_file)]
    assert command.main(["kernel", "--case", case, *files]) == 0

    assert list(table.read(json_file)["kernel"]["cases"]) == [case]
    printed = markdown.read_text(encoding="utf-8")
    assert f"| {case} |" in printed
    assert printed == capsys.readouterr().out


def sum_numbers(count):
    """Return a function whose time is proportional to a count."""
    return lambda: sum(range(count))


def test_ratio_is_that_of_the_work():
    case = Case("a", sum_numbers(20_000), sum_numbers(500), None)
    result = harness.measure(case, rounds=5, seconds=0.005)
    assert 10 < result.figure < 160  # 40 times the work
    entry = result.kept.entry
    assert entry["ratio"] == pytest.approx(statistics.median(result.ratios), rel=1e-3)
    assert entry["spread"] == pytest.approx([min(result.ratios), max(result.ratios)], rel=1e-3)


def test_case_without_floor_is_compared_with_the_yardstick():
    case = Case("a", harness.yardstick, None, 1000.0, "8")
    result = harness.measure(case, rounds=5, seconds=0.005)
    assert result.kept.name == "a, batch 8"
    assert 0.3 < result.kept.entry["ratio"] < 3  # the yardstick beside itself
    assert result.figure == statistics.median(result.ours)  # the time is printed


def make_result(name, *, budget=None, peer=False):
    """Return the result of a case that took 2 s where its floor took 1 s."""
    return Result(Case(name, sum_numbers(1), None, budget, peer=peer), [2.0], [1.0], [])


def test_figures_leave_out_cases_of_peers():
    results = [make_result("a"), make_result("b", peer=True), Figure("c", [1.0])]
    assert [figure.name for figure in harness.figures(results)] == ["a", "c"]


def test_figures_of_the_same_name_are_rejected():
    with pytest.raises(ValueError, match="two cases are called a"):
        harness.figures([make_result("a"), Figure("a", [1.0])])


@pytest.fixture
def short_profiles(monkeypatch):
    monkeypatch.setattr(profiles, "SECONDS", 0.02)
    monkeypatch.setattr(profiles, "LEAST", 0.0)  # show functions of any share


def test_case_over_budget_has_a_profile(short_profiles, capsys):
    words = [f"word {number}" for number in range(200)]

    def find_the_nearest_word():
        nearest("wort 7", words)

    def do_nothing():
        pass

    # The budget allows 1.0 times the floor: 2 seconds, of which ours takes 3.
    case = Case(name="nearest", ours=find_the_nearest_word, floor=do_nothing, budget=1.0, batch="7")
    slow_result = Result(case, ours=[3.0], floor=[2.0], yardstick=[])

    profiles.report([slow_result])

    _heading, _rule, row = capsys.readouterr().out.strip().splitlines()
    assert row.startswith("| nearest, batch 7 | ")
    # The only function of ours that the case calls.
    assert "`errors.nearest` " in row


def test_cases_within_budget_have_no_profile(short_profiles, capsys):
    profiles.report([make_result("quick", budget=2.0), Figure("kept", [9.0])])
    assert capsys.readouterr().out == ""
