//! Room `client`: watches that survive broken streams. One stream per watch; [`cursor`] keeps the place.
//!
//! A watch is driven by [`Watch::next`]: a caller that does not ask holds the server back instead of filling memory,
//! and a broken stream is noticed at the next call. Only the opening of a stream runs in a task of its own, so that a
//! caller who waits in short steps still gets one.

mod cursor;

use crate::call::{Client, sign};
use crate::endpoint::Endpoint;
use crate::pool::mark_failed;
use crate::retry::{Failure, pause, reopens};
use crate::stream::MESSAGE_MAX;
use cursor::{Cursor, Step};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use tenon_proto::code::Code;
use tenon_proto::error::Error;
use tenon_proto::etcdserverpb as pb;
use tenon_proto::etcdserverpb::watch_client::WatchClient;
use tenon_proto::etcdserverpb::watch_create_request::FilterType;
use tenon_proto::etcdserverpb::watch_request::RequestUnion;
use tenon_proto::ids::Revision;
use tenon_proto::key_range::KeyRange;
use tenon_proto::mvccpb::Event;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Streaming};

/// Time a server gets to answer the opening of a stream.
const OPEN_TIMEOUT: Duration = Duration::from_secs(5);

/// Longest pause between attempts to open a stream.
const PAUSE_MAX: Duration = Duration::from_secs(2);

/// Requests queued on one stream: its creation and a few requests for progress.
const REQUESTS: usize = 8;

/// What to watch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WatchOptions {
    /// Keys.
    pub keys: KeyRange,
    /// First revision of interest; `None`: what happens from now on.
    pub start: Option<Revision>,
    /// Each event carries the pair before it, unless compacted.
    pub prev_kv: bool,
    /// The server tells of progress now and then while nothing happens.
    pub progress_notify: bool,
    /// Leave puts out.
    pub no_put: bool,
    /// Leave deletes out.
    pub no_delete: bool,
}

impl WatchOptions {
    /// Every event of these keys from now on.
    pub fn of(keys: KeyRange) -> WatchOptions {
        WatchOptions {
            keys,
            start: None,
            prev_kv: false,
            progress_notify: false,
            no_put: false,
            no_delete: false,
        }
    }

    /// The same from that revision on, itself included.
    #[must_use]
    pub fn from(self, start: Revision) -> WatchOptions {
        WatchOptions {
            start: Some(start),
            ..self
        }
    }

    fn request(&self, start_revision: i64) -> pb::WatchRequest {
        let filters = [
            (self.no_put, FilterType::Noput),
            (self.no_delete, FilterType::Nodelete),
        ];
        let filters = filters.into_iter().filter(|(on, _)| *on);
        let create = pb::WatchCreateRequest {
            key: self.keys.key().clone(),
            range_end: self.keys.range_end(),
            start_revision,
            progress_notify: self.progress_notify,
            filters: filters.map(|(_, filter)| filter.into()).collect(),
            prev_kv: self.prev_kv,
            watch_id: 0,
            fragment: true,
        };
        pb::WatchRequest {
            request_union: Some(RequestUnion::CreateRequest(create)),
        }
    }
}

/// What a watch tells.
#[derive(Clone, Debug, PartialEq)]
pub enum WatchUpdate {
    /// Changes, in order; never empty. A revision may be spread over two updates if the server had to cut it.
    Events(Vec<Event>),
    /// Every change up to and including this revision has been told.
    Progress(Revision),
}

/// Why a watch ended. It cannot go on; a new one can begin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WatchError {
    /// Changes not yet told were compacted away. Read the keys anew and watch from the answer's revision + 1.
    Compacted {
        /// The oldest revision that can still be read and watched.
        compact_revision: Revision,
    },
    /// The server refuses the watch.
    Refused(Error),
}

