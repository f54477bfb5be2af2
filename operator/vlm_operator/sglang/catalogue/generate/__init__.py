"""Writes ``engines/catalogue.json`` from SGLang's published wheels. Reads their source as text and runs none of it."""
