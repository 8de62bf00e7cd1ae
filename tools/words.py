"""Check of words: `python tools/words.py` finds odd constructions in what people read.

It reads the pages written by hand, the docstrings of packages and examples, their messages (errors,
warnings and `--help`), and the names of test functions.
"""

from __future__ import annotations

import argparse
import ast
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
_LIBRARY = (
    r"(?:(?:PyTorch|TensorFlow|RLlib|Ray|[Gg]ymnasium|Gym|NumPy|Python|Stable-Baselines3|rlcatalog)"
    r"'s|Keras')"
)
_OWNER = (
    r"(?:user|kernel|catalog|package|part|plugin|model|policy|program|engine|environment|caller)'s"
)
#: What may follow a possessive that has no noun: the end of a phrase, or a word that goes on with
#: the sentence.
_NO_NOUN = r"(?=[.,;:)]|$| (?:is|are|has|have|that|in|with|on|to|by|for)\b)"
#: Kind → pattern. A pattern that marks good English is wrong: narrow it, and add the sentence to
#: the tests.
ODD = {
    kind: re.compile(pattern)
    for kind, pattern in {
        "whoever": r"(?i:\bwhoever\b)|\b(?:for|of|from|to) whatever\b|\bwhatever"
        r" (?:it|stands|comes)\b|\bhowever (?:it|they) \w+s\b",
        "nobody": r"\b(?:[Nn]obody|[Nn]o one|[Ss]omebody|[Ss]trangers?)\b(?!-)",
        "of which": r"(?<!each )(?<!none )(?<!one )(?<!some )(?<!all )(?<!most )(?<!both )(?<!any"
        r" )(?<!many )(?<!two )\bof (?:which|that of|those of)\b|\bth(?:at|ose) of"
        r" th(?:at|ose)\b|\bof one's own\b",
        "such as are": r"\bsuch as (?:are|is|have|has)\b",
        "but for": r"\bbut for\b|\b[Nn]othing but\b|\bno more than\b",
        "not unless": r"\b(?:not|nothing|never) \w+(?: \w+)? unless\b",
        "for (because)": r"[,;] for (?:it|they|he|she|there|nothing|none)\b|, for"
        r" (?:the|an?|its|their|no)(?:"
        r" (?!that\b|which\b|who\b|whose\b|where\b|when\b|if\b|and\b)\w+){1,3}"
        r" (?:is|are|was|were|has|have|does|do|can|cannot|may|will|would)\b",
        "say (for example)": r"\bsay,|, say(?=[.,;:)]| (?:an?|the|X)\b)",
        "so does": r"\b[Ss]o (?:does|has|is|are|have|do) "
        r"(?:an?|the|it|they|its|their|those|that|every|each|all|any)\b",
        "is said": r"\b(?:is|are|was|were) (?:said|told)\b(?! apart)|\b[Ss]a(?:y|ys|id) so\b",
        "stands": r"(?<!-)\b(?:stands?|stood)\b(?! for\b| in for\b|-|alone)",
        "lies": r"\b(?:lies?|lay)\b(?! (?:\w+"
        r" )?(?:within|outside|inside|between|above|below|beyond|on)\b| in"
        r" (?:\[|\(|X|(?:an?|the|its|their) (?:\w+ )?(?:spaces?|interval|simplex)\b))",
        "for scale": r"\bfor scale\b",
        "of ours": r"\bof (?:ours|yours|theirs)\b",
        "possessive without a noun": rf"\b(?:{_LIBRARY}{_NO_NOUN}|of (?:{_LIBRARY}|the"
        rf" {_OWNER}){_NO_NOUN})",
        "is no": r"(?<!there )(?<!There )\b(?:is|are|was|were|be) (?:none\b(?! of"
        r" (?:them|these|those)\b)|no (?!(?:part"
        r" of|longer|more|fewer|less|later|different|better|worse|help|use|need|one)\b)\w)",
        "Of, at the start": r"^Of (?!course\b|(?:the |these |those |all )?(?:\w+ )?\d)",
        "old word": r"\b(?:[Aa]new|[Ss]eldom|[Uu]pon|for want"
        r" of|[Ll]est|[Tt]hereof|[Tt]herein|[Ww]hence|[Aa]lbeit)\b",
    }.items()
}
#: Kind → pattern, for the name of a test function.
ODD_NAMES = {
    # `no_final_linear` is a config key.
    "begins with no subject": re.compile(
        r"^test_(?:an?|the|no(?!_final_linear)|what|it|this|that|there)_"
    ),
    "longer than 60 characters": re.compile(r"^.{61}"),
}
#: Written from data or from other sources; legal texts.
GENERATED = ("docs/reference", "docs/examples", "docs/packages", "docs/_build", "LICENSE")
#: Calls whose text a person reads.
_TELLS = re.compile(
    r"(?:Error|Warning|warn|warn_caller|tell|fault|Option|Argument|Meta|add_argument|Exit|secho|Spec)$"
)


