"""Which hardware a plan is made for."""
