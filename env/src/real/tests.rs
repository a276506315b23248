//! Room `env`: the real world keeps the promises of its traits.

use super::*;
use crate::{Disk, Gone, Instant, Lane, OpenMode, scope};
use parking_lot::Mutex;
use std::io;
use std::path::Path;
use std::time::Duration;

#[test]
fn disk_write_atomic_replaces_and_leaves_no_rest() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("state");
    RealDisk
        .write_atomic(&path, b"a longer first content")
        .unwrap();
    RealDisk.write_atomic(&path, b"second").unwrap();
    assert_eq!(RealDisk.read(&path).unwrap(), b"second");
    let names: Vec<String> = RealDisk
        .list(dir.path())
        .unwrap()
        .into_iter()
        .map(|e| e.name)
        .collect();
    assert_eq!(names, ["state"]);
}

#[test]
fn what_is_created_only_its_owner_reads() {
    use std::os::unix::fs::PermissionsExt;
    let dir = tempfile::tempdir().unwrap();
    let deep = dir.path().join("a/b");
    RealDisk.create_dir_all_synced(&deep).unwrap();
    RealDisk.write_atomic(&deep.join("f"), b"x").unwrap();
    drop(RealDisk.lock(&deep.join("lock")).unwrap());
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&dir.path().join("a")), 0o700);
    assert_eq!(mode(&deep), 0o700);
    assert_eq!(mode(&deep.join("f")), 0o600);
    assert_eq!(mode(&deep.join("lock")), 0o600);
}

#[test]
fn disk_files() {
    let dir = tempfile::tempdir().unwrap();
    let deep = dir.path().join("a/b");
    RealDisk.create_dir_all_synced(&deep).unwrap();
    RealDisk.create_dir_all_synced(&deep).unwrap();
    let path = deep.join("f");
    assert_eq!(RealDisk.stat(&path).unwrap(), None);
    let missing = RealDisk.open(&path, OpenMode::ReadWrite).unwrap_err();
    assert_eq!(missing.kind(), io::ErrorKind::NotFound);
    let file = RealDisk.open(&path, OpenMode::CreateNew).unwrap();
    let twice = RealDisk.open(&path, OpenMode::CreateNew).unwrap_err();
    assert_eq!(twice.kind(), io::ErrorKind::AlreadyExists);

    file.allocate(8192).unwrap();
    assert_eq!(file.len().unwrap(), 8192);
    file.write_all_at(b"hello", 8190).unwrap();
    file.sync().unwrap();
    let mut got = [0; 6];
    RealDisk
        .open(&path, OpenMode::Read)
        .unwrap()
        .read_exact_at(&mut got, 8189)
        .unwrap();
    assert_eq!(&got, b"\0hello");
    let short = file.read_exact_at(&mut [0; 6], 8190).unwrap_err();
    assert_eq!(short.kind(), io::ErrorKind::UnexpectedEof);
    file.allocate(4096).unwrap();
    assert_eq!(file.len().unwrap(), 4096, "allocate states the length");
    file.set_len(3).unwrap();

    RealDisk.rename(&path, &dir.path().join("g")).unwrap();
    RealDisk.sync_dir(dir.path()).unwrap();
    let all = RealDisk.list(dir.path()).unwrap();
    assert_eq!(all.len(), 2);
    assert_eq!(
        (all[0].name.as_str(), all[0].is_dir, all[0].len),
        ("a", true, 0)
    );
    assert_eq!(
        (all[1].name.as_str(), all[1].is_dir, all[1].len),
        ("g", false, 3)
    );
    RealDisk.remove_file(&dir.path().join("g")).unwrap();
    RealDisk.remove_dir_all(&dir.path().join("a")).unwrap();
    assert!(RealDisk.list(dir.path()).unwrap().is_empty());
}

