"""The simulated network: `fabric` has the wires between hosts, `call` a call on them, `network` the port."""
