"""Decisions on access control lists, users and quotas.

acl_changes     entries are added and removed
user_changes    users with passwords
quota_changes   limits of users and client ids
"""
