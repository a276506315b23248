//! Room `server/host`: one client's stream of watches, which goes on wherever the endpoint moves. Here is the order of
//! a move and the waiting; what is told to the client is `watches.rs`.
//!
//! A move, while the old backend goes on sending events:
//! 1. a link to the new backend is made, and the old one is asked how far it is (so that a watch without events is
//!    not created again at a revision long compacted);
//! 2. every watch is created again on the new link; from its answer on, the watch is there;
//! 3. when all are there, and the old link has answered what the client asked it, it is closed.
//!
//! The client's requests wait meanwhile. A link that is lost without warning is replaced in the same way, without
//! an old one.

use super::door::{Door, Phase, Visit};
use super::link::{Ended, Heard, Link, Opening, Subject};
use super::remote::Missed;
use super::watches::{Line, Watches, Whence};
use crate::service::method::Method;
use std::collections::VecDeque;
use std::time::Duration;
use tenon_env::BoxFuture;
use tenon_env::sync::mpsc;
use tenon_proto::error::Error;
use tenon_proto::etcdserverpb::{WatchRequest as Request, WatchResponse as Response};

/// How long the old backend is asked how far it is; it does not answer while it is busy catching up.
const PATIENCE: Duration = Duration::from_millis(100);
/// Pause before a link is made again.
const PAUSE: Duration = Duration::from_millis(50);
/// How often a member elsewhere is asked how far it is, in case it is lost.
const REFRESH: Duration = Duration::from_secs(30);
/// Requests that may wait for the backend before no more are taken from the client.
const UNSENT_MAX: usize = 64;
/// Turns after which answers do not go first.
const FAIR: u32 = 32;

/// A link and what was asked of it.
struct Live {
    link: Box<Link<Request, Response>>,
    line: Line,
}

impl Live {
    fn ask(&mut self, requests: impl IntoIterator<Item = Request>) {
        for request in requests {
            self.link.ask(request);
        }
    }
}

/// One client's stream.
pub(super) struct WatchMove {
    subject: Subject<Request, Response>,
    requests: mpsc::Receiver<Request>,
    /// The client may ask more.
    more: bool,
    watches: Watches,
    /// Where watches are, or move to.
    main: Option<Live>,
    /// Where they come from.
    old: Option<Live>,
    opening: Option<Opening<Request, Response>>,
    /// Made, and not used yet.
    next: Option<Box<Link<Request, Response>>>,
    /// The main link's backend is about to go.
    leaving: bool,
    /// A step of a move may be due.
    moving: bool,
    patience: Option<BoxFuture<'static, ()>>,
    refresh: BoxFuture<'static, ()>,
    /// The client's requests that went down with a link.
    unasked: VecDeque<Request>,
    ready: VecDeque<Response>,
    turns: u32,
}

enum Turn {
    Requests(Vec<Request>),
    Main(Heard<Response>),
    Old(Heard<Response>),
    Opened(Result<Box<Link<Request, Response>>, Missed>),
    Impatient,
    Refresh,
}

/// The client's stream is over: with an error, or without.
struct Over(Option<Error>);

impl WatchMove {
    pub(super) fn new(door: &Door, visit: Visit, requests: mpsc::Receiver<Request>) -> WatchMove {
        let subject = Subject {
            door: door.clone(),
            method: Method::WatchWatch,
            caller: visit.caller,
            info: visit.info,
            serve: |services, caller, needs_leader, requests, out| {
                let watch = services.watch.clone();
                Box::pin(async move { watch.serve(caller, needs_leader, requests, out).await })
            },
        };
        WatchMove {
            opening: Some(subject.open(Duration::ZERO)),
            refresh: door.env().sleep(REFRESH),
            subject,
            requests,
            more: true,
            watches: Watches::default(),
            main: None,
            old: None,
            next: None,
            leaving: false,
            moving: true,
            patience: None,
            unasked: VecDeque::new(),
            ready: VecDeque::new(),
            turns: 0,
        }
    }

