"""rlcatalog beside other libraries on the same work, in one run: `make peers`."""
