"""Proximal policy optimisation over rlcatalog's contract, and the commands train and evaluate."""
