"""Benchmarks: ``python -m benchmarks`` measures generation, responses, augmentation and speed on the data there are.

Protocol: cells are split at random within labels into training cells, held-out cells and other real cells. Genes are
chosen, spaces and classifiers fitted and models trained on training cells alone; everything is scored against the
held-out cells; other real cells, which no method has seen, are scored the same way and are the ceiling.
"""
