"""Names of the model families that a scenario can select."""

__all__ = ["FAMILY_NAMES"]

FAMILY_NAMES = (
    "linear", "quadratic", "cubic", "power", "power-constant", "exponential", "exponential-constant", "exponential-sum",
    "exponential-difference", "gaussian", "gaussian-2", "setup", "share", "share-capped", "window", "saturating", "overload",
    "loss-mathis", "loss-pftk", "rtt-mathis", "rtt-pftk",
)  # fmt: skip
"""The keys of :data:`venturi.model.FAMILIES`; a test compares the two lists.

The functions need scipy. Its import takes a second, too long for the check of a scenario."""
