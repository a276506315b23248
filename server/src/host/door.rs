//! Room `server/host`: the one endpoint for life. Every client's call passes the [`Door`], which knows who answers
//! now: the host's own member, the members elsewhere, or nobody. It moves the endpoint from one to the other while
//! calls and streams are under way. No sockets.
//!
//! - A call belongs to the [`Stay`] it began in, and keeps it alive. A move is over once nobody holds the old stay,
//!   so that a call costs no more than a copy of a pointer.
//! - After [`Door::switch`] has swapped the stays, no call begins on the old backend. Calls under way on it end there;
//!   streams that can move are told to.
//!
//! What it does not do: decide when to move (`host`'s steps), or look into requests.

use super::floor::{Floor, SharedFloor};
use super::remote::{CallInfo, Remote};
use crate::service::Services;
use crate::service::method::{Method, Repeat};
use crate::service::watch::NeedsLeader;
use parking_lot::RwLock;
use prost::Message;
use std::any::Any;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tenon_env::sync::{Mutex, Notify, watch};
use tenon_env::{Env, Instant};
use tenon_proto::caller::Caller;
use tenon_proto::code::Code;
use tenon_proto::error::Error;
use tenon_proto::etcdserverpb::{MemberListRequest, ResponseHeader, TxnRequest};
use tenon_storage::check;

/// Pause between looks at a member that is not fit to answer yet.
const FIT_PAUSE: Duration = Duration::from_millis(5);
/// Time for a member to catch up with what others answered for this host a moment ago.
const LEVEL: Duration = Duration::from_secs(4);
/// Time for what is left on an old backend to end once it was cut off.
const CUT: Duration = Duration::from_secs(2);

/// Who answers.
#[derive(Clone)]
pub enum Backend {
    /// Nobody; every call ends with this error.
    Closed(Error),
    /// The host's own member.
    Member(Arc<Services>),
    /// Members elsewhere.
    Remote(Arc<Remote>),
}

impl fmt::Debug for Backend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Backend::Closed(_) => "Closed",
            Backend::Member(_) => "Member",
            Backend::Remote(_) => "Remote",
        })
    }
}

/// How far a stay is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// New calls come here.
    Open,
    /// No more calls begin here; streams move on to where new calls go.
    Leaving,
    /// The time to leave is over: what is still here must end.
    Cut,
}

/// A backend for as long as calls are under way on it.
pub struct Stay {
    backend: Backend,
    phase: watch::Sender<Phase>,
    gone: Arc<Notify>,
    /// Calls under way elsewhere may still give answers that this member has not applied.
    behind: AtomicBool,
}

impl Stay {
    fn new(backend: Backend) -> Arc<Stay> {
        Arc::new(Stay {
            backend,
            phase: watch::Sender::new(Phase::Open),
            gone: Arc::new(Notify::new()),
            behind: AtomicBool::new(false),
        })
    }

    /// A member that takes over from others.
    fn after_others(backend: Backend) -> Arc<Stay> {
        let stay = Stay::new(backend);
        stay.behind.store(true, Ordering::Release);
        stay
    }

    /// Whether answers of this stay's member must be compared with what this host has answered.
    pub(super) fn may_be_behind(&self) -> bool {
        self.behind.load(Ordering::Acquire)
    }

    /// Who answers.
    pub fn backend(&self) -> &Backend {
        &self.backend
    }

    /// How far the stay is.
    pub fn phase(&self) -> Phase {
        *self.phase.borrow()
    }

    /// Follows how far the stay is.
    pub fn watch_phase(&self) -> watch::Receiver<Phase> {
        self.phase.subscribe()
    }
}

impl Drop for Stay {
    fn drop(&mut self) {
        self.gone.notify_one();
    }
}

/// A call that was let in.
pub struct Visit {
    /// Where it began.
    pub stay: Arc<Stay>,
    /// Who calls.
    pub caller: Caller,
    /// What the call asks of whoever answers.
    pub info: CallInfo,
}

