"""Who may do what in the console: users, sessions, the audit log, the protection of record values.

    roles        UserRole, Action, and the one table action -> least role: pure
    caller       the user of the current page or event; `require`, `permitted`
    values       hiding and masking what records hold, by topic and role: pure
    gate         what each request passes before it reaches a page; `login`, `oidc`: how a session begins
    control      logins, sessions and the audit log of a running console; `sessions`: pure
    users        who may log in; `audit`: what was done; `database`: where both are kept
    settings     the access file

Nothing here trusts the page: a page hides what its user may not do, `permitted` refuses it.
"""
