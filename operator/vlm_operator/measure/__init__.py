"""Measuring services: which rounds to run, what they say together, where a trace's time goes, and the report.

Pure but for two programs that are sent into pods as text: ``driver`` and ``recorder``.
"""
