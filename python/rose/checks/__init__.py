"""Whether a model gives the numbers that it should: at start, and on request."""
