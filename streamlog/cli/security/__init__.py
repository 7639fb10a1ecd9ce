"""Who may do what: `certificates` (`streamlogctl security`), `user` and `acl` (with `effect`: whether that
has an effect yet); and how much: `quota`."""