#[test]
fn disk_lock_is_exclusive_until_dropped() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("lock");
    let held = RealDisk.lock(&path).unwrap();
    let refused = RealDisk.lock(&path).err().expect("held");
    assert_eq!(refused.kind(), io::ErrorKind::WouldBlock);
    drop(held);
    drop(RealDisk.lock(&path).unwrap());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lane_keeps_the_order_of_calls_and_survives_a_panic() {
    let env = env_without_peers();
    let order = Arc::new(Mutex::new(Vec::new()));
    let mut waits = Vec::new();
    for i in 0..500 {
        let order = order.clone();
        // Queued at the call, so awaiting in another order changes nothing.
        waits.push(
            env.spawn
                .blocking(Lane::Wal, Box::new(move || order.lock().push(i))),
        );
    }
    for wait in waits.into_iter().rev() {
        wait.await;
    }
    assert_eq!(*order.lock(), (0..500).collect::<Vec<_>>());

    let broken: Result<(), Gone> = env
        .blocking(Lane::Wal, || panic!("expected by the test"))
        .await;
    assert_eq!(broken, Err(Gone));
    assert_eq!(env.blocking(Lane::Wal, || 7).await, Ok(7));
    let names = [Lane::Wal, Lane::Engine]
        .map(|lane| env.blocking(lane, || std::thread::current().name().map(str::to_owned)));
    let [wal, engine] = names;
    assert_ne!(wal.await, engine.await, "each lane has a thread of its own");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn time_moves_and_timeout_ends() {
    let env = env_without_peers();
    let before = env.now();
    env.sleep(Duration::from_millis(5)).await;
    assert!(env.now() >= before + Duration::from_millis(5));
    env.clock.sleep_until(Instant(0)).await;
    assert_eq!(
        env.timeout(Duration::from_millis(5), std::future::pending::<()>())
            .await,
        None
    );
    assert_eq!(
        env.timeout(Duration::from_secs(60), async { 3 }).await,
        Some(3)
    );
    assert!(env.clock.wall_ms() > 1_600_000_000_000);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tasks_know_their_node_and_can_be_stopped() {
    let (one, two) = (env_without_peers(), env_without_peers());
    assert!(scope::current().is_none());
    let (tx, rx) = crate::sync::oneshot::channel();
    let clock = Arc::as_ptr(&one.clock) as *const () as usize;
    one.spawn("outer", async move {
        let inner = scope::current().expect("in a node");
        inner.clone().spawn("inner", async move {
            tokio::task::yield_now().await;
            let here = scope::current().expect("inherited");
            let _ = tx.send(Arc::as_ptr(&here.clock) as *const () as usize);
        });
    });
    assert_eq!(rx.await.unwrap(), clock);

    struct Dropped(Option<crate::sync::oneshot::Sender<bool>>);
    impl Drop for Dropped {
        fn drop(&mut self) {
            let _ = self.0.take().map(|tx| tx.send(scope::current().is_some()));
        }
    }
    let (tx, rx) = crate::sync::oneshot::channel();
    let guard = Dropped(Some(tx));
    let task = two.spawn("stopped", async move {
        let _guard = guard;
        std::future::pending::<()>().await;
    });
    task.abort();
    task.ended().await;
    assert!(rx.await.unwrap(), "a task is dropped inside its node");
}

#[tokio::test]
async fn randomness_and_no_peers() {
    let env = env_without_peers();
    let (mut a, mut b) = ([0; 33], [0; 33]);
    env.rng.fill(&mut a);
    env.rng.fill(&mut b);
    assert_ne!(a, b);
    let refused = env
        .net
        .connect(vec!["http://127.0.0.1:1".into()], crate::StreamKind::Peer)
        .await;
    assert_eq!(
        refused.err().map(|e| e.kind()),
        Some(io::ErrorKind::Unsupported)
    );
    assert!(env.net.incoming().accept().await.is_none());
}

#[tokio::test]
async fn nothing_is_planted() {
    assert_eq!(env_without_peers().plant, Plant::None);
}
