//! Room storage.
