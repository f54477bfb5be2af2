"""Nodes and ResourceSlices -> NodeFacts. Labels are untrusted input."""