    /// The next response; an error is the last.
    pub(super) async fn next(&mut self) -> Option<Result<Response, Error>> {
        loop {
            if let Some(response) = self.ready.pop_front() {
                return Some(Ok(response));
            }
            let turn = self.turn().await?;
            if let Err(Over(error)) = self.on_turn(turn) {
                (self.main, self.old, self.next, self.opening) = (None, None, None, None);
                return error.map(Err);
            }
        }
    }

    /// What happens next; `None` when nothing can any more.
    async fn turn(&mut self) -> Option<Turn> {
        self.turns = self.turns.wrapping_add(1);
        let fair = self.turns.is_multiple_of(FAIR);
        let taking = self.more && self.takes_requests();
        let WatchMove {
            main,
            old,
            opening,
            patience,
            refresh,
            requests,
            ..
        } = self;
        if main.is_none() && opening.is_none() && self.next.is_none() {
            return None;
        }
        if !fair && let Some(heard) = main.as_mut().and_then(|main| main.link.try_next()) {
            return Some(Turn::Main(heard));
        }
        let far = main.as_ref().is_some_and(|main| main.link.is_remote());
        let mut taken = Vec::new();
        Some(tokio::select! {
            biased;
            _ = requests.recv_many(&mut taken, UNSENT_MAX), if taking => Turn::Requests(taken),
            opened = wait(opening) => Turn::Opened(opened),
            () = wait(patience) => Turn::Impatient,
            heard = hear(old) => Turn::Old(heard),
            () = &mut *refresh, if far => Turn::Refresh,
            heard = hear(main) => Turn::Main(heard),
        })
    }

    fn takes_requests(&self) -> bool {
        self.is_settled()
            && self.unasked.is_empty()
            && !self.leaving
            && self
                .main
                .as_ref()
                .is_some_and(|main| main.link.unsent() < UNSENT_MAX)
    }

    /// Whether every watch is on the main link, and no other is at hand or being made.
    fn is_settled(&self) -> bool {
        let Some(main) = &self.main else { return false };
        let alone = self.old.is_none() && self.opening.is_none() && self.next.is_none();
        alone && self.watches.is_settled(&main.line, None)
    }

    fn on_turn(&mut self, turn: Turn) -> Result<(), Over> {
        match turn {
            Turn::Main(Heard::Answer(answer)) => {
                self.on_answer(answer);
                if !self.moving {
                    return Ok(());
                }
            }
            Turn::Requests(requests) => {
                self.more = !requests.is_empty();
                self.on_requests(requests);
                return Ok(());
            }
            Turn::Old(Heard::Answer(answer)) => self.on_old_answer(answer),
            Turn::Main(Heard::Phase(phase)) => {
                self.leaving = true;
                if phase == Phase::Cut {
                    self.lose_main();
                }
            }
            Turn::Old(Heard::Phase(Phase::Cut) | Heard::End(_)) => self.lose_old(),
            Turn::Old(Heard::Phase(_)) => {}
            Turn::Main(Heard::End(ended)) => self.on_end(ended)?,
            Turn::Opened(Ok(link)) => (self.opening, self.next) = (None, Some(link)),
            Turn::Opened(Err(missed)) => self.on_missed(missed)?,
            Turn::Impatient => self.patience = None,
            Turn::Refresh => {
                self.refresh = self.subject.door.env().sleep(REFRESH);
                if let (true, Some(main)) = (self.is_settled(), &mut self.main) {
                    let request = Watches::ask_progress(&mut main.line);
                    main.link.ask(request);
                }
            }
        }
        self.moving = true;
        self.move_on();
        Ok(())
    }

    fn on_requests(&mut self, requests: Vec<Request>) {
        let Some(main) = &mut self.main else { return };
        let floor = match main.link.may_be_behind() {
            true => self.subject.door.floor().revision,
            false => 0,
        };
        for request in requests {
            let sent = self.watches.on_request(&mut main.line, request, floor);
            main.ask(sent);
        }
    }

    fn on_answer(&mut self, mut answer: Response) {
        let Some(main) = &mut self.main else { return };
        if let (true, Some(header)) = (main.link.is_remote(), &mut answer.header) {
            self.subject.door.answered_in_stream(header);
        }
        let whence = match self.old {
            Some(_) => Whence::New,
            None => Whence::Settled,
        };
        let (told, asked) = self.watches.on_answer(&mut main.line, whence, answer);
        self.moving |= !asked.is_empty();
        main.ask(asked);
        self.ready.extend(told);
    }

