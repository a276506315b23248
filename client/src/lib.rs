//! Room client.
