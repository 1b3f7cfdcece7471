"""Everything that learns: networks, losses and the fitting loops."""
