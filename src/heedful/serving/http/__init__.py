"""The service over HTTP: a router for each dialect, and what they share."""
