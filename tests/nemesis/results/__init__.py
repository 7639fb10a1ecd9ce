"""What came of a run: findings, evidence from the disks, and the report."""
