//! Room `storage`, WAL tests: a world that moves only when told: tasks, lanes and time by hand, so that a test
//! decides what gathers in a batch and what a crash interrupts.

use super::disk::FakeDisk;
use parking_lot::Mutex;
use std::collections::{BTreeMap, VecDeque};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use tenon_env::sync::oneshot;
use tenon_env::{BoxFuture, Clock, Disk, Env, Instant, Lane, Rng, Spawn, Task};

/// SplitMix64.
#[derive(Clone, Debug, Default)]
pub(crate) struct Dice(u64);

impl Dice {
    pub(crate) fn new(seed: u64) -> Dice {
        Dice(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    pub(crate) fn coin(&mut self) -> bool {
        self.next() & 1 == 1
    }
}

struct SharedDice(Mutex<Dice>);

impl Rng for SharedDice {
    fn next_u64(&self) -> u64 {
        self.0.lock().next()
    }
}

type Job = (Box<dyn FnOnce() + Send>, oneshot::Sender<()>);

#[derive(Default)]
struct Inner {
    all: Mutex<Vec<Arc<Running>>>,
    ready: Mutex<VecDeque<Arc<Running>>>,
    lanes: Mutex<BTreeMap<Lane, VecDeque<Job>>>,
    now: Mutex<u64>,
    timers: Mutex<Vec<(u64, Waker)>>,
}

/// Tasks, lanes and the clock of one life of one node.
#[derive(Clone, Default)]
pub(crate) struct Hands(Arc<Inner>);

struct Running {
    inner: Arc<Inner>,
    future: Mutex<Option<BoxFuture<'static, ()>>>,
    queued: AtomicBool,
}

impl Wake for Running {
    fn wake(self: Arc<Self>) {
        if !self.queued.swap(true, Ordering::SeqCst) {
            let inner = self.inner.clone();
            inner.ready.lock().push_back(self);
        }
    }
}

impl Spawn for Hands {
    fn spawn(&self, _name: &'static str, future: BoxFuture<'static, ()>) -> Task {
        let (ended, end) = oneshot::channel::<()>();
        let future = async move {
            let _ended = ended;
            future.await;
        };
        let running = Arc::new(Running {
            inner: self.0.clone(),
            future: Mutex::new(Some(Box::pin(future))),
            queued: AtomicBool::new(false),
        });
        self.0.all.lock().push(running.clone());
        running.wake();
        let done = async move {
            let _ = end.await;
        };
        Task::new(Box::new(|| ()), Box::pin(done))
    }

    fn blocking(&self, lane: Lane, job: Box<dyn FnOnce() + Send>) -> BoxFuture<'static, ()> {
        let (tx, rx) = oneshot::channel();
        self.0
            .lanes
            .lock()
            .entry(lane)
            .or_default()
            .push_back((job, tx));
        Box::pin(async move {
            let _ = rx.await;
        })
    }
}

struct Sleep {
    inner: Arc<Inner>,
    deadline: u64,
}

impl Future for Sleep {
    type Output = ();
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        if *self.inner.now.lock() >= self.deadline {
            return Poll::Ready(());
        }
        self.inner
            .timers
            .lock()
            .push((self.deadline, cx.waker().clone()));
        Poll::Pending
    }
}

impl Clock for Hands {
    fn now(&self) -> Instant {
        let mut now = self.0.now.lock();
        *now += 1_000;
        Instant(*now)
    }

    fn wall_ms(&self) -> u64 {
        0
    }

    fn sleep_until(&self, deadline: Instant) -> BoxFuture<'static, ()> {
        Box::pin(Sleep {
            inner: self.0.clone(),
            deadline: deadline.0,
        })
    }
}

impl Hands {
    /// Polls tasks until none is ready.
    pub(crate) fn tasks(&self) {
        loop {
            let Some(running) = self.0.ready.lock().pop_front() else {
                return;
            };
            running.queued.store(false, Ordering::SeqCst);
            let waker = Waker::from(running.clone());
            let mut slot = running.future.lock();
            let done = slot
                .as_mut()
                .is_some_and(|f| f.as_mut().poll(&mut Context::from_waker(&waker)).is_ready());
            if done {
                *slot = None;
            }
        }
    }

    /// Runs the next step of the `nth` lane that has one. `false` when none has.
    pub(crate) fn job(&self, nth: usize) -> bool {
        let job = {
            let mut lanes = self.0.lanes.lock();
            lanes.retain(|_, jobs| !jobs.is_empty());
            let busy = lanes.len().max(1);
            let lane = lanes.values_mut().nth(nth % busy);
            lane.and_then(VecDeque::pop_front)
        };
        match job {
            Some((job, done)) => {
                job();
                let _ = done.send(());
                true
            }
            None => false,
        }
    }

    /// Runs tasks and steps until all is still; time stands.
    pub(crate) fn run(&self) {
        self.tasks();
        while self.job(0) {
            self.tasks();
        }
    }

    /// Moves the clock to the next timer.
    pub(crate) fn advance(&self) {
        let mut timers = std::mem::take(&mut *self.0.timers.lock());
        timers.sort_by_key(|(deadline, _)| *deadline);
        if let Some((deadline, _)) = timers.first() {
            let mut now = self.0.now.lock();
            *now = (*now).max(*deadline);
        }
        for (_, waker) in timers {
            waker.wake();
        }
    }

    /// Drops every task and step: the node is dead.
    pub(crate) fn kill(&self) {
        self.0.timers.lock().clear();
        let lanes = std::mem::take(&mut *self.0.lanes.lock());
        drop(lanes);
        for running in std::mem::take(&mut *self.0.all.lock()) {
            let future = running.future.lock().take();
            drop(future);
        }
        self.0.ready.lock().clear();
    }
}

/// A node on `disk`, a new life.
pub(crate) fn node(disk: &FakeDisk, seed: u64) -> (Env, Hands) {
    node_on(Arc::new(disk.clone()), seed)
}

/// A node on any disk.
pub(crate) fn node_on(disk: Arc<dyn Disk>, seed: u64) -> (Env, Hands) {
    let hands = Hands::default();
    let env = Env {
        clock: Arc::new(hands.clone()),
        rng: Arc::new(SharedDice(Mutex::new(Dice::new(seed)))),
        disk,
        net: Arc::new(tenon_env::real::NoNet),
        spawn: Arc::new(hands.clone()),
        plant: tenon_env::Plant::None,
    };
    (env, hands)
}
