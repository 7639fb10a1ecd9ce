"""The simulation of transactions."""
