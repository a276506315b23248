//! Room sim.
