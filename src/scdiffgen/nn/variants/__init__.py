"""Alternative components of the network, for comparisons with the default ones of the folder above.

Each file holds the alternatives of one component. ``_table.py`` registers them under their names in
:class:`NetworkOptions`. Names of weights must not change, because saved models are loaded by them.
"""
