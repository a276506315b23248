//! Room `server/shell`: tells the service manager that the member serves (`READY=1`), by systemd's protocol:
//! one datagram to the socket that `NOTIFY_SOCKET` names. Without that variable it does nothing.

use std::ffi::OsStr;
use std::io;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// Sends `state` to the socket of that name; an absent or empty name is no error.
pub fn send(socket: Option<&OsStr>, state: &str) -> io::Result<()> {
    let Some(name) = socket.filter(|name| !name.is_empty()) else {
        return Ok(());
    };
    let address = address(name)?;
    UnixDatagram::unbound()?.send_to_addr(state.as_bytes(), &address)?;
    Ok(())
}

/// A path, or with a leading `@` a name in Linux's abstract namespace.
fn address(name: &OsStr) -> io::Result<SocketAddr> {
    #[cfg(target_os = "linux")]
    {
        use std::os::linux::net::SocketAddrExt;
        use std::os::unix::ffi::OsStrExt;
        if let Some(abstract_name) = name.as_bytes().strip_prefix(b"@") {
            return SocketAddr::from_abstract_name(abstract_name);
        }
    }
    SocketAddr::from_pathname(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_manager_receives_the_state() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("notify");
        let manager = UnixDatagram::bind(&path).unwrap();
        send(Some(path.as_os_str()), "READY=1\n").unwrap();
        let mut buffer = [0; 64];
        let len = manager.recv(&mut buffer).unwrap();
        assert_eq!(&buffer[..len], b"READY=1\n");
        send(None, "READY=1").unwrap();
        send(Some(OsStr::new("")), "READY=1").unwrap();
    }
}
