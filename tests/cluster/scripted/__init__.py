"""Scripted runs: faults at given moments instead of drawn ones."""
