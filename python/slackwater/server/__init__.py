"""The coordinator's process, its HTTP server for sessions, and the ingress."""
