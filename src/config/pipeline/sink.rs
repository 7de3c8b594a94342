//! `spec.sinks`: where records go.

use std::path::PathBuf;
use std::time::Duration;

use secrecy::SecretString;

use super::{Envelope, Restart, Ssl};
use crate::config::template::Template;

/// A sink beside [`Pipeline::sink`](super::Pipeline::sink).
#[derive(Debug, Clone)]
pub struct FurtherSink {
    pub sink: Sink,
    /// Whether the position waits for it; always with [`CommitPolicy::Quorum`], which waits for so many of all.
    pub required: bool,
}

/// Which sinks must have an event before the position moves past it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CommitPolicy {
    /// Each that is required.
    Required,
    /// Any so many of them: at least 1, at most as many as there are.
    Quorum(usize),
}

/// Where records go.
#[derive(Debug, Clone)]
pub enum Sink {
    Kafka(Kafka),
    Http(Box<Http>),
    File(File),
    Stdout(Stdout),
}

impl Sink {
    /// Names the sink in metrics and logs.
    pub fn id(&self) -> &str {
        match self {
            Self::Kafka(kafka) => &kafka.id,
            Self::Http(http) => &http.id,
            Self::File(file) => &file.lines.id,
            Self::Stdout(lines) => &lines.id,
        }
    }

    pub fn kafka(&self) -> Option<&Kafka> {
        match self {
            Self::Kafka(kafka) => Some(kafka),
            Self::Http(_) | Self::File(_) | Self::Stdout(_) => None,
        }
    }

    /// Whether records become durable only together with the position, by a commit.
    pub fn is_exactly_once(&self) -> bool {
        self.kafka().is_some_and(|kafka| kafka.exactly_once)
    }

    /// The key of records that bring none of their own.
    pub fn key(&self) -> Option<&Template> {
        match self {
            Self::Kafka(kafka) => kafka.key.as_ref(),
            Self::Http(http) => http.key.as_ref(),
            Self::File(file) => file.lines.key.as_ref(),
            Self::Stdout(lines) => lines.key.as_ref(),
        }
    }

    pub fn envelope(&self) -> &Envelope {
        match self {
            Self::Kafka(kafka) => &kafka.envelope,
            Self::Http(http) => &http.envelope,
            Self::File(file) => &file.lines.envelope,
            Self::Stdout(lines) => &lines.envelope,
        }
    }
}

/// A sink of type `kafka`.
#[derive(Debug, Clone)]
pub struct Kafka {
    /// Names the sink in metrics and logs.
    pub id: String,
    /// `host:port`, comma separated, as librdkafka takes it.
    pub brokers: String,
    /// The fallback for events that bring no topic of their own.
    pub topic: Option<Template>,
    /// The key of records that bring none of their own.
    pub key: Option<Template>,
    pub envelope: Envelope,
    /// Records and position in one Kafka transaction.
    pub exactly_once: bool,
    /// Fences older instances, of this sink or of the checkpoint in Kafka; `tailpost-` and the pipeline's name when the file
    /// does not say.
    pub transactional_id: String,
    /// What to do when another instance with the same transactional id is alive.
    pub on_fenced: OnFenced,
    /// None: the broker's own rule for topics that are missing.
    pub create_topics: Option<CreateTopics>,
    /// librdkafka properties in the file's order, none of them one that an option of ours sets; values can be secrets.
    pub client_conf: Vec<(String, SecretString)>,
}

/// What an instance does that was fenced, came back, and was fenced again at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnFenced {
    /// Wait, and try again at a slow pace.
    StandBy,
    /// End the pipeline as failed.
    Stop,
}

/// How topics that are missing are made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CreateTopics {
    /// At least 1.
    pub partitions: i32,
    /// At least 1, or -1: the broker's default.
    pub replication_factor: i32,
}

/// A sink of type `http`: each event, or a batch of them, is one request.
#[derive(Debug, Clone)]
pub struct Http {
    /// Names the sink in metrics and logs.
    pub id: String,
    /// Its scheme and host are the same for all events.
    pub url: Template,
    /// The key of records that bring none of their own.
    pub key: Option<Template>,
    pub envelope: Envelope,
    pub method: Method,
    /// In the file's order; values can be secrets.
    pub headers: Vec<(String, SecretString)>,
    pub auth: Option<HttpAuth>,
    /// How the server is told apart from an impostor, and the client's own certificate.
    pub tls: Ssl,
    pub body: Body,
    /// None: one event a request.
    pub batch: Option<HttpBatch>,
    /// Requests under way at once; at least 1.
    pub concurrency: usize,
    pub connect_timeout: Duration,
    /// Statuses by which the target says that it has the event.
    pub success: StatusSet,
    /// Statuses by which it says: later.
    pub retry_on: StatusSet,
    /// Statuses by which it refuses us, whatever the event: a person must act.
    pub halt_on: StatusSet,
    /// Secrets of Standard Webhooks, each of which signs; empty: no signature.
    pub signature: Vec<SecretString>,
    pub ordering: Ordering,
    pub retry: Retry,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Method {
    Post,
    Put,
    Patch,
}

/// How requests say who sends them, beside a client certificate.
#[derive(Debug, Clone)]
pub enum HttpAuth {
    Basic { username: String, password: SecretString },
    Bearer { token: SecretString },
}

/// What a request carries of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Body {
    /// The record's value as it is; its headers are the request's.
    Payload,
    /// A JSON object with key, headers and value.
    Envelope,
}

/// Several events in one request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HttpBatch {
    pub max_events: usize,
    /// Of the body; one event that is larger goes alone.
    pub max_bytes: u64,
    pub form: BatchForm,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BatchForm {
    /// A JSON array.
    Array,
    /// One JSON text a line.
    Lines,
}

/// Some of the HTTP statuses from 100 to 599.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StatusSet(Vec<(u16, u16)>);

impl StatusSet {
    /// Of ranges, both ends of which are in it.
    pub fn new(ranges: Vec<(u16, u16)>) -> Self {
        Self(ranges)
    }

    pub fn contains(&self, status: u16) -> bool {
        self.0.iter().any(|&(first, last)| (first..=last).contains(&status))
    }

    /// A status that is in both.
    pub fn common(&self, other: &Self) -> Option<u16> {
        (100..600).find(|&status| self.contains(status) && other.contains(status))
    }
}

/// Among which events the order of their commits is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ordering {
    /// Those of one record key. Events without a key are in no order.
    Key,
    /// Those for which the template gives the same text. Events for which it gives none are in no order.
    Template(Template),
    /// All of them.
    Source,
    /// None.
    Unordered,
}

/// How often and when a delivery is tried again.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Retry {
    /// None: without end.
    pub max_attempts: Option<u32>,
    pub delays: Restart,
    /// What takes longer is abandoned, and counts as a failed attempt.
    pub attempt_timeout: Duration,
}

/// A sink of type `stdout`: a line of JSON an event, on the process's standard output.
#[derive(Debug, Clone)]
pub struct Stdout {
    /// Names the sink in metrics and logs.
    pub id: String,
    /// The topic of events that bring none of their own.
    pub topic: Template,
    /// The key of records that bring none of their own.
    pub key: Option<Template>,
    pub envelope: Envelope,
}

/// A sink of type `file`: the same lines at the end of a file, synchronized to disk before an event counts as published.
#[derive(Debug, Clone)]
pub struct File {
    pub lines: Stdout,
    pub path: PathBuf,
}