/// Why the endpoint did not move, or not wholly.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SwitchError {
    /// The endpoint is where it was: the member cannot answer yet, for this reason.
    NotFit(String),
    /// The endpoint has moved, but calls were still under way on the old backend when the time was over, and did not
    /// end when cut off.
    Lingering {
        /// How many, about.
        calls: usize,
    },
}

impl fmt::Display for SwitchError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SwitchError::NotFit(why) => write!(f, "the member cannot answer yet: {why}"),
            SwitchError::Lingering { calls } => {
                write!(f, "{calls} calls did not leave the old backend")
            }
        }
    }
}

impl std::error::Error for SwitchError {}

struct Shared {
    env: Env,
    current: RwLock<Arc<Stay>>,
    floor: SharedFloor,
    /// One move at a time.
    moving: Mutex<()>,
}

/// The one endpoint of a host. Cloning is cheap and names the same endpoint.
#[derive(Clone)]
pub struct Door {
    shared: Arc<Shared>,
}

impl Door {
    /// An endpoint answered by `first`, with a floor of its own.
    pub fn new(env: &Env, first: Backend) -> Door {
        Door::with_floor(env, first, SharedFloor::default())
    }

    /// An endpoint answered by `first`, whose answers do not go back behind `floor`. Give the same floor to every
    /// [`Remote`] behind this door.
    pub fn with_floor(env: &Env, first: Backend, floor: SharedFloor) -> Door {
        if let Backend::Member(services) = &first {
            floor.follow(services);
        }
        Door {
            shared: Arc::new(Shared {
                env: env.clone(),
                current: RwLock::new(Stay::new(first)),
                floor,
                moving: Mutex::new(()),
            }),
        }
    }

    /// The host's world.
    pub fn env(&self) -> &Env {
        &self.shared.env
    }

    /// Who answers new calls.
    pub fn backend(&self) -> Backend {
        self.enter().backend.clone()
    }

    /// The newest answer given; answers never go back behind it.
    pub fn floor(&self) -> Floor {
        self.shared.floor.now()
    }

    /// The floor itself, to be shared with every [`Remote`] of this door.
    pub fn shared_floor(&self) -> SharedFloor {
        self.shared.floor.clone()
    }

    /// A member elsewhere answered with this header, outside a stream of events: takes note, and lifts it to what
    /// this host has answered already.
    pub(super) fn answered(&self, header: &mut ResponseHeader) {
        self.answered_in_stream(header);
        header.revision = header.revision.max(self.floor().revision);
    }

    /// As [`Door::answered`] where the revision means what was sent so far, so that it is left as it is.
    pub(super) fn answered_in_stream(&self, header: &mut ResponseHeader) {
        self.shared.floor.raise(Floor::from(&*header));
        header.raft_term = header.raft_term.max(self.floor().raft_term);
    }

    /// The stay that new calls begin in.
    pub fn enter(&self) -> Arc<Stay> {
        self.shared.current.read().clone()
    }

    /// Lets a call in, or says why not: nobody answers, the member only learns, or it knows no leader and the client
    /// insists on one.
    pub fn admit(&self, method: Method, caller: Caller, info: CallInfo) -> Result<Visit, Error> {
        let stay = self.enter();
        match &stay.backend {
            Backend::Closed(error) => return Err(error.clone()),
            Backend::Member(services) => admit_here(services, method, info.needs_leader)?,
            Backend::Remote(_) => {}
        }
        Ok(Visit { stay, caller, info })
    }

