"""What a rule looks for in a sample.

assessments   what conditions work on, and what they return
tracks        what a single sample does not have: since when a topic is idle, how old a lag is
assess        rule + sample -> the subjects that breach it, and those that are unknown: pure
topics        the conditions about lags, and about topics without writes: pure
"""
