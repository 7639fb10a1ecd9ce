"""Decisions on access control lists and users.

acl_changes     entries are added and removed
user_changes    users with passwords
"""
