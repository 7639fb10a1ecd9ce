"""Programs that use the simulated cluster: producers, consumers, operators."""
