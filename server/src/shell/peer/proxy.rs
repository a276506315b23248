//! A link for tests that can be cut or fall silent.

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// Passes bytes to `target` until told to stop: by closing, or by falling silent.
pub(super) struct Proxy {
    /// Where to dial.
    pub(super) url: String,
    /// Aborting it closes everything.
    pub(super) task: JoinHandle<()>,
    /// True: silent from then on.
    pub(super) mute: watch::Sender<bool>,
}

impl Proxy {
    pub(super) async fn new(target: &str) -> Proxy {
        let target = target.trim_start_matches("http://").to_owned();
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("binds");
        let url = format!("http://{}", listener.local_addr().expect("bound"));
        let (mute, muted) = watch::channel(false);
        let task = tokio::spawn(async move {
            let mut pipes = tokio::task::JoinSet::new();
            loop {
                let (client, _) = listener.accept().await.expect("accepts");
                let server = TcpStream::connect(&target).await.expect("listens");
                let (cr, cw) = client.into_split();
                let (sr, sw) = server.into_split();
                pipes.spawn(pipe(cr, sw, muted.clone()));
                pipes.spawn(pipe(sr, cw, muted.clone()));
            }
        });
        Proxy { url, task, mute }
    }
}

async fn pipe(
    mut from: tokio::net::tcp::OwnedReadHalf,
    mut to: tokio::net::tcp::OwnedWriteHalf,
    mut muted: watch::Receiver<bool>,
) {
    let mut buffer = vec![0; 16 << 10];
    loop {
        let read = tokio::select! {
            read = from.read(&mut buffer) => read,
            _ = muted.wait_for(|muted| *muted) => break,
        };
        match read {
            Ok(n) if n > 0 && to.write_all(&buffer[..n]).await.is_ok() => {}
            _ => return,
        }
    }
    // Silent, but not closed: what a dead host looks like.
    std::future::pending::<()>().await;
}
