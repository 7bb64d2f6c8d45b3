"""The conformance suite: what every compiler adapter must do, for adapters in the package and outside of it."""
