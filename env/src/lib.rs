//! Room env.
