"""Connections, the choice of a node, the loop of the synchronous fronts."""
