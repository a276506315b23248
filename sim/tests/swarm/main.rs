//! Room `sim`: whole runs of clusters.

mod kept;
mod pages;
mod plants;
mod seeds;
