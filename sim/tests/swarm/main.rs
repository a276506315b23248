//! Room `sim`: whole runs of clusters.

mod plants;
mod seeds;
