//! Spans of what is on its way: of batches, and of events that carry the context of a trace. Without a tracer there is nothing here.

use std::collections::VecDeque;
use std::mem;
use std::time::SystemTime;

use crate::record::Record;
use crate::source::LogBatch;
use crate::telemetry::otlp::{Span, SpanContext, Tracer};

use super::in_flight::{Fate, Ledger, Seq};

/// What an end of the relay means for an event that was not acknowledged: the next life sends it again.
const ABANDONED: &str = "not_acknowledged";

/// See the module's text.
#[derive(Debug)]
pub(super) struct Spans(Option<Box<Open>>);

#[derive(Debug)]
struct Open {
    tracer: Tracer,
    /// Whether later events can be acknowledged long before earlier ones.
    in_any_order: bool,
    /// The batch at hand, if it is recorded.
    at_hand: Option<SpanContext>,
    /// In the order of the log.
    batches: VecDeque<OpenBatch>,
    /// In the order of their seqs.
    sends: VecDeque<OpenSend>,
}

#[derive(Debug)]
struct OpenBatch {
    span: Span,
    /// Done when every seq below this is settled.
    upto: Option<Seq>,
}

#[derive(Debug)]
struct OpenSend {
    seq: Seq,
    fate: Fate,
    span: Span,
}

impl Spans {
    pub(super) fn new(tracer: Option<Tracer>, in_any_order: bool) -> Self {
        Self(tracer.map(|tracer| {
            Box::new(Open {
                tracer,
                in_any_order,
                at_hand: None,
                batches: VecDeque::new(),
                sends: VecDeque::new(),
            })
        }))
    }

    /// A batch is at hand.
    pub(super) fn batch(&mut self, batch: &LogBatch) {
        let Some(open) = self.0.as_mut().filter(|_| !batch.events.is_empty()) else {
            return;
        };
        let span = open.tracer.batch(batch.events.len(), || batch.end.to_string());
        open.at_hand = span.as_ref().map(|span| span.context);
        open.batches.extend(span.map(|span| OpenBatch { span, upto: None }));
    }

    /// All of the batch at hand is below this seq.
    pub(super) fn batch_handled(&mut self, next: Seq) {
        if let Some(open) = &mut self.0
            && open.at_hand.take().is_some()
            && let Some(batch) = open.batches.back_mut()
        {
            batch.upto = Some(next);
        }
    }

    /// The span of a record that is given to the sink, of an event that carries a context.
    pub(super) fn of(&self, record: &Record, commit_time_us: i64) -> Option<Box<Span>> {
        let open = self.0.as_ref()?;
        Span::send(open.tracer.origin(), record, commit_time_us, open.at_hand).map(Box::new)
    }

    /// The sink took it.
    pub(super) fn sent(&mut self, seq: Seq, fate: Fate, span: Option<Box<Span>>) {
        if let (Some(open), Some(span)) = (&mut self.0, span) {
            let span = *span;
            open.sends.push_back(OpenSend { seq, fate, span });
        }
    }

    /// What was sent under this seq was refused, and is settled otherwise.
    pub(super) fn set_fate(&mut self, seq: Seq, fate: Fate) {
        if let Some(open) = &mut self.0
            && let Ok(at) = open.sends.binary_search_by_key(&seq, |send| send.seq)
            && let Some(send) = open.sends.get_mut(at)
        {
            send.fate = fate;
        }
    }

    /// Ends what is settled.
    pub(super) fn settle(&mut self, ledger: &Ledger) {
        let Some(open) = &mut self.0 else { return };
        while open.sends.front().is_some_and(|send| ledger.is_settled(send.seq)) {
            open.sends
                .pop_front()
                .into_iter()
                .for_each(|send| end(&open.tracer, send));
        }
        if open.in_any_order && !open.sends.is_empty() {
            let (settled, rest): (Vec<_>, Vec<_>) = mem::take(&mut open.sends)
                .into_iter()
                .partition(|send| ledger.is_settled(send.seq));
            open.sends = VecDeque::from(rest);
            settled.into_iter().for_each(|send| end(&open.tracer, send));
        }
        let is_done = |batch: &OpenBatch| batch.upto.is_some_and(|upto| upto <= ledger.low());
        while open.batches.front().is_some_and(is_done) {
            let Some(OpenBatch { mut span, .. }) = open.batches.pop_front() else {
                break;
            };
            span.end = SystemTime::now();
            open.tracer.ended(span);
        }
    }

