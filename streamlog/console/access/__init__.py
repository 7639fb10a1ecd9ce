"""Who may do what in the console: users, sessions, the audit log, the protection of record values.

    roles        Role, Action, and the one table action -> least role: pure
    caller       the user of the current page or event; `require`, `permitted`
    values       hiding and masking what records hold, by topic and role: pure

Nothing here trusts the page: a page hides what its user may not do, `permitted` refuses it.
"""
