//! Carries out a host part of a plan.
