//! Room `sim`, L1: the parts of a member on a disk that loses power. Bounded and seeded; a failure names the
//! seed that repeats it.

mod member;
mod wal;
