"""`tools/words.py`: what it marks, what it leaves alone, where it reads, and what it prints."""

from __future__ import annotations

import ast

import pytest
import words

MARKED = {
    "whoever": [
        "Whoever writes holds the lock.",
        "It is ready for whatever comes.",
        "Ready, however it ends.",
    ],
    "nobody": ["Nobody is warned of these defaults.", "A file that a stranger wrote runs no code."],
    "of which": [
        "A list of which the first is kept.",
        "It is that of those before.",
        "A model of one's own.",
    ],
    "such as are": ["Keys such as are in the config."],
    "but for": [
        "All but for one.",
        "It uses nothing but NumPy.",
        "It needs no more than a driver.",
    ],
    "not unless": ["It is not read unless a model asks."],
    "for (because)": [
        "It stays, for it comes again.",
        "It is skipped, for the mask has no effect.",
    ],
    "say (for example)": ["A Box, say, has no mask.", "Any engine, say a script."],
    "so does": ["A Box is refused, and so is a Text.", "So do the places behind the end."],
    "is said": ["What failed is said in its docstring.", "A config says so."],
    "stands": ["The mask stands under this key.", "Units stand behind the trunk."],
    "lies": ["The weights lie in a file.", "Beside it lies another."],
    "for scale": ["It is for scale."],
    "of ours": ["An error of ours."],
    "possessive without a noun": [
        "The default is RLlib's.",
        "A layer of PyTorch's.",
        "Arguments of the user's.",
    ],
    "is no": ["It is no number.", "Numbers that are none.", "An action that is none of the space."],
    "Of, at the start": ["Of a policy, each thread takes a copy."],
    "old word": [
        "It draws anew.",
        "It works for want of something better.",
        "A part is seldom asked.",
    ],
}
FINE = [
    "Two files, each of which has a name, and none of which is loaded.",
    "The actor stands for the policy, and a stand-in for the environment.",
    "A standalone file.",
    "Every action lies in the space, and each value lies between the bounds or in [0, 1].",
    "There is no model, and the list is no longer empty.",
    "PyTorch's layers and RLlib's config keys differ.",
    "It is no part of the model.",
    "Say which part you mean.",
    "It works for the environment that you pass, for these spaces and for your model.",
    "Of course it is fast.",
    "Of the other 30, 24 ran.",
    "module 'rlcatalog' has no attribute 'x'",
    "A package of your own organisation, whatever else is installed.",
    "What follows says which part is chosen.",
    "See no one-hots.",
    "Use whatever optimiser you like.",
]


def kinds(text: str) -> set[str]:
    return {kind for kind, _ in words.findings([words.plain(text)])}


@pytest.mark.parametrize(
    ("kind", "sentence"), [(kind, text) for kind, texts in MARKED.items() for text in texts]
)
def test_odd_sentences_are_marked_with_their_kind_alone(kind, sentence):
    assert kinds(sentence) == {kind}


def test_kinds_all_have_a_marked_sentence():
    assert set(MARKED) == set(words.ODD)


@pytest.mark.parametrize("sentence", FINE)
def test_plain_sentences_pass(sentence):
    assert not kinds(sentence)


def test_pages_are_read_without_code_links_and_generated_blocks():
    page = """# A heading

A [link](stands.md) to `stands`
over two lines.

```python
stands = 1
```
:::{note}
A note.
:::
<!-- keys -->
| generated | cell |
<!-- /keys -->
| first | second \\| cell |
|---|---|
- An item
1. another
"""
    assert list(words.paragraphs(page)) == [
        "A heading",
        "A link to X over two lines.",
        "A note.",
        "first",
        "second \\| cell",
        "An item",
        "another",
    ]


def test_docstrings_and_messages_are_read_and_examples_are_not():
    source = '''
"""A module."""

async def f(a):
    """Return a thing.

    Args:
        a: The first.

    Example:
        it stands here
    """
    raise KeyError("two words" + f" and {a}.{b} End", note="a hint")
    print("not read")
'''
    assert list(words.code_prose(ast.parse(source))) == [
        "A module.",
        "Return a thing.",
        "Args:",
        "The first.",
        "",  # in place of the example
        "two words and X. End",  # values become "X"
        "a hint",
    ]


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("test_a_kl_coefficient_doubles", "begins with no subject"),
        ("test_what_it_returns", "begins with no subject"),
        ("test_" + "x" * 56, "longer than 60 characters"),
        ("test_config_is_no_mapping", "is no"),
    ],
)
def test_odd_test_names_are_marked(name, kind):
    assert list(words.odd_names([name])) == [(kind, name)]


@pytest.mark.parametrize("name", ["test_kl_coeff_doubles_above_target", "test_" + "x" * 55])
def test_plain_test_names_pass(name):
    assert list(words.odd_names([name])) == []


@pytest.fixture
def checkout(tmp_path):
    """A folder with a page and a test."""
    docs = tmp_path / "docs"
    docs.mkdir()
    (docs / "page.md").write_text("The mask comes first.\n\nA part has a name.\n")
    tests = tmp_path / "plugins/x/tests"
    tests.mkdir(parents=True)
    (tests / "test_x.py").write_text("def test_x():\n    pass\n")
    return tmp_path


def test_command_succeeds_without_findings(checkout, capsys):
    assert words.main([], checkout) == 0
    assert not capsys.readouterr().out


def test_command_prints_odd_sentences(checkout, capsys):
    (checkout / "docs/page.md").write_text("It stands here.\n")
    assert words.main([], checkout) == 1
    assert "docs/page.md: stands: It stands here.\n" in capsys.readouterr().out


def test_command_prints_odd_test_names(checkout, capsys):
    (checkout / "plugins/x/tests/test_x.py").write_text("def test_the_x():\n    pass\n")
    assert words.main([], checkout) == 1
    expected = "plugins/x/tests/test_x.py: begins with no subject: test_the_x\n"
    assert expected in capsys.readouterr().out


def test_count_prints_words_of_pages(checkout, capsys):
    assert words.main(["--count"], checkout) == 0
    # "The mask comes first." and "A part has a name.": 4 and 5 words
    assert capsys.readouterr().out == "     9 docs/page.md\ndocs/: 1 pages, 9 words\n"
