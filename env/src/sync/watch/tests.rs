//! Room `env`: the watch channel: order of wakes, what counts as seen, ends of the channel, no lost value.

use super::*;
use futures_util::FutureExt;
use futures_util::task::noop_waker;
use std::sync::atomic::AtomicU64;
use std::task::Wake;

struct Note {
    name: u64,
    order: Arc<Mutex<Vec<u64>>>,
}

impl Wake for Note {
    fn wake(self: Arc<Self>) {
        self.order.lock().push(self.name);
    }
}

#[test]
fn wakes_in_the_order_of_waiting() {
    let (tx, rx) = channel(0);
    let order = Arc::new(Mutex::new(Vec::new()));
    let mut receivers: Vec<_> = (0..50).map(|_| rx.clone()).collect();
    let mut waiting: Vec<_> = receivers
        .iter_mut()
        .map(|r| Box::pin(r.changed()))
        .collect();
    let names: Vec<u64> = (0..50).map(|i| (i * 17) % 50).collect();
    for name in &names {
        let waker = Waker::from(Arc::new(Note {
            name: *name,
            order: order.clone(),
        }));
        let polled = waiting[*name as usize].poll_unpin(&mut Context::from_waker(&waker));
        assert!(polled.is_pending());
    }
    // A second poll keeps the place in the line.
    let waker = Waker::from(Arc::new(Note {
        name: names[0],
        order: order.clone(),
    }));
    assert!(
        waiting[names[0] as usize]
            .poll_unpin(&mut Context::from_waker(&waker))
            .is_pending()
    );
    tx.send(1).unwrap();
    assert_eq!(*order.lock(), names);
}

#[test]
fn seen_and_unseen() {
    let (tx, mut rx) = channel('a');
    assert_eq!(rx.has_changed(), Ok(false));
    assert!(rx.changed().now_or_never().is_none());
    tx.send('b').unwrap();
    tx.send('c').unwrap();
    assert_eq!(*rx.borrow(), 'c');
    assert_eq!(rx.has_changed(), Ok(true));
    assert_eq!(rx.changed().now_or_never(), Some(Ok(())));
    assert!(
        rx.changed().now_or_never().is_none(),
        "two values are one change"
    );
    assert_eq!(*tx.subscribe().borrow_and_update(), 'c');
    assert!(
        tx.subscribe().changed().now_or_never().is_none(),
        "what was held counts as seen"
    );
    rx.mark_changed();
    assert_eq!(rx.changed().now_or_never(), Some(Ok(())));
    assert!(!tx.send_if_modified(|_| false));
    assert_eq!(rx.has_changed(), Ok(false));
}

#[test]
fn a_cancelled_wait_leaves_the_line() {
    let (tx, mut rx) = channel(0);
    for _ in 0..3 {
        let mut wait = Box::pin(rx.changed());
        let waker = noop_waker();
        assert!(
            wait.poll_unpin(&mut Context::from_waker(&waker))
                .is_pending()
        );
        assert_eq!(tx.shared.line.lock().waiting.len(), 1);
        drop(wait);
        assert!(tx.shared.line.lock().waiting.is_empty());
    }
}

#[test]
fn ends_of_the_channel() {
    let (tx, mut rx) = channel(0);
    let other = tx.clone();
    drop(tx);
    assert!(rx.changed().now_or_never().is_none(), "one sender is left");
    other.send(7).unwrap();
    drop(other);
    assert_eq!(
        rx.changed().now_or_never(),
        Some(Ok(())),
        "the last value is still seen"
    );
    assert_eq!(rx.changed().now_or_never(), Some(Err(RecvError)));
    assert_eq!(
        *rx.wait_for(|v| *v == 7).now_or_never().unwrap().unwrap(),
        7
    );
    assert!(matches!(
        rx.wait_for(|v| *v == 8).now_or_never(),
        Some(Err(RecvError))
    ));

    let (tx, rx) = channel(0);
    drop(rx);
    assert_eq!(tx.send(1), Err(SendError(1)));
    assert_eq!(tx.send_replace(2), 0);
    assert_eq!(*tx.borrow(), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_lost_between_threads() {
    let (tx, rx) = channel(0u64);
    let sum = Arc::new(AtomicU64::new(0));
    let mut ends = Vec::new();
    for _ in 0..8 {
        let (mut rx, sum) = (rx.clone(), sum.clone());
        #[expect(clippy::disallowed_methods, reason = "a test of real threads")]
        ends.push(tokio::spawn(async move {
            let last = *rx.wait_for(|v| *v == 20_000).await.unwrap();
            sum.fetch_add(last, Ordering::SeqCst);
        }));
    }
    for v in 1..=20_000 {
        tx.send(v).unwrap();
        if v % 64 == 0 {
            tokio::task::yield_now().await;
        }
    }
    for end in ends {
        end.await.unwrap();
    }
    assert_eq!(sum.load(Ordering::SeqCst), 160_000);
}
