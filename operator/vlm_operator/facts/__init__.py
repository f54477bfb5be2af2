"""What is known for certain about nodes and models. Labels are untrusted input; what is unknown stays unknown."""