def sources(root: Path) -> Iterator[tuple[str, list[str]]]:
    """Yield each file's path and its prose, in paragraphs."""
    for path in pages(root):
        yield path.relative_to(root).as_posix(), list(paragraphs(path.read_text(encoding="utf-8")))
    for path in sorted(
        [*root.glob("examples/*.py"), *root.glob("*/src/**/*.py"), *root.glob("*/*/src/**/*.py")]
    ):
        yield (
            path.relative_to(root).as_posix(),
            list(code_prose(ast.parse(path.read_text(encoding="utf-8")))),
        )


def pages(root: Path) -> list[Path]:
    """Return the pages written by hand."""
    found = [*root.glob("*.md"), *root.glob("docs/**/*.md"), *root.glob("*/*/README.md")]
    return sorted(
        path for path in found if not path.relative_to(root).as_posix().startswith(GENERATED)
    )


def by_hand(markdown: str) -> str:
    """Return a page without its code and without the blocks that a tool writes."""
    markdown = re.sub(r"^( *`{3,}).*?^\1`*\s*$", "", markdown, flags=re.MULTILINE | re.DOTALL)
    return re.sub(
        r"^<!-- (?:([\w-]+) -->.*?^<!-- /\1|written by.*?^<!-- end) -->$",
        "",
        markdown,
        flags=re.M | re.S,
    )


def paragraphs(markdown: str) -> Iterator[str]:
    """Yield the prose of a page, headings and table cells included."""
    text = re.sub(
        r"^ *(?::{3,}.*|:[\w-]+:.*|\[.*\]:.*|<.*|\|[-:| ]+\|)$",
        "",
        by_hand(markdown),
        flags=re.MULTILINE,
    )
    for block in re.split(r"\n\s*\n|\n(?=\s*(?:[-*#>|]|\d+\.))", text):
        for cell in re.split(r"(?<!\\)\|", block) if block.lstrip().startswith("|") else [block]:
            if prose := plain(re.sub(r"^\s*(?:[-*>]|#+|\d+\.) ", "", cell)):
                yield prose


