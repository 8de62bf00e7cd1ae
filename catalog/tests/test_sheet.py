"""Sheets of facts and tables as text and HTML, with long texts and tables cut."""

from __future__ import annotations

import re

import pytest

from rlcatalog.choice.sheet import ROWS, Sheet

PARTS = [("name", "size"), ("x", "10"), ("longer", "2")]


def plain(page):
    """Return HTML without the attributes of its tags."""
    return re.sub(r"<(\w+) [^>]*>", r"<\1>", page)


def test_text_aligns_columns_and_indents_tables_with_a_title():
    sheet = Sheet(
        "Net", facts=[("kind", "model")], tables={"Parts": PARTS}, notes=[("also", "this")]
    )
    assert sheet.text().split("\n") == [
        "Net",
        "kind: model",
        "",
        "Parts:",
        "  name    size",
        "  x       10",
        "  longer  2",
        "also: this",
    ]


def test_table_without_title_or_names_is_only_its_rows():
    assert (
        Sheet("Net", tables={"": [(), ("x", "10"), ("longer", "2")]}).text()
        == "Net\nx       10\nlonger  2"
    )


def test_tables_without_rows_are_left_out():
    sheet = Sheet("Net", tables={"Empty": PARTS[:1], "One": PARTS[:2], "Two": [("a",), ("b",)]})
    assert sheet.text().split("\n") == [
        "Net",
        "",
        "One:",
        "  name  size",
        "  x     10",
        "",
        "Two:",
        "  a",
        "  b",
    ]
    assert plain(sheet.html()).count("<table>") == 2


def test_html_has_the_same_parts_and_escapes_them():
    sheet = Sheet("<Net>", [("kind", "a & b")], {"Parts": PARTS[:2]}, [("also", "this")])
    assert plain(sheet.html()) == (
        "<div><p><b>&lt;Net&gt;</b></p><ul><li>kind: a &amp; b</li></ul>"
        "<table><caption>Parts</caption><thead><tr><th>name</th><th>size</th></tr></thead>"
        "<tbody><tr><td>x</td><td>10</td></tr></tbody></table><ul><li>also: this</li></ul></div>"
    )
    bare = Sheet("Net", tables={"": [(), ("x",)]})
    assert (
        plain(bare.html())
        == "<div><p><b>Net</b></p><table><tbody><tr><td>x</td></tr></tbody></table></div>"
    )


@pytest.mark.parametrize(
    ("most", "rows", "shown", "last"),
    [
        (2, 2, 2, "row 1"),
        (2, 3, 3, "... 1 more"),
        (0, 1, 1, "... 1 more"),
        (ROWS, 24, 24, "row 23"),
        (ROWS, 25, 25, "... 1 more"),
        (ROWS, 26, 25, "... 2 more"),
    ],
)
def test_long_table_is_cut_to_its_first_rows(most, rows, shown, last):
    lines = (
        Sheet("Net", tables={"": [(), *((f"row {i}", "x") for i in range(rows))]}, most=most)
        .text()
        .split("\n")
    )
    assert len(lines) == 1 + shown
    assert lines[-1].removesuffix("x").strip() == last


def test_long_texts_are_cut_in_cells_and_at_the_end_of_a_row():
    cells = Sheet("Net", tables={"": [(), ("a" * 121, "b" * 601)]}).text().split("\n")[1].split()
    assert [len(cell) for cell in cells] == [120, 600]
    uncut = Sheet("Net", tables={"": [(), ("a" * 120, "b" * 600)]}).text().split("\n")[1].split()
    assert uncut == ["a" * 120, "b" * 600]
    assert len(Sheet("Net", notes=[("n", "c" * 601)]).text()) == len("Net\nn: ") + 600
