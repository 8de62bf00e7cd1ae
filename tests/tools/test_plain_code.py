"""`tools/plain_code.py` finds what packs several steps into one expression."""

import plain_code
import pytest

# Rule → code that breaks it, and code that says the same in another way.
CASES = {
    "nested-conditional": [
        ("size = 8 if n > 44 else 4 if n > 11 else 1", "size = 8 if n > 44 else 4"),
        ("size = (2 if m else 3) if n else 4", "size = 2 if m else 3\nif not n:\n    size = 4"),
    ],
    "packed-f-string": [
        ("text = f\"{name}{' of ' + owner if owner else ''}\"", 'text = f"{name}{origin}"'),
        ("text = f\"{name}: {f'{count} rows'}\"", 'text = f"{name}: {count} rows"'),
    ],
    "product-as-if": [
        ('hint = " Import it." * (not known)', 'hint = "-" * width'),
        ("axes = [0] * (rank > 2)", "axes = [0] * rank"),
    ],
    "boolean-as-if": [
        ("ready and start()", "if ready:\n    start()"),
        ('label = named and name or ""', 'label = name or ""'),
    ],
    "walrus": [
        ("first = (n := len(rows)) + 1", "if n := len(rows):\n    use(n)"),
        ("if (n := len(rows)) > 1 and ready:\n    use(n)", "while (n := read()) > 1:\n    use(n)"),
        ("squares = [y for x in rows if (y := x * x)]", "squares = [x * x for x in rows]"),
    ],
    "tuple-assignment": [
        ("low, high = 0, 1", "low, high = bounds"),
        ("self.a, self.b = a, b", "first, second = second, first"),
    ],
    "kept-lambda": [
        ("key = lambda x: -x", "rows.sort(key=lambda x: -x)"),
        ("def make():\n    return lambda x: x", "def make():\n    return identity"),
        ("TABLE = {'add': lambda a, b: a + b}", "TABLE = {'add': operator.add}"),
        ("def run(key=lambda x: x):\n    pass", "def run(key=identity):\n    pass"),
    ],
    "bare-argument": [
        ("def run(x, strict): pass\nrun(1, True)", "def run(x, strict): pass\nrun(1, strict=True)"),
        ("from rlcatalog import build\nbuild(env, {})", "from os import build\nbuild(env, {})"),
    ],
    "asked-attribute": [
        ("size = getattr(part, 'size', 0)", "size = getattr(part, name, 0)"),
        (
            "if hasattr(part, 'size'):\n    pass",
            "# The class is a user's.\nif hasattr(part, 'size'):\n    pass",
        ),
    ],
}
PAIRS = [
    pytest.param(rule, bad, good, id=f"{rule}-{i}")
    for rule, pairs in CASES.items()
    for i, (bad, good) in enumerate(pairs)
]


def find_rules(code):
    """Return the rules that a file with this code breaks."""
    file = plain_code.File("file.py", code, our_functions=frozenset({"run", "build"}))
    return [finding.rule for finding in plain_code.find(file)]


def test_rules_all_have_a_case():
    assert set(CASES) == set(plain_code.RULES)


@pytest.mark.parametrize(("rule", "bad", "good"), PAIRS)
def test_rule_finds_packed_code_and_allows_plain_code(rule, bad, good):
    assert rule in find_rules(bad)
    assert rule not in find_rules(good)


def test_finding_names_the_function_and_its_class():
    file = plain_code.File(
        "file.py", "class A:\n    def f(self):\n        a, b = 1, 2", frozenset()
    )

    assert list(plain_code.find(file)) == [
        plain_code.Finding("file.py", line=3, function="A.f", rule="tuple-assignment")
    ]
