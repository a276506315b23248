//! Room `sim`: whole runs of clusters.

mod hosts;
mod kept;
mod pages;
mod plants;
mod seeds;
