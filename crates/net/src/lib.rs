//! Mediates the network: capture, DNS, TLS, HTTP.
