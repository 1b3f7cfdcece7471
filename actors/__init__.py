"""Everything that plays: batched games, strategies and the samplers that traverse them."""
