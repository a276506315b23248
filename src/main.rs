//! Package `tenon`: dispatches the command line to the room that answers it, and nothing else.
fn main() {}
