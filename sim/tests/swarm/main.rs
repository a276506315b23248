//! Room `sim`: whole runs of clusters.

mod pages;
mod plants;
mod seeds;
