"""The client: producer, consumer by assignment, admin; over the ports, so that a simulation runs the very same."""
