"""Who a caller is, what it may do and how much: access control lists, principals, passwords, quotas. Pure.

acl            one access control list entry, with Kafka's terms
acl_rules      all entries, indexed: which one decides about an operation
addresses      the form in which callers' IP addresses are known
principals     a certificate's subject to a principal's name
passwords      salted hashes
tokens         JSON web tokens of an issuer whose keys are known
quotas         limits of users and client ids, and which of them applies
throttle       slows down guessing of passwords
"""
