//! Room `server/shell`: the signals the process obeys.

use tokio::signal::unix::{Signal, SignalKind, signal};

/// What a signal tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Told {
    /// End; the signal's name.
    Stop(&'static str),
    /// Read the configured mode again.
    Reread,
}

/// The signals of a process.
pub(super) struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hangup: Option<Signal>,
}

impl Signals {
    /// Listens from now on. SIGHUP ends the process, as it does etcd, unless it `rereads`.
    pub(super) fn new(rereads: bool) -> Result<Signals, String> {
        let listen = |kind| signal(kind).map_err(|e| format!("cannot listen for signals: {e}"));
        Ok(Signals {
            terminate: listen(SignalKind::terminate())?,
            interrupt: listen(SignalKind::interrupt())?,
            hangup: rereads.then(|| listen(SignalKind::hangup())).transpose()?,
        })
    }

    /// The next signal.
    pub(super) async fn next(&mut self) -> Told {
        let hangup = async {
            match &mut self.hangup {
                Some(hangup) => hangup.recv().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            _ = self.terminate.recv() => Told::Stop("terminated"),
            _ = self.interrupt.recv() => Told::Stop("interrupt"),
            _ = hangup => Told::Reread,
        }
    }
}
