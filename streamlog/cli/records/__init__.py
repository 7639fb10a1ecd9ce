"""`streamlogctl produce` and `consume`: `input_format` and `output_format` are records as lines of text.

produce, consume                 the commands
offsets, delete                  ends of partitions; the oldest records deleted
input_format, output_format      records as lines of text; format_template: those of kcat
standard_input, standard_output  reads and writes that may block, in a thread
waits                            why records are not acknowledged
"""
