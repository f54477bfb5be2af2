"""Facts about nodes and models. Labels are untrusted input; unknown values stay unknown."""