    /// The relay ends, and with it what is not settled.
    pub(super) fn abandon(&mut self) {
        let Some(open) = self.0.take() else { return };
        let Open {
            tracer, batches, sends, ..
        } = *open;
        let batches = batches.into_iter().map(|batch| batch.span);
        for mut span in sends.into_iter().map(|send| send.span).chain(batches) {
            span.end = SystemTime::now();
            span.error = Some(ABANDONED);
            tracer.ended(span);
        }
    }
}

fn end(tracer: &Tracer, OpenSend { fate, mut span, .. }: OpenSend) {
    span.end = SystemTime::now();
    span.error = match fate {
        Fate::Published | Fate::Position => None,
        Fate::DeadLettered(reason) => Some(reason.label()),
        Fate::Skipped(reason) => Some(reason.label()),
    };
    tracer.ended(span);
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use bytes::Bytes;
    use tokio::sync::mpsc::Receiver;

    use super::super::in_flight::{Limits, Progress};
    use super::*;
    use crate::processor::DeadLetterReason;
    use crate::record::Header;
    use crate::telemetry::otlp::{SpanKind, tests::tracer};

    /// Of the span with this number.
    fn record(parent: u8) -> Record {
        let value = format!("00-4bf92f3577b34da6a3ce929d0e0e4736-00000000000000{parent:02x}-01");
        Record {
            topic: Arc::from("orders"),
            partition: None,
            key: None,
            value: None,
            headers: vec![Header {
                name: Arc::from("traceparent"),
                value: Some(Bytes::from(value)),
            }],
            timestamp_ms: 0,
            about: None,
        }
    }

    struct Fixture {
        ledger: Ledger,
        spans: Spans,
        ended: Receiver<Span>,
    }

    impl Fixture {
        /// Three records were sent, of spans 1 to 3.
        fn new(in_any_order: bool, uncommitted: Option<usize>) -> Self {
            let (tracer, ended) = tracer(100);
            let limits = Limits {
                events: 10,
                bytes: u64::MAX,
                uncommitted,
            };
            let mut fixture = Self {
                ledger: Ledger::new(limits),
                spans: Spans::new(Some(tracer), in_any_order),
                ended,
            };
            for parent in 1..=3 {
                let (seq, fate) = (fixture.ledger.next_seq(), Fate::Published);
                let span = fixture.spans.of(&record(parent), 0);
                fixture.ledger.sent(0, 0, std::time::Instant::now(), fate);
                fixture.spans.sent(seq, fate, span);
            }
            fixture
        }

        /// Parents and errors of what has ended since the last look.
        fn settle(&mut self) -> Vec<(u8, Option<&'static str>)> {
            self.ledger.advance(&mut Progress::default());
            self.spans.settle(&self.ledger);
            self.ended()
        }

        fn ended(&mut self) -> Vec<(u8, Option<&'static str>)> {
            let ended = std::iter::from_fn(|| self.ended.try_recv().ok());
            let of = |span: Span| match span.kind {
                SpanKind::Send { parent, .. } => (parent.context.span_id[7], span.error),
                SpanKind::Batch { .. } => panic!("no batch was taken"),
            };
            ended.map(of).collect()
        }
    }

    #[test]
    fn an_event_ends_when_it_is_acknowledged() {
        let mut fixture = Fixture::new(false, None);
        let acks = fixture.ledger.acks();
        acks.acked(Seq(0));
        assert_eq!(fixture.settle(), [(1, None)]);
        acks.acked(Seq(2));
        acks.acked(Seq(1));
        assert_eq!(fixture.settle(), [(2, None), (3, None)]);
    }

    #[test]
    fn with_a_sink_that_refuses_singly_none_waits_for_one_before_it() {
        let mut fixture = Fixture::new(true, None);
        let acks = fixture.ledger.acks();
        acks.acked(Seq(2));
        assert_eq!(fixture.settle(), [(3, None)]);
        let reason = DeadLetterReason::PoisonMessage;
        fixture.spans.set_fate(Seq(1), Fate::DeadLettered(reason));
        acks.acked(Seq(1));
        assert_eq!(fixture.settle(), [(2, Some(reason.label()))]);
        fixture.spans.abandon();
        assert_eq!(fixture.ended(), [(1, Some(ABANDONED))]);
    }

    #[test]
    fn with_a_sink_that_commits_nothing_ends_before_the_commit() {
        let mut fixture = Fixture::new(false, Some(10));
        let acks = fixture.ledger.acks();
        (0..3).for_each(|seq| acks.acked(Seq(seq)));
        assert_eq!(fixture.settle(), []);
        acks.committed_through(Seq(1));
        assert_eq!(fixture.settle(), [(1, None), (2, None)]);
    }
}
