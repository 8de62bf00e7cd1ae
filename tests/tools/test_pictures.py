"""Pictures of the docs: their colours on dark screens."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree

import pytest
import svg


def test_dark_variant_has_a_rule_for_each_colour():
    picture = svg.picture([svg.box(0, 0, 9, 9), svg.words(1, 1, "a")], width=20, height=20)

    root = ElementTree.fromstring(svg.with_dark_variant(picture))

    style = root.findtext("{http://www.w3.org/2000/svg}style")
    assert style.startswith("@media (prefers-color-scheme:dark){")
    # The fill and border of the box, the text, the background, and the frame.
    for attribute, colour in [
        ("fill", svg.FILL),
        ("stroke", svg.LINE),
        ("fill", svg.TEXT),
        ("fill", "#fff"),
        ("stroke", svg.GRID),
    ]:
        assert f'[{attribute}="{colour}"]{{{attribute}:#' in style
    # On light screens, the picture is as before.
    root.remove(root.find("{http://www.w3.org/2000/svg}style"))
    assert [node.attrib for node in root.iter()] == [
        node.attrib for node in ElementTree.fromstring(picture).iter()
    ]


def test_colour_without_a_dark_one_is_refused():
    with pytest.raises(KeyError, match="#123456"):
        svg.with_dark_variant('<svg fill="#123456">\n</svg>')
