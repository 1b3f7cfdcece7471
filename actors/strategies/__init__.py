"""Strategies: what to play at an information state."""
