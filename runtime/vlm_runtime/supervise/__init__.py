"""PID 1: starts the engine, forwards signals, explains every exit."""
