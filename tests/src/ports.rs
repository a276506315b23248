//! Room `tests`: ports of 127.0.0.1 for servers that are started a moment later. Touches sockets only; uses
//! nothing but the standard library, because `client`'s tests read this same file.
//!
//! A port that was only seen free can be given twice, or taken by a connection before its server is up. So
//! ports come from below those that systems give to outgoing connections, in turn, and each is claimed by
//! holding the UDP port of the same number: other processes that ask here then pass it over.

use std::collections::VecDeque;
use std::net::{Ipv4Addr, TcpListener, UdpSocket};
use std::sync::Mutex;

/// Below Linux's ephemeral ports, which begin at 32768.
const FIRST: u16 = 12_000;
const COUNT: u16 = 20_000;
/// Claims held at a time by one process: more than run at a time, fewer than its descriptors.
const HELD: usize = 200;

struct Claims {
    next: u16,
    held: VecDeque<UdpSocket>,
}

static CLAIMS: Mutex<Option<Claims>> = Mutex::new(None);

/// A port that no one listens on and that is not given to anyone else for the next 200 calls.
///
/// # Panics
/// If 20,000 ports are in use.
#[must_use]
pub fn take() -> u16 {
    let mut claims = CLAIMS.lock().expect("no holder panics");
    let claims = claims.get_or_insert_with(|| Claims {
        next: u16::try_from(std::process::id() * 211 % u32::from(COUNT)).expect("below COUNT"),
        held: VecDeque::new(),
    });
    for _ in 0..COUNT {
        let port = FIRST + claims.next;
        claims.next = (claims.next + 1) % COUNT;
        let Ok(claim) = UdpSocket::bind((Ipv4Addr::LOCALHOST, port)) else {
            continue;
        };
        if TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_err() {
            continue;
        }
        claims.held.push_back(claim);
        if claims.held.len() > HELD {
            claims.held.pop_front();
        }
        return port;
    }
    panic!("no port of 127.0.0.1 from {FIRST} on is free");
}

/// A URL with such a port.
#[must_use]
pub fn url() -> String {
    format!("http://127.0.0.1:{}", take())
}
