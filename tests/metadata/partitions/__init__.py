"""Leaders, ISR, reassignment."""
