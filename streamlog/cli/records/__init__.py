"""`streamlogctl produce` and `consume`: `input_format` and `output_format` are records as lines of text."""
