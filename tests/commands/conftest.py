"""The option that writes the expected screens of the commands."""


def pytest_addoption(parser):
    parser.addoption(
        "--write-screens",
        action="store_true",
        help="Write the screens of the commands to tests/commands/screens, instead of comparing.",
    )
