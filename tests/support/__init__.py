"""What the tests of several folders share. No module here is a test."""
