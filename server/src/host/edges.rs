//! Room `server/host`: which switches there are, and the steps of each in their order. Data and look-ups only;
//! what a step does stands in `steps`. A table is part of the configuration, so that a test can plant another.

use std::fmt;

/// How a host answers its clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Mode {
    /// By a member of its own.
    Server,
    /// By the members of the cluster.
    Client,
}

impl Mode {
    /// The word on command lines and in files.
    pub fn name(self) -> &'static str {
        match self {
            Mode::Server => "server",
            Mode::Client => "client",
        }
    }

    /// The mode of that name.
    ///
    /// # Errors
    /// A text that says which there are.
    pub fn read(text: &str) -> Result<Mode, String> {
        match text {
            "server" => Ok(Mode::Server),
            "client" => Ok(Mode::Client),
            other => Err(format!(
                "unknown mode {other:?}: a host is a server or a client"
            )),
        }
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

macro_rules! steps {
    ($($(#[$doc:meta])* $variant:ident: $name:literal, $does:literal;)*) => {
        /// One step of a switch. Each may be repeated: it looks at what is there, not at what was done.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Step { $($(#[$doc])* $variant),* }

        impl Step {
            /// Every step.
            pub const ALL: &'static [Step] = &[$(Step::$variant),*];

            /// Its name in the journal, in answers and in the guide.
            pub fn name(self) -> &'static str {
                match self { $(Step::$variant => $name),* }
            }

            /// What it does, for a dry run.
            pub fn does(self) -> &'static str {
                match self { $(Step::$variant => $does),* }
            }
        }
    };
}

steps! {
    /// Refuses before anything is touched.
    Check: "check", "look whether the cluster has a quorum now and afterwards";
    /// Writes down what is intended.
    Intent: "intent", "write down in the journal what is intended";
    /// Gets what the other mode needs to prove who it is.
    Credentials: "credentials", "get credentials (nothing to do without TLS)";
    /// Adds this host to the cluster as a learner.
    AddLearner: "add-learner", "add this host to the cluster as a learner";
    /// Starts a member on fresh storage.
    Attach: "attach", "attach storage and start a member";
    /// Waits until the leader made the learner a voter.
    CatchUp: "catch-up", "copy the data and wait until the leader promotes the learner";
    /// Makes sure that the members answer.
    Reach: "reach", "make sure that the other members answer";
    /// Gives leadership away.
    HandOver: "hand-over", "hand leadership to another member";
    /// Moves the endpoint to the members.
    ToMembers: "to-members", "move the endpoint to the other members";
    /// Moves the endpoint to the own member.
    ToMember: "to-member", "move the endpoint to the own member";
    /// Removes the own member, which still serves its peers, from the cluster.
    RemoveSelf: "remove-self", "remove this host's member from the cluster while it runs";
    /// Waits until the cluster says that the removal is committed.
    SeeRemoval: "see-removal", "see that the removal is committed";
    /// Stops the own member and moves its storage away by one rename.
    Detach: "detach", "stop the member and move its storage away by one rename";
    /// Deletes storage that was moved away.
    Delete: "delete", "delete the storage";
    /// Writes down the new mode.
    Done: "done", "write down the new mode in the journal";
}

impl Step {
    /// The step of that name.
    pub fn read(name: &str) -> Option<Step> {
        Step::ALL.iter().copied().find(|step| step.name() == name)
    }
}

/// A switch from one mode to another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Edge {
    /// The mode before.
    pub from: Mode,
    /// The mode after.
    pub to: Mode,
    /// What is done, in order.
    pub steps: Vec<Step>,
}

/// What a failed switch may still use to clean up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cleaning {
    /// Time of its own.
    OwnDeadline,
    /// None: what fails for want of time has used it up.
    SharedDeadline,
}

/// Which endpoint of the cluster is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asked {
    /// Any that answers.
    AnyMember,
    /// The first of the list, whatever happens.
    FirstOnly,
}

/// How old an answer of this host may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answers {
    /// None is older than another given before, whoever gives it.
    NeverBack,
    /// As old as whoever gives it is.
    AsTheyCome,
}

/// All switches there are, and the habits that go with them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Edges {
    /// The switches.
    pub edges: Vec<Edge>,
    /// How much time cleaning up has.
    pub cleaning: Cleaning,
    /// Whom the host asks.
    pub asked: Asked,
    /// How old answers may be.
    pub answers: Answers,
}

impl Default for Edges {
    /// Tenon's own (docs/host-modes.md, docs/adr/0004).
    fn default() -> Edges {
        use Step::{
            AddLearner, Attach, CatchUp, Check, Credentials, Delete, Detach, Done, HandOver,
            Intent, Reach, RemoveSelf, SeeRemoval, ToMember, ToMembers,
        };
        let up = [
            Check,
            Intent,
            Credentials,
            AddLearner,
            Attach,
            CatchUp,
            ToMember,
            Done,
        ];
        let down = [
            Check, Intent, Reach, HandOver, ToMembers, RemoveSelf, SeeRemoval, Detach, Delete, Done,
        ];
        let edge = |from, to, steps: &[Step]| Edge {
            from,
            to,
            steps: steps.to_vec(),
        };
        Edges {
            edges: vec![
                edge(Mode::Client, Mode::Server, &up),
                edge(Mode::Server, Mode::Client, &down),
            ],
            cleaning: Cleaning::OwnDeadline,
            asked: Asked::AnyMember,
            answers: Answers::NeverBack,
        }
    }
}

impl Edges {
    /// The steps of a switch.
    ///
    /// # Errors
    /// A text that names the edge when there is no such switch.
    pub fn steps(&self, from: Mode, to: Mode) -> Result<&[Step], String> {
        let mut edges = self.edges.iter();
        let edge = edges.find(|edge| edge.from == from && edge.to == to);
        edge.map(|edge| edge.steps.as_slice())
            .ok_or_else(|| format!("there is no switch from {from} to {to}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_read_back() {
        for step in Step::ALL {
            assert_eq!(Step::read(step.name()), Some(*step));
        }
        assert_eq!(Step::read("nonsense"), None);
        assert_eq!(Mode::read("client"), Ok(Mode::Client));
        assert!(Mode::read("witness").unwrap_err().contains("\"witness\""));
    }

    #[test]
    fn storage_goes_only_after_the_removal_was_seen() {
        let edges = Edges::default();
        let down = edges.steps(Mode::Server, Mode::Client).unwrap();
        let at = |step| down.iter().position(|s| *s == step).unwrap();
        assert_eq!(down[0], Step::Check, "refused before anything is touched");
        assert!(at(Step::HandOver) < at(Step::RemoveSelf));
        assert!(at(Step::SeeRemoval) < at(Step::Detach) && at(Step::Detach) < at(Step::Delete));
        assert_eq!(down.last(), Some(&Step::Done));
        let up = edges.steps(Mode::Client, Mode::Server).unwrap();
        assert_eq!((up[0], up.last()), (Step::Check, Some(&Step::Done)));
        assert!(edges.steps(Mode::Server, Mode::Server).is_err());
    }
}
