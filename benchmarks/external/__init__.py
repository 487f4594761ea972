"""Recipes that drive published programs from their own sources; README.md says how to run them and what they change."""
