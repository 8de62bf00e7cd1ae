"""Checks: what each kind of part must do, one function for each line of its contract."""
