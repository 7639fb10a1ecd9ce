"""Who may do what: `certificates` (`streamlogctl security`), `user` and `acl`; and how much: `quota`."""
