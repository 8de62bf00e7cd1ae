"""`python -m rlcatalog`: the command line."""

from rlcatalog.cli import main

if __name__ == "__main__":
    main()
