"""Forms of the network that exist to be compared with the default one, which the folder above holds alone.

A file holds the forms of one part. ``_table.py`` registers each by its name in :class:`NetworkOptions`, beside the
default, so nothing else has to know a form. Weights keep their names, because saved models are loaded by them.
"""
