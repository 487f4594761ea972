"""Forms of the network that exist to be compared with the default one, which the folder above holds alone.

A file holds the forms of one part. ``_table.py`` registers each by the name that :class:`NetworkOptions` gives it, in
the table of its part beside the default, so nothing else has to know a form; the autoencoder belongs to the latent
process. Weights keep their names, because saved models are loaded by them.
"""