    /// A call with one request and one answer: `here` answers it on the host's own member. A request that may be
    /// carried out twice, or was certainly not carried out, is asked again at the new backend when it failed because
    /// the old one went.
    pub async fn unary<Q, R, F>(
        &self,
        visit: Visit,
        method: Method,
        mut request: Q,
        here: impl Fn(Arc<Services>, Caller, Q) -> F,
    ) -> Result<R, Error>
    where
        Q: Message + Clone + 'static,
        R: Message + Default,
        F: Future<Output = Result<R, Error>>,
    {
        let Visit {
            mut stay,
            mut caller,
            info,
        } = visit;
        loop {
            match &stay.backend {
                Backend::Closed(error) => return Err(error.clone()),
                Backend::Member(services) => {
                    self.wait_level(&stay, services).await?;
                    let harmless = repeat(method, &request) == Repeat::Harmless;
                    let spare = harmless.then(|| (caller.clone(), request.clone()));
                    match (here(services.clone(), caller, request).await, spare) {
                        (Err(error), Some(spare))
                            if error.code() == Code::Unavailable && self.has_left(&stay) =>
                        {
                            (caller, request) = spare;
                        }
                        (outcome, _) => return outcome,
                    }
                }
                Backend::Remote(remote) => {
                    let bytes = request.encode_to_vec().into();
                    let repeat = repeat(method, &request);
                    let call = remote.forward(method, info.of(&caller), bytes, repeat);
                    match Box::pin(call).await {
                        Ok(bytes) => return super::remote::read(&bytes),
                        Err(missed) if missed.not_done && self.has_left(&stay) => {}
                        Err(missed) => return Err(missed.error),
                    }
                }
            }
            stay = self.admit(method, Caller::default(), info.clone())?.stay;
        }
    }

    /// Whether new calls go elsewhere by now.
    fn has_left(&self, stay: &Arc<Stay>) -> bool {
        !Arc::ptr_eq(stay, &self.shared.current.read())
    }

    /// Moves the endpoint: from the moment of the swap new calls go to `to`; calls under way on the old backend end
    /// there, and are cut off after `within`; watch and keep-alive streams move on without gap or repeat. Returns
    /// when nothing is left on the old backend. A member must be fit first, for which it is waited too: a voter that
    /// knows a leader and has applied what this host answered.
    ///
    /// The old backend must keep working until this returns. So a member that is to leave its cluster is moved away
    /// from *before* its removal: it answers what is under way, and clients notice nothing.
    ///
    /// # Errors
    /// [`SwitchError`]; it says whether the endpoint has moved.
    pub async fn switch(&self, to: Backend, within: Duration) -> Result<(), SwitchError> {
        let shared = &self.shared;
        let _turn = shared.moving.lock().await;
        if let Backend::Member(services) = &to {
            self.wait_fit(services, within).await?;
            shared.floor.follow(services);
        }
        tracing::info!(?to, "the endpoint moves");
        let new = match (self.backend(), &to) {
            (Backend::Remote(_), Backend::Member(_)) => Stay::after_others(to),
            _ => Stay::new(to),
        };
        let old = std::mem::replace(&mut *shared.current.write(), new.clone());
        old.phase.send_replace(Phase::Leaving);
        let member = match &old.backend {
            Backend::Member(services) => Some(services.clone()),
            _ => None,
        };
        let left = self.drain(old, within).await;
        if let Some(services) = member {
            shared.floor.unfollow(&services);
        }
        // Nobody else answers any more: once the member has what was answered it is never behind again.
        if let (Ok(()), Backend::Member(services)) = (&left, new.backend())
            && self.wait_level(&new, services).await.is_ok()
        {
            new.behind.store(false, Ordering::Release);
        }
        left
    }

    async fn drain(&self, old: Arc<Stay>, within: Duration) -> Result<(), SwitchError> {
        let env = &self.shared.env;
        let gone = old.gone.clone();
        let old = {
            let weak = Arc::downgrade(&old);
            drop(old);
            weak
        };
        if env.timeout(within, gone.notified()).await.is_some() {
            return Ok(());
        }
        if let Some(old) = old.upgrade() {
            tracing::warn!(calls = Arc::strong_count(&old) - 1, "calls are cut off");
            old.phase.send_replace(Phase::Cut);
        }
        if env.timeout(CUT, gone.notified()).await.is_some() {
            return Ok(());
        }
        let calls = old.strong_count();
        Err(SwitchError::Lingering { calls })
    }

