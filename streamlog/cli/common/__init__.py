"""What the commands share: names in arguments, the target cluster, sessions, output, errors, progress.

target, session     which cluster; the connection of one run
profiles            the file of named clusters
nouns, paths        groups of verbs, names as arguments or flags; files that a command makes
output, progress    tables, JSON, text; what a long command shows meanwhile
failures            one sentence for each error
answering           which nodes accept connections
library_logs        warnings of libraries, as lines of standard error
"""
