"""Shared helpers: servers, clients, certificates, scripts and their processes."""
