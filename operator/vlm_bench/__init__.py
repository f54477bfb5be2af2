"""Measures services: ``kubectl vlm bench`` and ``kubectl vlm profile``, a program of its own beside the operator.

Pure but for ``commands`` and for ``programs``, which are sent into pods as text.
"""
