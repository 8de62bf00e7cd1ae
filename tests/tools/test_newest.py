"""`tools/newest.py`: what it says of a run. The run itself is `make newest`."""

import newest
import pytest

REPORT = """\
<testsuites><testsuite>
<testcase file="catalog/tests/test_a.py" name="test_one"/>
<testcase file="plugins/ppo/tests/test_b.py" name="test_two"><failure>no</failure></testcase>
<testcase file="plugins/ppo/tests/test_b.py" name="test_three"><error>no</error></testcase>
<testcase file="tests/docs/test_c.py" name="test_four[README.md]"><failure>no</failure></testcase>
<testcase file="tests/docs/test_c.py" name="test_five"><skipped>no</skipped></testcase>
</testsuite></testsuites>
"""


def test_report_is_counted_by_package(tmp_path):
    report = tmp_path / "report.xml"
    report.write_text(REPORT, encoding="utf-8")
    suite = newest.read_report("all", report)
    assert suite.passed == 1
    assert suite.by_package() == {"plugins/ppo": 2, "tests/docs": 1}
    assert suite.failures[-1] == "tests/docs/test_c.py::test_four[README.md]"


@pytest.mark.parametrize("extra", newest.WITH_RAY)
def test_extras_with_ray_are_extras(extra):
    assert extra in newest.extras()
