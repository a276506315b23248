//! Room `server/host`: the door before a running member, and the same member as one elsewhere, while the endpoint
//! moves between the two.

mod calls;
mod floors;
mod keep_alives;
mod moves;
mod world;
