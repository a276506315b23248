//! Room `client`: watches that survive broken streams. One stream per watch; [`cursor`] keeps the place.
//!
//! Nothing runs in the background: a watch is driven by [`Watch::next`], so a caller that does not ask holds
//! the server back instead of filling memory, and a broken stream is noticed at the next call.

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
    /// Openings since the last update.
    attempts: u32,
    renewed: bool,
    ended: Option<WatchError>,
}

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
            let count = self.client.endpoint_count();
            tokio::time::sleep(pause(self.attempts, count, PAUSE_MAX)).await;
            self.attempts = self.attempts.saturating_add(1);
            self.link = self.open().await?;
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

    /// Opens a stream on the endpoint in use; `None` when it should be tried again.
    async fn open(&mut self) -> Result<Option<Link>, WatchError> {
        let endpoint = self.client.pick();
        let token = match self.client.shared.tokens.current(&self.client).await {
            Ok(token) => token,
            Err(error) => {
                self.broke(Failure::Answered(error), &endpoint)?;
                return Ok(None);
            }
        };
        let (requests, queued) = mpsc::channel(REQUESTS);
        let create = self.options.request(self.cursor.restart());
        requests.try_send(create).expect("the queue is empty");
        let mut request = Request::new(ReceiverStream::new(queued));
        sign(request.metadata_mut(), token.as_deref()).map_err(WatchError::Refused)?;
        // A member cut off from the others must end the stream, so that it is opened elsewhere.
        let leader = "true".parse().expect("ASCII");
        request.metadata_mut().insert("hasleader", leader);

        let mut client = WatchClient::new(endpoint.streams.clone());
        client = client.max_decoding_message_size(MESSAGE_MAX);
        let opening = tokio::time::timeout(OPEN_TIMEOUT, client.watch(request));
        let failure = match opening.await {
            Ok(Ok(responses)) => {
                return Ok(Some(Link {
                    requests,
                    responses: responses.into_inner(),
                    endpoint,
                }));
            }
            Ok(Err(status)) => Failure::of(&status),
            Err(_) => Failure::Late,
        };
        if !self.renew(&failure).await {
            self.broke(failure, &endpoint)?;
        }
        Ok(None)
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
