//! Room server.
