//! Room `sim`, L2: one server and its clients on turmoil's network, and a plan of what goes wrong when.
//!
//! The server is what `tenon serve` runs: flags, host, door, tonic, hyper, h2; only its sockets are turmoil's and its
//! `Env` is `env`'s. turmoil's TCP never sends a lost segment again: a *partition* kills the connections that used it
//! meanwhile, as an unplugged cable does in the end; a *hold* only delays them.

use super::disk::MemDisk;
use super::env::env;
use super::story::Story;
use futures_util::StreamExt;
use parking_lot::Mutex;
use std::cell::Cell;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Arc, Once};
use std::task::{Context, Poll};
use std::time::Duration;
use tenon_server::shell::embedded::{Embedded, Options};
use tenon_server::shell::listen::{Connection, Incoming};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use turmoil::net::{TcpListener, TcpStream};

/// The server's host name.
pub const SERVER: &str = "server";
/// Its port for clients.
pub const PORT: u16 = 2379;
/// How often the server looks whether it is told to end.
const POLL: Duration = Duration::from_millis(5);
/// Simulated time after which a run counts as hanging.
const LONGEST: Duration = Duration::from_secs(300);

/// What is done to the world.
#[derive(Clone, Copy, Debug)]
pub enum Act {
    /// The server's process dies; its disk stays.
    Crash,
    /// The server starts again.
    Start,
    /// The server is told to stop in order.
    Stop,
    /// Nothing arrives either way between the server and this client, until [`Act::Release`].
    Hold(&'static str),
    /// All that was held arrives.
    Release(&'static str),
    /// What is sent either way between the server and this client is lost, until [`Act::Repair`].
    Cut(&'static str),
    /// The end of a cut.
    Repair(&'static str),
}

/// A process that ends: asked for, or over.
const ORDERED: u8 = 1;
const OVER: u8 = 2;

/// What the server's side knows; shared by its lives.
#[derive(Clone, Default)]
pub struct Server {
    disk: MemDisk,
    stop: Arc<AtomicBool>,
    kill: Arc<AtomicU8>,
    /// Every connection ever taken, in order; `None` once it is closed.
    taken: Arc<Mutex<Vec<Slot>>>,
}

type Slot = Arc<Mutex<Option<TcpStream>>>;

impl Server {
    /// Connections that it holds open now.
    pub fn open(&self) -> usize {
        let taken = self.taken.lock();
        taken.iter().filter(|slot| slot.lock().is_some()).count()
    }

    /// Connections that it ever took.
    pub fn taken(&self) -> usize {
        self.taken.lock().len()
    }

    /// Closes every connection, as the system does for a process that ended. In order: tokio drops its tasks in one
    /// that hangs on a counter of the whole process, and each connection's end draws its own delay.
    fn close_all(&self) {
        for slot in self.taken.lock().iter() {
            slot.lock().take();
        }
    }
}

/// The world under construction.
pub struct World {
    sim: turmoil::Sim<'static>,
    plan: Vec<(Duration, Act)>,
    /// What was seen.
    pub story: Story,
    /// The server's side.
    pub server: Server,
}

thread_local! {
    static PANICS: Cell<usize> = const { Cell::new(0) };
}

/// tokio swallows the panic of a task that nobody awaits; so they are counted.
fn count_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            PANICS.with(|panics| panics.set(panics.get() + 1));
            before(info);
        }));
    });
}

impl World {
    /// A server with these flags besides its name and directory, from a seed.
    pub fn new(seed: u64, flags: &[&str]) -> World {
        count_panics();
        let mut builder = turmoil::Builder::new();
        builder
            .rng_seed(seed)
            .simulation_duration(LONGEST)
            .min_message_latency(Duration::from_millis(1))
            .max_message_latency(Duration::from_millis(20))
            .tcp_capacity(1 << 16);
        let mut sim = builder.build();
        let (story, server) = (Story::default(), Server::default());
        let mut all = vec!["--name=a".to_owned(), "--data-dir=/a".to_owned()];
        all.extend(flags.iter().map(|flag| (*flag).to_owned()));
        let (its, told) = (server.clone(), story.clone());
        sim.host(SERVER, move || {
            live(seed, all.clone(), its.clone(), told.clone())
        });
        World {
            sim,
            plan: Vec::new(),
            story,
            server,
        }
    }

    /// Adds a client host; the run ends once all clients have.
    pub fn client(&mut self, name: &'static str, life: impl Future<Output = ()> + 'static) {
        self.sim.client(name, async move {
            life.await;
            Ok(())
        });
    }

