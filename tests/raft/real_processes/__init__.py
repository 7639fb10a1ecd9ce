"""A quorum of real processes over gRPC."""