    async fn wait_fit(&self, services: &Services, within: Duration) -> Result<(), SwitchError> {
        let env = &self.shared.env;
        let deadline = env.now() + within;
        loop {
            if self.shared.floor.owes_a_read() {
                self.settle_floor(services, deadline).await;
            }
            let fit = match self.shared.floor.owes_a_read() {
                true => Err("it has not read by a quorum yet".to_owned()),
                false => is_fit(services, self.floor()),
            };
            let Err(why) = fit else {
                return Ok(());
            };
            if env.now() >= deadline {
                return Err(SwitchError::NotFit(why));
            }
            env.sleep(FIT_PAUSE).await;
        }
    }
}

impl Door {
    /// Waits until the member has applied what this host answered by others.
    ///
    /// # Errors
    /// `Unavailable` when that takes too long.
    pub(super) async fn wait_level(&self, stay: &Stay, services: &Services) -> Result<(), Error> {
        if !stay.may_be_behind() {
            return Ok(());
        }
        let env = self.env();
        let deadline = env.now() + LEVEL;
        loop {
            // The floor first: what the member applies meanwhile counts as answered too.
            let floor = self.floor();
            if floor.allows(&services.context.current_header()) {
                return Ok(());
            }
            if env.now() >= deadline {
                let text = "tenon: this host's member is behind what the host has answered";
                return Err(Error::other(Code::Unavailable, text.to_owned()));
            }
            env.sleep(FIT_PAUSE).await;
        }
    }

    /// As a member elsewhere is asked when it is looked at first.
    async fn settle_floor(&self, services: &Services, deadline: Instant) {
        let (env, caller) = (self.env(), Caller::default());
        let request = MemberListRequest { linearizable: true };
        let asked = services.cluster.member_list(&caller, request);
        if let Some(Ok(_)) = env.timeout(deadline - env.now(), asked).await {
            let applied = services.context.current_header();
            self.shared.floor.settle(Floor::from(&applied));
        }
    }
}

/// A member's own rules for letting a call in.
pub(super) fn admit_here(
    services: &Services,
    method: Method,
    needs_leader: NeedsLeader,
) -> Result<(), Error> {
    let context = &services.context;
    if needs_leader == NeedsLeader::Yes && !context.has_leader() {
        return Err(Error::NoLeader);
    }
    if context.is_learner() && !method.on_learner() && method != Method::KvRange {
        return Err(Error::NotSupportedForLearner);
    }
    Ok(())
}

/// Whether a member may answer for this host; the error says what it lacks.
fn is_fit(services: &Services, floor: Floor) -> Result<(), String> {
    let context = &services.context;
    let header = context.current_header();
    if context.is_learner() {
        return Err("it has no vote".to_owned());
    }
    if !context.has_leader() {
        return Err("it knows no leader".to_owned());
    }
    if !floor.is_of_cluster(&header) {
        return Err(format!(
            "it belongs to cluster {:x}, this host to {:x}",
            header.cluster_id, floor.cluster_id
        ));
    }
    if !floor.allows(&header) {
        return Err(format!(
            "it is at revision {} of term {}, this host has answered {} of term {}",
            header.revision, header.raft_term, floor.revision, floor.raft_term
        ));
    }
    Ok(())
}

/// Whether this very request may be carried out twice.
pub(super) fn repeat<Q: Any>(method: Method, request: &Q) -> Repeat {
    if method == Method::KvTxn {
        let txn = (request as &dyn Any).downcast_ref::<TxnRequest>();
        if txn.is_some_and(check::txn_is_read_only) {
            return Repeat::Harmless;
        }
    }
    method.repeat()
}