    /// Plans what is done at that time.
    pub fn at(&mut self, at: Duration, act: Act) {
        self.plan.push((at, act));
    }

    /// Runs until every client has ended.
    ///
    /// # Panics
    /// When a client or any task panics, the server ends by itself, or the run hangs.
    pub fn run(mut self) -> Story {
        PANICS.with(|panics| panics.set(0));
        self.plan.sort_by_key(|(at, _)| *at);
        let mut plan = self
            .plan
            .drain(..)
            .collect::<Vec<_>>()
            .into_iter()
            .peekable();
        loop {
            if self.server.kill.load(Ordering::SeqCst) == OVER {
                self.server.kill.store(0, Ordering::SeqCst);
                self.sim.crash(SERVER);
            }
            while let Some((_, act)) = plan.next_if(|(at, _)| *at <= self.sim.elapsed()) {
                apply(&mut self.sim, &self.server, act);
            }
            match self.sim.step() {
                Ok(true) => break,
                Ok(false) => {}
                Err(error) => panic!("{error}\n{}", self.story.text()),
            }
        }
        let story = self.story.clone();
        drop(self.sim);
        let panics = PANICS.with(Cell::get);
        assert_eq!(panics, 0, "tasks panicked:\n{}", story.text());
        story
    }
}

fn apply(sim: &mut turmoil::Sim<'static>, server: &Server, act: Act) {
    match act {
        Act::Crash => server.kill.store(ORDERED, Ordering::SeqCst),
        Act::Start => sim.bounce(SERVER),
        Act::Stop => server.stop.store(true, Ordering::SeqCst),
        Act::Hold(client) => sim.hold(SERVER, client),
        Act::Release(client) => sim.release(SERVER, client),
        Act::Cut(client) => sim.partition(SERVER, client),
        Act::Repair(client) => sim.repair(SERVER, client),
    }
}

/// One life of the server.
async fn live(seed: u64, flags: Vec<String>, server: Server, story: Story) -> turmoil::Result {
    server.stop.store(false, Ordering::SeqCst);
    let life = server.disk.begin_life();
    story.tell(SERVER, format!("life {life}"));
    let env = env(seed, life, server.disk.clone());
    let listener = TcpListener::bind(("0.0.0.0", PORT)).await?;
    let options = Options::from_flags(flags)?;
    let host = Embedded::open_in(&env, options, incoming(listener, &server)).await?;
    let (stop, kill) = (server.stop.clone(), server.kill.clone());
    let told = async {
        while !stop.load(Ordering::SeqCst) {
            tokio::time::sleep(POLL).await;
        }
    };
    let killed = async {
        while kill.load(Ordering::SeqCst) != ORDERED {
            tokio::time::sleep(POLL).await;
        }
    };
    tokio::select! {
        biased;
        () = killed => {
            server.close_all();
            story.tell(SERVER, "killed");
            kill.store(OVER, Ordering::SeqCst);
            return std::future::pending().await;
        }
        ended = host.host().ended() => return Err(format!("the host ended: {ended:?}").into()),
        () = told => {}
    }
    host.shutdown().await;
    server.close_all();
    story.tell(SERVER, "stopped");
    Ok(())
}

fn incoming(listener: TcpListener, server: &Server) -> Incoming {
    let server = server.clone();
    let accepted = futures_util::stream::unfold((listener, server), |(listener, server)| async {
        let stream = listener.accept().await.map(|(stream, _)| {
            let slot = Arc::new(Mutex::new(Some(stream)));
            server.taken.lock().push(slot.clone());
            Box::new(Counted(slot)) as Box<dyn Connection>
        });
        Some((stream, (listener, server)))
    });
    accepted.boxed()
}

/// A connection that can be closed from outside.
struct Counted(Slot);

impl Counted {
    fn with<T>(
        &self,
        poll: impl FnOnce(Pin<&mut TcpStream>) -> Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        match &mut *self.0.lock() {
            Some(stream) => poll(Pin::new(stream)),
            None => Poll::Ready(Err(io::ErrorKind::ConnectionReset.into())),
        }
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.lock().take();
    }
}

impl AsyncRead for Counted {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.with(|stream| stream.poll_read(cx, buf))
    }
}

impl AsyncWrite for Counted {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.with(|stream| stream.poll_write(cx, buf))
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.with(|stream| stream.poll_flush(cx))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.with(|stream| stream.poll_shutdown(cx))
    }
}
