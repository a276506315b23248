//! Room proto.
