"""Defects of PySyncObj: each test runs on the library alone and on ours."""
