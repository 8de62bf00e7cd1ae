"""Pictures of the docs: their colours on dark screens."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree

import pytest
import svg


def test_picture_has_a_dark_colour_for_each_colour():
    picture = svg.picture([svg.box(0, 0, 9, 9), svg.words(1, 1, "a")], width=20, height=20)

    style = ElementTree.fromstring(picture).findtext("{http://www.w3.org/2000/svg}style")
    assert "@media (prefers-color-scheme: dark)" in style
    # The fill and border of the box, the text, the background, and the frame.
    for attribute, colour in [
        ("fill", svg.FILL),
        ("stroke", svg.LINE),
        ("fill", svg.TEXT),
        ("fill", "#fff"),
        ("stroke", svg.GRID),
    ]:
        assert f'[{attribute}="{colour}"] {{ {attribute}: #' in style


def test_colour_without_a_dark_one_is_refused():
    with pytest.raises(KeyError, match="#123456"):
        svg.with_dark_colours('<svg fill="#123456">\n</svg>')
