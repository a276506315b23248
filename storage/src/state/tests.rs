//! Room storage, state: tests.
