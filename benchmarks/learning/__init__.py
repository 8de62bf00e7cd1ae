"""Learning compared: each engine with its own net and with the catalog's, over paired seeds;
`make compare`.
"""
