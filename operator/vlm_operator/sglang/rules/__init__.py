"""The rules, one module a topic. A rule reads the context and what was declared before it, and yields declarations."""