impl fmt::Display for WatchError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            WatchError::Compacted { compact_revision } => {
                write!(f, "{} (up to {compact_revision})", Error::Compacted)
            }
            WatchError::Refused(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for WatchError {}

impl From<WatchError> for Error {
    fn from(error: WatchError) -> Error {
        match error {
            WatchError::Compacted { .. } => Error::Compacted,
            WatchError::Refused(error) => error,
        }
    }
}

/// A running watch. Dropping it ends it.
#[derive(Debug)]
pub struct Watch {
    client: Client,
    options: WatchOptions,
    cursor: Cursor,
    link: Option<Link>,
    opening: Option<Opening>,
    /// Openings since the last update.
    attempts: u32,
    renewed: bool,
    ended: Option<WatchError>,
}

/// A stream on its way. Dropping it gives it up.
#[derive(Debug)]
struct Opening(JoinHandle<Opened>);

impl Drop for Opening {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// An open stream, or why there is none and whose fault it is.
type Opened = Result<Link, (Failure, Arc<Endpoint>)>;

/// An open stream.
#[derive(Debug)]
struct Link {
    requests: mpsc::Sender<pb::WatchRequest>,
    responses: Streaming<pb::WatchResponse>,
    endpoint: Arc<Endpoint>,
}

impl Client {
    /// Begins a watch and returns once a server has taken it: what is written afterwards will be told.
    ///
    /// # Errors
    /// [`WatchError::Compacted`] may come here or from [`Watch::next`]; `DeadlineExceeded` when no server
    /// takes it within the client's time for a call.
    pub async fn watch(&self, options: WatchOptions) -> Result<Watch, WatchError> {
        let mut watch = Watch {
            client: self.clone(),
            cursor: Cursor::new(options.start),
            options,
            link: None,
            opening: None,
            attempts: 0,
            renewed: false,
            ended: None,
        };
        let created = async {
            // A server answers the creation before anything else.
            while watch.step().await? != Step::Created {}
            Ok(())
        };
        match tokio::time::timeout(self.timeout(), created).await {
            Ok(result) => result.map(|()| watch),
            Err(_) => {
                let text = "context deadline exceeded: no server takes the watch";
                let error = Error::other(Code::DeadlineExceeded, text);
                Err(WatchError::Refused(error))
            }
        }
    }
}

impl Watch {
    /// Waits for what happens next. Broken streams are opened again, elsewhere if need be, without end.
    /// Dropping the future loses nothing.
    ///
    /// # Errors
    /// The watch has ended; every later call says the same.
    pub async fn next(&mut self) -> Result<WatchUpdate, WatchError> {
        loop {
            if let Some(error) = &self.ended {
                return Err(error.clone());
            }
            if let Step::Update(update) = self.step().await? {
                return Ok(update);
            }
        }
    }

    /// Asks for a [`WatchUpdate::Progress`]. The server stays silent while the watch is behind, and a request
    /// is lost with a broken stream; ask again when it matters.
    pub fn request_progress(&self) {
        if let Some(link) = &self.link {
            let request = pb::WatchRequest {
                request_union: Some(RequestUnion::ProgressRequest(pb::WatchProgressRequest {})),
            };
            let _ = link.requests.try_send(request);
        }
    }

    /// Opens a stream if there is none, else takes one response. Keeps its place when dropped.
    async fn step(&mut self) -> Result<Step, WatchError> {
        let Some(link) = &mut self.link else {
            self.open().await?;
            return Ok(Step::Nothing);
        };
        let failure = match link.responses.message().await {
            Ok(Some(response)) => {
                let step = self.cursor.accept(response);
                return self.judge(step).await;
            }
            Ok(None) => Failure::Broken("the server ended the stream".to_owned()),
            Err(status) => Failure::of(&status),
        };
        let endpoint = link.endpoint.clone();
        self.link = None;
        self.broke(failure, &endpoint)?;
        Ok(Step::Nothing)
    }

    async fn judge(&mut self, step: Step) -> Result<Step, WatchError> {
        match step {
            Step::Compacted(compact_revision) => {
                Err(self.end(WatchError::Compacted { compact_revision }))
            }
            Step::Refused(error) => {
                let stale = Failure::Answered(error.clone());
                self.link = None;
                if self.renew(&stale).await {
                    return Ok(Step::Nothing);
                }
                Err(self.end(WatchError::Refused(error)))
            }
            Step::Update(_) => {
                self.attempts = 0;
                self.renewed = false;
                Ok(step)
            }
            Step::Created | Step::Nothing => Ok(step),
        }
    }

    /// Waits for a stream to open. An attempt that failed leaves none.
    async fn open(&mut self) -> Result<(), WatchError> {
        let opening = match &mut self.opening {
            Some(opening) => opening,
            None => {
                let after = pause(self.attempts, self.client.endpoint_count(), PAUSE_MAX);
                self.attempts = self.attempts.saturating_add(1);
                let create = self.options.request(self.cursor.restart());
                let opened = open(self.client.clone(), create, after);
                self.opening.insert(Opening(tokio::spawn(opened)))
            }
        };
        let opened = (&mut opening.0).await;
        self.opening = None;
        match opened.expect("only dropping it ends the task") {
            Ok(link) => self.link = Some(link),
            Err((failure, endpoint)) => {
                if !self.renew(&failure).await {
                    self.broke(failure, &endpoint)?;
                }
            }
        }
        Ok(())
    }

    /// Forgets a refused token, once between two updates. Whether that was it.
    async fn renew(&mut self, failure: &Failure) -> bool {
        let tokens = &self.client.shared.tokens;
        let refused = matches!(
            failure,
            Failure::Answered(Error::InvalidAuthToken | Error::AuthOldRevision | Error::UserEmpty)
        );
        if !refused || self.renewed || !tokens.can_renew() {
            return false;
        }
        self.renewed = true;
        if let Ok(token) = tokens.current(&self.client).await {
            tokens.forget(token).await;
        }
        true
    }

    /// A stream broke or did not open: the watch goes on, or ends with the error.
    fn broke(&mut self, failure: Failure, endpoint: &Arc<Endpoint>) -> Result<(), WatchError> {
        if failure.blames_endpoint() {
            mark_failed(endpoint);
        }
        if reopens(&failure) {
            tracing::debug!(
                url = endpoint.url,
                ?failure,
                "a watch opens its stream again"
            );
            return Ok(());
        }
        let error = failure.into_error(&endpoint.url);
        Err(self.end(WatchError::Refused(error)))
    }

    fn end(&mut self, error: WatchError) -> WatchError {
        self.link = None;
        self.ended = Some(error.clone());
        error
    }
}

/// Opens a stream on the endpoint in use, after a pause.
async fn open(client: Client, create: pb::WatchRequest, after: Duration) -> Opened {
    tokio::time::sleep(after).await;
    let endpoint = client.pick();
    let blamed = |failure| (failure, endpoint.clone());
    let token = client.shared.tokens.current(&client).await;
    let token = token.map_err(|error| blamed(Failure::Answered(error)))?;
    let (requests, queued) = mpsc::channel(REQUESTS);
    requests.try_send(create).expect("the queue is empty");
    let mut request = Request::new(ReceiverStream::new(queued));
    sign(request.metadata_mut(), token.as_deref())
        .map_err(|error| blamed(Failure::Answered(error)))?;
    // A member cut off from the others must end the stream, so that it is opened elsewhere.
    let leader = "true".parse().expect("ASCII");
    request.metadata_mut().insert("hasleader", leader);

    let mut stub = WatchClient::new(endpoint.streams.clone());
    stub = stub.max_decoding_message_size(MESSAGE_MAX);
    let failure = match tokio::time::timeout(OPEN_TIMEOUT, stub.watch(request)).await {
        Ok(Ok(responses)) => {
            return Ok(Link {
                requests,
                responses: responses.into_inner(),
                endpoint,
            });
        }
        Ok(Err(status)) => Failure::of(&status),
        Err(_) => Failure::Late,
    };
    Err(blamed(failure))
}
