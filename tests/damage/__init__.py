"""What damage to any file of a node does (`make damage`): detected and reported, repaired, harmless; nothing else."""
