//! Room `sim`: tests of the executor: repeatable runs, choice by seed, lives, pauses, clocks, lanes, and runs
//! that cannot go on.

use crate::{CrashMode, Happening, OnPanic, Sim, Stuck, What};
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::Duration;
use tenon_env::sync::{mpsc, oneshot};
use tenon_env::{Gone, Lane, OpenMode, scope};

const MS: Duration = Duration::from_millis(1);

/// Tasks of three nodes that sleep, talk, write and draw; what they did in order.
fn busy_world(seed: u64) -> (Vec<(u64, u64)>, u64, u64) {
    let sim = Sim::new(seed);
    let log = Arc::new(Mutex::new(Vec::new()));
    let (tx, mut rx) = mpsc::channel(4);
    for id in 1..=3u64 {
        let env = sim.node(id);
        for _ in 0..4 {
            let (here, log, tx) = (env.clone(), log.clone(), tx.clone());
            env.spawn("worker", async move {
                for step in 0..20 {
                    let pause = here.rng.next_u64() % 3_000_000;
                    here.sleep(Duration::from_nanos(pause)).await;
                    let disk = here.disk.clone();
                    let path = format!("/f{}", step % 3);
                    let write = move || {
                        let file = disk.open(path.as_ref(), OpenMode::Create).unwrap();
                        file.write_all_at(&pause.to_le_bytes(), step * 8).unwrap();
                        file.sync().unwrap();
                    };
                    here.blocking(Lane::Wal, write).await.unwrap();
                    log.lock().push((id, step));
                    tx.send(pause).await.unwrap();
                }
            });
        }
    }
    drop(tx);
    let mut sum = 0u64;
    sim.run_until(async {
        while let Some(n) = rx.recv().await {
            sum = sum.wrapping_add(n);
        }
    })
    .unwrap();
    let log = log.lock().clone();
    (log, sum, sim.trace().hash())
}

#[test]
fn the_same_seed_gives_the_same_trace() {
    let first = busy_world(7);
    assert_eq!(first, busy_world(7));
    assert_eq!(first.0.len(), 240);
    let other = busy_world(8);
    assert_ne!(first.0, other.0, "another seed, another order");
    assert_ne!(first.2, other.2);
}

#[test]
fn runnable_tasks_are_chosen_by_seed() {
    let first_of = |seed| {
        let sim = Sim::new(seed);
        let (tx, mut rx) = mpsc::unbounded_channel();
        let env = sim.node(1);
        for i in 0..10 {
            let tx = tx.clone();
            env.spawn("racer", async move { tx.send(i).unwrap() });
        }
        sim.run_until(async { rx.recv().await.unwrap() }).unwrap()
    };
    let winners: std::collections::BTreeSet<i32> = (0..100).map(first_of).collect();
    assert_eq!(winners.len(), 10, "every task wins under some seed");
}

struct OnDrop(Option<oneshot::Sender<bool>>);

impl Drop for OnDrop {
    fn drop(&mut self) {
        let _ = self.0.take().map(|tx| tx.send(scope::current().is_some()));
    }
}

#[test]
fn a_kill_drops_the_tasks_of_its_node_at_once() {
    let sim = Sim::new(1);
    let (one, two) = (sim.node(1), sim.node(2));
    let (tx, mut rx) = oneshot::channel();
    let guard = OnDrop(Some(tx));
    let task = one.spawn("victim", async move {
        let _guard = guard;
        std::future::pending::<()>().await;
    });
    let alive = two.spawn("bystander", std::future::pending());
    sim.run_for(MS).unwrap();
    sim.kill(1, CrashMode::Kept);
    assert_eq!(rx.try_recv(), Ok(true), "dropped inside its node");
    assert!(!sim.is_alive(1) && sim.is_alive(2));
    sim.run_until(task.ended()).unwrap();

    // What an old life still holds is dead: disk, tasks, lanes.
    assert!(one.disk.list("/".as_ref()).is_err());
    let (tx, mut rx) = oneshot::channel();
    let guard = OnDrop(Some(tx));
    one.spawn("late", async move { drop(guard) });
    assert_eq!(rx.try_recv(), Ok(true), "never runs");
    let again = sim.restart(1);
    assert_eq!(
        sim.run_until(one.blocking(Lane::Wal, || 1)).unwrap(),
        Err(Gone)
    );
    assert_eq!(
        sim.run_until(again.blocking(Lane::Wal, || 1)).unwrap(),
        Ok(1)
    );
    assert!(again.disk.list("/".as_ref()).unwrap().is_empty());
    drop(alive);
}

