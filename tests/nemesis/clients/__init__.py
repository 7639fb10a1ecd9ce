"""Who works while faults strike: producers, consumers, groups, operators."""
