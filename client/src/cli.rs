//! Room `client`: the command lines that speak to a server, one file per verb. They print to standard output and
//! error, and give an exit code: 0 done, 1 refused or failed, 2 not understood.

mod bar;
mod host;
mod host_text;

pub use host::host;
