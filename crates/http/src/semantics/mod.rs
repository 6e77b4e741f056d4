//! What HTTP means whatever its version: RFC 9110 and its companions.
