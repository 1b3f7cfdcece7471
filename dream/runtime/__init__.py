"""Where sampling and fitting happen: the runtime protocol and its local implementation."""
