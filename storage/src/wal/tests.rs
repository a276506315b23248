//! Room `storage`, WAL: tests.
