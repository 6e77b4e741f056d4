"""What the tests share: servers, clients, certificates, scripts and their processes."""
