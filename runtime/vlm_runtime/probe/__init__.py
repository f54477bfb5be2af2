"""Whether the engine serves and keeps serving."""
