"""Entry point of the command line: `python -m rlcatalog_cli`."""

from rlcatalog_cli import main

if __name__ == "__main__":
    main()
