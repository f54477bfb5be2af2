"""The API server: everything that is read from it and written to it. The only importer of the Kubernetes client."""
