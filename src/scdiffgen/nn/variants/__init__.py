"""Alternative components of the network, for comparisons with the default ones of the folder above.

Each file holds the alternatives of one component. ``_table.py`` has their names in :class:`NetworkOptions`, and a file
is imported when a network needs it. Names of weights must not change, because saved models are loaded by them.
"""
