"""The simulation of consumer groups."""
