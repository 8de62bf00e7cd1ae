"""JAX as a framework for rlcatalog, with code for the fully connected network and the categorical
distribution.
"""
