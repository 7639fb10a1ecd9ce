"""Who a caller is, and what it may do: access control lists, names of principals, passwords. Pure.

acl            one access control list entry, with Kafka's terms
acl_rules      all entries, indexed: which one decides about an operation
principals     a certificate's subject to a principal's name
passwords      salted hashes
tokens         JSON web tokens of an issuer whose keys are known
throttle       slows down guessing of passwords
"""
