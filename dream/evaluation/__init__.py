"""How good a strategy is."""