#[test]
fn a_task_may_kill_its_own_node() {
    let sim = Sim::new(1);
    let env = sim.node(1);
    let control = (*sim).clone();
    let after = Arc::new(Mutex::new(0));
    let seen = after.clone();
    env.spawn("suicide", async move {
        control.kill(1, CrashMode::Lost);
        *seen.lock() += 1;
        tokio::task::yield_now().await;
        *seen.lock() += 10;
    });
    sim.run_until(sim.died(1)).unwrap();
    sim.run_for(MS).unwrap();
    assert_eq!(*after.lock(), 1, "the turn ends, the next never comes");
}

#[test]
fn a_pause_stops_a_node_but_not_its_clock() {
    let sim = Sim::new(3);
    let env = sim.node(1);
    let count = Arc::new(Mutex::new(0));
    let (here, counted) = (env.clone(), count.clone());
    env.spawn("ticker", async move {
        loop {
            here.sleep(10 * MS).await;
            here.blocking(Lane::Read, || ()).await.unwrap();
            *counted.lock() += 1;
        }
    });
    sim.run_for(105 * MS).unwrap();
    let before = *count.lock();
    assert!(before >= 9, "{before}");
    sim.pause(1);
    let then = env.now();
    sim.run_for(1000 * MS).unwrap();
    assert_eq!(*count.lock(), before);
    assert!(env.now() - then >= 1000 * MS);
    sim.resume(1);
    sim.run_for(105 * MS).unwrap();
    assert!(*count.lock() >= before + 9);
}

#[test]
fn clocks_drift_and_jump() {
    let sim = Sim::new(4);
    let (a, b) = (sim.node(1), sim.node(2));
    sim.drift(1, 100_000_000);
    let (a0, b0) = (a.now(), b.now());
    sim.run_for(Duration::from_secs(10)).unwrap();
    assert_eq!(a.now() - a0, Duration::from_secs(11));
    assert_eq!(b.now() - b0, Duration::from_secs(10));
    // A sleep ends by its node's clock, also when that jumps meanwhile.
    let start = sim.now();
    sim.run_until(a.sleep(Duration::from_secs(11))).unwrap();
    assert_eq!(sim.now() - start, Duration::from_secs(10));
    let (tx, rx) = oneshot::channel();
    let here = b.clone();
    b.spawn("sleeper", async move {
        here.sleep(Duration::from_secs(100)).await;
        tx.send(()).unwrap();
    });
    sim.run_for(MS).unwrap();
    sim.jump(2, Duration::from_secs(99));
    let start = sim.now();
    sim.run_until(rx).unwrap().unwrap();
    assert!(sim.now() - start <= Duration::from_secs(1));
    let wall = b.clock.wall_ms();
    sim.jump_wall(2, -5_000);
    assert_eq!(b.clock.wall_ms(), wall - 5_000);
    sim.kill(2, CrashMode::Kept);
    assert_eq!(
        sim.restart(2).clock.wall_ms(),
        wall - 5_000,
        "kept over a restart"
    );
}

#[test]
fn lanes_keep_order_and_take_time() {
    let sim = Sim::new(5);
    let env = sim.node(1);
    let order = Arc::new(Mutex::new(Vec::new()));
    let disk = env.disk.clone();
    let mut waits = Vec::new();
    for i in 0..50 {
        let (order, disk) = (order.clone(), disk.clone());
        let step = move || {
            let file = disk.open("/f".as_ref(), OpenMode::Create).unwrap();
            file.write_all_at(b"x", i).unwrap();
            file.sync().unwrap();
            order.lock().push(i);
        };
        waits.push(env.spawn.blocking(Lane::Wal, Box::new(step)));
    }
    assert!(order.lock().is_empty(), "not before its turn");
    let start = sim.now();
    sim.run_until(async {
        for wait in waits.into_iter().rev() {
            wait.await;
        }
    })
    .unwrap();
    assert_eq!(*order.lock(), (0..50).collect::<Vec<_>>());
    assert!(sim.now() - start > 5 * MS, "fifty syncs take time");
}

