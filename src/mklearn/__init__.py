"""Multiple kernel learning."""