def code_prose(tree: ast.AST) -> Iterator[str]:
    """Yield a module's docstrings, paragraph by paragraph, and its messages."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            text = re.sub(
                r"^Examples?:\n(?:[ \n].*\n?)*",
                "",
                ast.get_docstring(node) or "",
                flags=re.MULTILINE,
            )
            for block in re.split(r"\n\s*\n|\n(?=\s*[*\w.]+(?:, [*\w.]+)*: )|\n(?=\s*- )", text):
                yield plain(
                    re.sub(
                        r"^\s*(?:- )?(?:[*\w.]+(?:, [*\w.]+)*|Args|Returns|Raises):\s", "", block
                    )
                )
        if isinstance(node, ast.Call) and _TELLS.search(_name(node.func)):
            for part in (*node.args, *(keyword.value for keyword in node.keywords)):
                if (text := message(part)) and " " in text:
                    yield plain(text)


def _name(function: ast.expr) -> str:
    return getattr(function, "attr", getattr(function, "id", ""))


def message(node: ast.expr) -> str:
    """Return the text of a string or an f-string, what is filled in as X; empty for
    anything else.
    """
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else ""
    if isinstance(node, ast.JoinedStr):
        text = "".join(
            str(part.value) if isinstance(part, ast.Constant) else "X" for part in node.values
        )
        # a sentence that is filled in, such as a suggestion.
        return re.sub(r"([.!?])X(?= |$)", r"\1", text)
    if isinstance(node, ast.BinOp):
        return message(node.left) + message(node.right)
    return ""


def plain(text: str) -> str:
    """Return text on one line, code as one word and links as their text."""
    text = re.sub(r"``[^`]+``|`[^`]+`", "X", text)
    text = re.sub(r"!?\[([^\]]*)\](?:\([^)]*\)|\[[^\]]*\])", r"\1", text)
    return re.sub(r"\s+", " ", text).strip()


def sentences(text: str) -> list[str]:
    """Split a paragraph into sentences; a colon and a semicolon end one as well."""
    return re.split(r"(?<=[.!?])[)*]*\s+(?=[A-Z`\"(*]|rlcatalog|onnxruntime)|(?<=[:;])\s", text)


def findings(prose: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Yield (kind, sentence) for each odd construction."""
    for text in prose:
        for sentence in sentences(text):
            for kind, pattern in ODD.items():
                for _ in pattern.finditer(sentence):
                    yield kind, sentence


def test_names(root: Path) -> Iterator[tuple[str, list[str]]]:
    """Yield each test file's path and the names of its test functions and methods."""
    files = [*root.glob("tests/**/test_*.py")]
    files += root.glob("*/tests/**/test_*.py")
    files += root.glob("*/*/tests/**/test_*.py")
    for path in sorted(files):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        names = [
            node.name
            for node in ast.walk(tree)
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
        ]
        yield path.relative_to(root).as_posix(), names


def odd_names(names: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Yield (kind, name) for each name of a test that is odd itself, or odd as a sentence."""
    for name in names:
        for kind, pattern in ODD_NAMES.items():
            if pattern.search(name):
                yield kind, name
        words = name.removeprefix("test_").split("_")
        # In a name, none is the value.
        words = ["None" if word == "none" else word for word in words]
        words[0] = words[0].capitalize()
        sentence = " ".join(words)
        for kind, _ in findings([sentence]):
            if kind != "old word":  # `begin_anew` is a method
                yield kind, name


def all_findings(root: Path) -> Iterator[str]:
    """Yield a line for each finding below a folder."""
    for file, prose in sources(root):
        for kind, sentence in findings(prose):
            yield f"{file}: {kind}: {sentence}"
    for file, names in test_names(root):
        for kind, name in odd_names(names):
            yield f"{file}: {kind}: {name}"


def print_numbers_of_words(root: Path) -> None:
    """Print the number of words of each page written by hand."""
    numbers_of_site = []
    for path in pages(root):
        number = len(by_hand(path.read_text(encoding="utf-8")).split())
        name = path.relative_to(root)
        print(f"{number:6} {name}")
        if name.parts[0] == "docs":
            numbers_of_site.append(number)
    print(f"docs/: {len(numbers_of_site)} pages, {sum(numbers_of_site):,} words")


def main(arguments: list[str] | None = None, root: Path = ROOT) -> int:
    """Run the command, and return its exit status: 1 if it found something."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--count", action="store_true", help="only print the words of each page written by hand"
    )
    options = parser.parse_args(arguments)
    if options.count:
        print_numbers_of_words(root)
        return 0
    lines = list(all_findings(root))
    for line in lines:
        print(line)
    if lines:
        print(f"{len(lines)} findings: rewrite these sentences and names.")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
