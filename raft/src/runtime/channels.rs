//! Room `raft`: openraft's channels and mutex over `env::sync`, whose receivers wake in order.

use futures_util::TryFutureExt;
use openraft_rt::{
    Mpsc, MpscReceiver, MpscSender, MpscWeakSender, Mutex, Oneshot, OneshotSender, OptionalSend,
    OptionalSync, SendError, TryRecvError, Watch, WatchReceiver, WatchSender,
};
use std::future::Future;
use tenon_env::sync;

/// Bounded queues.
pub(crate) struct NodeMpsc;

pub(crate) struct Tx<T>(sync::mpsc::Sender<T>);
pub(crate) struct Rx<T>(sync::mpsc::Receiver<T>);
pub(crate) struct WeakTx<T>(sync::mpsc::WeakSender<T>);

impl<T> Clone for Tx<T> {
    fn clone(&self) -> Tx<T> {
        Tx(self.0.clone())
    }
}

impl<T> Clone for WeakTx<T> {
    fn clone(&self) -> WeakTx<T> {
        WeakTx(self.0.clone())
    }
}

impl Mpsc for NodeMpsc {
    type Sender<T: OptionalSend> = Tx<T>;
    type Receiver<T: OptionalSend> = Rx<T>;
    type WeakSender<T: OptionalSend> = WeakTx<T>;

    fn channel<T: OptionalSend>(buffer: usize) -> (Tx<T>, Rx<T>) {
        let (tx, rx) = sync::mpsc::channel(buffer);
        (Tx(tx), Rx(rx))
    }
}

impl<T: OptionalSend> MpscSender<NodeMpsc, T> for Tx<T> {
    fn send(&self, msg: T) -> impl Future<Output = Result<(), SendError<T>>> + OptionalSend {
        self.0.send(msg).map_err(|e| SendError(e.0))
    }

    fn downgrade(&self) -> WeakTx<T> {
        WeakTx(self.0.downgrade())
    }
}

impl<T: OptionalSend> MpscReceiver<T> for Rx<T> {
    fn recv(&mut self) -> impl Future<Output = Option<T>> + OptionalSend {
        self.0.recv()
    }

    fn try_recv(&mut self) -> Result<T, TryRecvError> {
        self.0.try_recv().map_err(|e| match e {
            sync::mpsc::error::TryRecvError::Empty => TryRecvError::Empty,
            sync::mpsc::error::TryRecvError::Disconnected => TryRecvError::Disconnected,
        })
    }
}

impl<T: OptionalSend> MpscWeakSender<NodeMpsc, T> for WeakTx<T> {
    fn upgrade(&self) -> Option<Tx<T>> {
        self.0.upgrade().map(Tx)
    }
}

/// Channels for one value.
pub(crate) struct NodeOneshot;

pub(crate) struct OnceTx<T>(sync::oneshot::Sender<T>);

impl Oneshot for NodeOneshot {
    type Sender<T: OptionalSend> = OnceTx<T>;
    type Receiver<T: OptionalSend> = sync::oneshot::Receiver<T>;
    type ReceiverError = sync::oneshot::error::RecvError;

    fn channel<T: OptionalSend>() -> (OnceTx<T>, sync::oneshot::Receiver<T>) {
        let (tx, rx) = sync::oneshot::channel();
        (OnceTx(tx), rx)
    }
}

impl<T: OptionalSend> OneshotSender<T> for OnceTx<T> {
    fn send(self, value: T) -> Result<(), T> {
        self.0.send(value)
    }
}

/// Channels that keep the last value.
pub(crate) struct NodeWatch;

pub(crate) struct WatchTx<T>(sync::watch::Sender<T>);
pub(crate) struct WatchRx<T>(sync::watch::Receiver<T>);

impl<T> Clone for WatchTx<T> {
    fn clone(&self) -> WatchTx<T> {
        WatchTx(self.0.clone())
    }
}

impl<T> Clone for WatchRx<T> {
    fn clone(&self) -> WatchRx<T> {
        WatchRx(self.0.clone())
    }
}

impl Watch for NodeWatch {
    type Sender<T: OptionalSend + OptionalSync> = WatchTx<T>;
    type Receiver<T: OptionalSend + OptionalSync> = WatchRx<T>;
    type Ref<'a, T: OptionalSend + 'a> = sync::watch::Ref<'a, T>;

    fn channel<T: OptionalSend + OptionalSync>(init: T) -> (WatchTx<T>, WatchRx<T>) {
        let (tx, rx) = sync::watch::channel(init);
        (WatchTx(tx), WatchRx(rx))
    }
}

impl<T: OptionalSend + OptionalSync> WatchSender<NodeWatch, T> for WatchTx<T> {
    fn send(&self, value: T) -> Result<(), openraft_rt::watch::SendError<T>> {
        self.0
            .send(value)
            .map_err(|e| openraft_rt::watch::SendError(e.0))
    }

    fn send_if_modified<F>(&self, modify: F) -> bool
    where
        F: FnOnce(&mut T) -> bool,
    {
        self.0.send_if_modified(modify)
    }

    fn borrow_watched(&self) -> sync::watch::Ref<'_, T> {
        self.0.borrow()
    }

    fn subscribe(&self) -> WatchRx<T> {
        WatchRx(self.0.subscribe())
    }
}

impl<T: OptionalSend + OptionalSync> WatchReceiver<NodeWatch, T> for WatchRx<T> {
    async fn changed(&mut self) -> Result<(), openraft_rt::RecvError> {
        self.0
            .changed()
            .await
            .map_err(|_| openraft_rt::RecvError(()))
    }

    fn borrow_watched(&self) -> sync::watch::Ref<'_, T> {
        self.0.borrow()
    }

    fn borrow_and_update(&mut self) -> sync::watch::Ref<'_, T> {
        self.0.borrow_and_update()
    }
}

/// A mutex held across awaits.
pub(crate) struct NodeMutex<T>(sync::Mutex<T>);

impl<T: OptionalSend + 'static> Mutex<T> for NodeMutex<T> {
    type Guard<'a> = tokio::sync::MutexGuard<'a, T>;

    fn new(value: T) -> NodeMutex<T> {
        NodeMutex(sync::Mutex::new(value))
    }

    fn lock(&self) -> impl Future<Output = Self::Guard<'_>> + OptionalSend {
        self.0.lock()
    }
}
