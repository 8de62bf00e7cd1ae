"""`python -m rlcatalog_cli`: the command line."""

from rlcatalog_cli import main

if __name__ == "__main__":
    main()
