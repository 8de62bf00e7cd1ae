"""`tools/update.py`: how pins change. What pip finds is not asked for here."""

import update

TEXT = """\
# A comment with numpy==1 in its text stays.
-e ./catalog
numpy==2.4.5
ray[rllib]==2.59.0
torch==2.13.0
torchvision==0.28.0
triton==3.7.1; sys_platform == "linux"
tf_keras==2.20.1; python_version < "3.14"
"""


def test_replace_raises_pins_and_keeps_the_rest():
    newest = {"numpy": "2.4.6", "ray": "2.60.0", "torch": "2.13.0+cpu", "tf-keras": "2.21.0"}
    text, moves = update.replace(TEXT, newest)
    expected = TEXT.replace("2.4.5", "2.4.6").replace("2.59.0", "2.60.0")
    assert text == expected.replace("2.20.1", "2.21.0")
    assert moves == ["numpy 2.4.5 → 2.4.6", "ray 2.59.0 → 2.60.0", "tf_keras 2.20.1 → 2.21.0"]


def test_replace_keeps_what_follows_pytorch():
    text, moves = update.replace(TEXT, {"torchvision": "0.29.0", "triton": "3.9.0"})
    assert text == TEXT
    assert moves == []


def test_requirements_files_are_all_updated():
    files = {path.stem for path in update.REQUIREMENTS.glob("*.txt")}
    assert {*update.TOGETHER, *update.ALONE, update.SERVER} == files
