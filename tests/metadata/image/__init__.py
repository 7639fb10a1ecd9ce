"""The image: deltas, snapshots, replay, its collections."""
