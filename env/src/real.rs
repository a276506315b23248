//! Room `env`: the real world: tokio, std::fs, OS randomness.
