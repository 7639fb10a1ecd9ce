"""What strikes the nodes: the plan, who carries it out, and what it needs of the machine."""
