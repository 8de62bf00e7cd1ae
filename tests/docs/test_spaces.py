"""The page of spaces: its cards, and the length of its programs."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pages

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs/spaces.md").read_text(encoding="utf-8")


def test_cards_lead_to_all_sections_in_their_order():
    cards = re.findall(r"^\*\*\[(.+)\]\(#.+\)\*\*$", PAGE, re.M)
    titles = re.findall(r"^## (.+)$", PAGE, re.M)
    assert cards == titles
    assert len(titles) == 12


def test_programs_have_at_most_ten_statements_after_imports():
    programs = [code for _, code, _ in pages.blocks(PAGE)]
    assert len(programs) == 12
    for program in programs:
        statements = []
        for statement in ast.parse(program).body:
            if not isinstance(statement, ast.Import | ast.ImportFrom):
                statements.append(statement)
        assert len(statements) <= 10, program
