"""What several pools need together: weights, and the router before them. Pure."""
