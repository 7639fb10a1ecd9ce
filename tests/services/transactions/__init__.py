"""The Transactions service."""
