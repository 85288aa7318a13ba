"""Places and names in messages."""

from __future__ import annotations

from venturi.wording import Problem, Where, one_of, path_text

__all__ = ["Problem", "Where", "one_of", "path_text"]