#[test]
fn runs_that_cannot_go_on() {
    let mut sim = Sim::new(6);
    let env = sim.node(1);
    env.spawn("waiter", std::future::pending());
    let stuck = sim.run_until(std::future::pending::<()>()).unwrap_err();
    assert_eq!(stuck, Stuck::Deadlock(vec!["node 1 waiter".into()]));

    let here = env.clone();
    env.spawn("ticker", async move {
        loop {
            here.sleep(MS).await;
        }
    });
    sim.limit(Duration::from_secs(1));
    let stuck = sim.run_until(std::future::pending::<()>()).unwrap_err();
    assert_eq!(stuck, Stuck::TimeLimit(1_000_000_000));

    env.spawn("spinner", async {
        loop {
            tokio::task::yield_now().await;
        }
    });
    let stuck = sim.run_until(std::future::pending::<()>()).unwrap_err();
    assert!(
        matches!(&stuck, Stuck::BusyLoop(task, _) if task == "node 1 spinner"),
        "{stuck}"
    );

    let mut sim = Sim::new(6);
    sim.limit(Duration::from_secs(1));
    let env = sim.node(1);
    let here = env.clone();
    env.spawn("crawler", async move {
        loop {
            here.sleep(Duration::from_nanos(1)).await;
            tokio::task::yield_now().await;
            tokio::task::yield_now().await;
        }
    });
    let stuck = sim.run_until(std::future::pending::<()>()).unwrap_err();
    assert!(
        matches!(&stuck, Stuck::BusyLoop(task, _) if task == "node 1 crawler"),
        "{stuck}"
    );

    let sim = Sim::new(6);
    let env = sim.node(1);
    let here = env.clone();
    env.spawn("starer", async move {
        let start = here.now();
        while here.now() == start {}
    });
    let run = std::panic::AssertUnwindSafe(|| sim.run_for(MS));
    let panic = std::panic::catch_unwind(run).unwrap_err();
    assert!(crate::panic_text(&*panic).starts_with("busy loop: node 1"));
}

#[test]
fn a_panic_is_a_bug_unless_its_node_died() {
    let mut sim = Sim::new(9);
    let env = sim.node(1);
    let control = (*sim).clone();
    env.spawn("dying", async move {
        control.kill(1, CrashMode::Kept);
        panic!("expected by the test");
    });
    sim.run_for(MS).unwrap();

    let env = sim.restart(1);
    env.spawn("broken", async { panic!("expected by the test") });
    let run = std::panic::AssertUnwindSafe(|| sim.run_for(MS));
    let panic = std::panic::catch_unwind(run).unwrap_err();
    assert_eq!(crate::panic_text(&*panic), "expected by the test");

    sim.on_panic(OnPanic::EndTask);
    let task = env.spawn("broken", async { panic!("expected by the test") });
    sim.run_until(task.ended()).unwrap();
}

#[test]
fn openrafts_runtime_suite_holds_on_the_executor() {
    let mut sim = Sim::new(10);
    // One of its cases lets a task panic and asks that the runtime goes on.
    sim.on_panic(OnPanic::EndTask);
    let env = sim.node(1);
    let sim = Arc::new(sim);
    let world = sim.clone();
    let drive = Box::new(move |future: std::pin::Pin<&mut dyn Future<Output = ()>>| {
        world.run_until(future).unwrap();
    });
    tenon_raft::runtime_suite(&env, drive);
    assert!(sim.trace().events() > 100);
}

#[test]
fn the_chronicle_tells_and_counts_faults() {
    let sim = Sim::new(11);
    sim.node(1);
    sim.node(2);
    sim.cut_one_way(1, 2);
    sim.mend(1, 2);
    sim.mend(1, 2);
    sim.clog(2, 1, MS);
    sim.link(1, 2, |link| link.loss_ppm = 7);
    sim.reset_streams(1, 2);
    sim.pause(1);
    sim.resume(1);
    sim.resume(1);
    sim.drift(1, 5);
    sim.jump(1, MS);
    sim.disk(1).capacity(Some(0));
    sim.disk(1).heal();
    sim.disk(1).heal();
    let trace = sim.trace();
    sim.tell(What::Note(None, "a word".to_owned()));
    assert_eq!(trace, sim.trace(), "words have no effect");
    sim.kill(1, CrashMode::Lost);
    let chronicle = sim.chronicle();
    let counts: Vec<(&str, u64)> = chronicle.counts().into_iter().collect();
    assert_eq!(
        counts,
        [
            ("bad link", 1),
            ("clock jump", 1),
            ("clog", 1),
            ("cut", 1),
            ("drift", 1),
            ("full disk", 1),
            ("pause", 1),
            ("power cut", 1),
            ("stream reset", 1),
        ]
    );
    let mended = |h: &&Happening| matches!(h.what, What::Mended(..) | What::Resumed(_));
    assert_eq!(chronicle.happenings().iter().filter(mended).count(), 2);
}
