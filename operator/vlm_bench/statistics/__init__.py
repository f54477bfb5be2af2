"""What the rounds of a measurement show."""
