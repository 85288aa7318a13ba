//! The vocabulary of Venturi.
