"""Architectures, one family a file."""
