"""The bare lab as a fixture for the tests of services."""

from bare import lab

__all__ = ["lab"]
