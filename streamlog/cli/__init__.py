"""`streamlogctl`: one file a noun, loaded when it is asked for (`main`).

Exit codes, the same for every command: 0 done, 1 it could not be done or something is damaged, 2 wrong usage. Results
go to standard output, everything else (errors, progress) to standard error. An error is one sentence that says what
is wrong and what to do.
"""
