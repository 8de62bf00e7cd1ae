"""Sheets of facts and tables as text and HTML, with long texts and tables cut."""

from __future__ import annotations

import re

import pytest

from rlcatalog.choice.sheet import Sheet


def remove_attributes(html):
    """Return HTML without the attributes of its tags."""
    return re.sub(r"<(\w+) [^>]*>", r"<\1>", html)


def test_text_has_facts_tables_and_notes():
    rows = [("name", "size"), ("x", "10"), ("longer", "2")]
    sheet = Sheet(
        "Net", facts=[("kind", "model")], tables={"Parts": rows}, notes=[("also", "this")]
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


def test_text_of_table_without_title_and_header_is_its_rows():
    no_header = ()

    sheet = Sheet("Net", tables={"": [no_header, ("x", "10"), ("longer", "2")]})

    assert sheet.text() == "Net\nx       10\nlonger  2"


def test_text_leaves_out_tables_without_rows():
    header = ("name", "size")
    no_header = ()
    tables = {
        "Empty": [header],
        "One": [header, ("x", "10")],
        "Two": [no_header, ("a",), ("b",)],
    }

    text = Sheet("Net", tables=tables).text()

    assert text.split("\n") == [
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


def test_html_leaves_out_tables_without_rows():
    header = ("name", "size")
    tables = {"Empty": [header], "One": [header, ("x", "10")], "Two": [header, ("y", "2")]}

    html = remove_attributes(Sheet("Net", tables=tables).html())

    assert html.count("<table>") == 2


def test_html_has_the_same_parts_and_escapes_them():
    sheet = Sheet(
        "<Net>",
        facts=[("kind", "a & b")],
        tables={"Parts": [("name", "size"), ("x", "10")]},
        notes=[("also", "this")],
    )

    assert remove_attributes(sheet.html()) == (
        "<div><p><b>&lt;Net&gt;</b></p><ul><li>kind: a &amp; b</li></ul>"
        "<table><caption>Parts</caption><thead><tr><th>name</th><th>size</th></tr></thead>"
        "<tbody><tr><td>x</td><td>10</td></tr></tbody></table><ul><li>also: this</li></ul></div>"
    )


def test_html_of_table_without_title_and_header_is_its_rows():
    no_header = ()

    sheet = Sheet("Net", tables={"": [no_header, ("x",)]})

    assert remove_attributes(sheet.html()) == (
        "<div><p><b>Net</b></p><table><tbody><tr><td>x</td></tr></tbody></table></div>"
    )


def make_table_lines(*, rows, **options):
    """Return the lines of a table with this number of rows, as text."""
    no_header = ()
    table = [(f"row {i}", "x") for i in range(rows)]
    _title, *lines = Sheet("Net", tables={"": [no_header, *table]}, **options).text().split("\n")
    return lines


@pytest.mark.parametrize(
    ("most", "rows", "lines", "last_line"),
    [
        pytest.param(2, 2, 2, "row 1  x", id="2-rows-of-2"),
        pytest.param(2, 3, 3, "... 1 more", id="2-rows-of-3"),
        pytest.param(0, 1, 1, "... 1 more", id="0-rows-of-1"),
    ],
)
def test_table_is_cut_to_the_given_number_of_rows(most, rows, lines, last_line):
    table = make_table_lines(rows=rows, most=most)

    assert len(table) == lines
    assert table[-1].rstrip() == last_line


@pytest.mark.parametrize(
    ("rows", "lines", "last_line"),
    [
        (24, 24, "row 23  x"),
        (25, 25, "... 1 more"),
        (26, 25, "... 2 more"),
    ],
)
def test_table_is_cut_to_24_rows_by_default(rows, lines, last_line):
    table = make_table_lines(rows=rows)

    assert len(table) == lines
    assert table[-1].rstrip() == last_line


@pytest.mark.parametrize(
    ("first_length", "last_length"),
    [
        pytest.param(120, 600, id="not-cut"),
        pytest.param(121, 601, id="cut"),
    ],
)
def test_last_cell_of_a_row_may_be_longer(first_length, last_length):
    row = ("a" * first_length, "b" * last_length)

    _title, text_of_row = Sheet("Net", tables={"": [(), row]}).text().split("\n")

    first, last = text_of_row.split()
    assert len(first) == 120
    assert len(last) == 600


def test_cells_that_fit_are_not_changed():
    row = ("a" * 120, "b" * 600)

    text = Sheet("Net", tables={"": [(), row]}).text()

    assert text.split() == ["Net", *row]


def test_note_is_cut_to_600_characters():
    text = Sheet("Net", notes=[("name", "c" * 601)]).text()

    assert len(text) == len("Net\nname: ") + 600


# --- width ----------------------------------------------------------------------------------------


def make_wide_lines(*rows, width):
    """Return the lines of a table without a header, at most `width` characters long."""
    _title, *lines = Sheet("Net", tables={"": [(), *rows]}).text(width).split("\n")
    return lines


def test_last_cell_is_wrapped_below_its_beginning():
    lines = make_wide_lines(
        ("fcnet", "fully connected layers for vectors and flat observations"),
        ("lstm", "a memory"),
        width=40,
    )

    assert lines == [
        "fcnet  fully connected layers for",
        "       vectors and flat observations",
        "lstm   a memory",
    ]


def test_last_cell_goes_below_a_name_that_leaves_little_room():
    # 20 characters and two spaces leave 18 of 40; below, the text is indented by six.
    lines = make_wide_lines(("n" * 20, "fully connected layers for flat vectors"), width=40)

    assert lines == [
        "n" * 20,
        "      fully connected layers for flat",
        "      vectors",
    ]


def test_name_over_two_fifths_of_the_width_widens_no_column():
    # Two fifths of 60 are 24.
    lines = make_wide_lines(("a" * 24, "x"), ("b" * 25, "x"), width=60)

    assert lines == ["a" * 24 + "  x", "b" * 25 + "  x"]


def test_name_longer_than_the_width_is_not_cut():
    lines = make_wide_lines(("n" * 50, "words of a text"), width=40)

    assert lines == ["n" * 50, "      words of a text"]


def test_note_is_wrapped_with_an_indentation():
    text = Sheet("Net", notes=[("not read", "first_key, second_key, third_key")]).text(width=30)

    assert text.split("\n") == ["Net", "not read: first_key,", "  second_key, third_key"]


@pytest.mark.parametrize("width", [40, 100])
def test_text_that_fits_is_the_same_at_each_width(width):
    sheet = Sheet(
        "Net", facts=[("kind", "model")], tables={"Parts": [("name", "size"), ("x", "10")]}
    )

    assert sheet.text(width) == sheet.text()


def test_lines_have_a_role_and_a_name():
    tables = {"Parts": [("name", "size"), ("x", "10"), ("  from", "acme")]}

    lines = list(Sheet("Net", facts=[("kind", "model")], tables=tables).lines())

    assert [(line.role.value, line.name) for line in lines] == [
        ("title", ""),
        ("row", "kind"),
        ("row", ""),  # the empty line before the table
        ("heading", ""),
        ("header", "name"),
        ("row", "x"),
        ("row", ""),  # "from" belongs to the row above
    ]