    fn on_old_answer(&mut self, mut answer: Response) {
        let Some(old) = &mut self.old else { return };
        if let (true, Some(header)) = (old.link.is_remote(), &mut answer.header) {
            self.subject.door.answered_in_stream(header);
        }
        let (told, asked) = self.watches.on_answer(&mut old.line, Whence::Old, answer);
        old.ask(asked);
        self.ready.extend(told);
    }

    fn on_end(&mut self, ended: Ended) -> Result<(), Over> {
        let Some(main) = &self.main else {
            return Ok(());
        };
        self.subject.after(&main.link, ended).map_err(Over)?;
        self.lose_main();
        Ok(())
    }

    fn on_missed(&mut self, missed: Missed) -> Result<(), Over> {
        self.opening = None;
        let alone = self.main.is_none() && self.old.is_none();
        match self.subject.after_miss(missed) {
            Err(error) if alone => Err(Over(Some(error))),
            _ => {
                self.opening = Some(self.subject.open(PAUSE));
                Ok(())
            }
        }
    }

    fn lose_main(&mut self) {
        if let Some(main) = self.main.take() {
            self.lose(main);
        }
        if self.opening.is_none() && self.next.is_none() {
            self.opening = Some(self.subject.open(Duration::ZERO));
        }
    }

    fn lose_old(&mut self) {
        if let Some(old) = self.old.take() {
            self.lose(old);
        }
    }

    fn lose(&mut self, live: Live) {
        let (unasked, answers) = self.watches.lost(live.line);
        self.unasked.extend(unasked);
        self.ready.extend(answers);
    }

    /// Takes the steps of a move that can be taken.
    fn move_on(&mut self) {
        let told = |main: &Live| main.line.progress_at().is_some();
        let waits = self.patience.is_some() && self.main.as_ref().is_some_and(|main| !told(main));
        if !waits && let Some(link) = self.next.take() {
            self.take(link);
        }
        if let Some(main) = &mut self.main {
            let late = self.watches.again(&mut main.line);
            main.ask(late);
        }
        let left = match (&self.main, &self.old) {
            (Some(main), Some(old)) => self.watches.is_settled(&main.line, Some(&old.line)),
            _ => false,
        };
        if left {
            self.lose_old();
        }
        if !self.is_settled() {
            return;
        }
        self.moving = self.leaving;
        match self.leaving {
            true => self.begin(),
            false => self.ask_again(),
        }
    }

    /// The main link's backend is about to go.
    fn begin(&mut self) {
        self.opening = Some(self.subject.open(Duration::ZERO));
        if let (false, Some(main)) = (self.watches.is_empty(), &mut self.main) {
            let request = Watches::ask_progress(&mut main.line);
            main.link.ask(request);
            self.patience = Some(self.subject.door.env().sleep(PATIENCE));
        }
    }

    /// A link is there to move to; `move_on` creates the watches there.
    fn take(&mut self, link: Box<Link<Request, Response>>) {
        if let Some(main) = self.main.take() {
            assert!(self.old.is_none(), "a stream is on two links at most");
            self.old = Some(main);
        }
        let line = self.watches.line();
        self.main = Some(Live { link, line });
        (self.leaving, self.patience) = (false, None);
    }

    /// Asks what went down with another link.
    fn ask_again(&mut self) {
        let unasked: Vec<Request> = self.unasked.drain(..).collect();
        self.on_requests(unasked);
        if let Some(main) = &mut self.main {
            let owed = self.watches.owed_progress(&mut main.line);
            main.ask(owed);
        }
    }
}

/// Completes with the future; never without one. It is not to be waited on again.
async fn wait<T>(future: &mut Option<BoxFuture<'static, T>>) -> T {
    match future {
        Some(future) => future.await,
        None => std::future::pending().await,
    }
}

async fn hear(live: &mut Option<Live>) -> Heard<Response> {
    match live {
        Some(live) => live.link.next().await,
        None => std::future::pending().await,
    }
}
