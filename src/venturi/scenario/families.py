"""The names of the families that a scenario may ask for."""

__all__ = ["FAMILY_NAMES"]

FAMILY_NAMES = (
    "linear", "quadratic", "cubic", "power", "power-constant", "exponential", "exponential-constant", "exponential-sum",
    "exponential-difference", "gaussian", "gaussian-2", "setup", "share", "share-capped", "window", "saturating", "overload",
    "loss-mathis", "loss-pftk", "rtt-mathis", "rtt-pftk",
)  # fmt: skip
"""As in :data:`venturi.model.FAMILIES`, and held to it by a test: the functions themselves need scipy, which takes a second to
import, and a scenario is to be checked in less."""
