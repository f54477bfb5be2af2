"""From facts to settings: ordered phases of rules that declare values with their reasons, and never assign."""
