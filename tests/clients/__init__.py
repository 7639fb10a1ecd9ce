"""Clients in other languages: the examples, the conformance suite, kills under all of them. Run by `make clients`."""

import pytest

pytest.register_assert_rewrite("tests.clients.cases")
