"""Faults that need the formats of a node, or of which a plan bears few: damage, lost disks, hostile peers."""
