//! What is done with a finished exchange: access log, reverse DNS.
