//! The calls of librdkafka's transactional producer, with errors that say what follows.
//!
//! Each waits for brokers: none is for a task. A call that runs out of time goes on by itself, and the same call again
//! tells how it ended; so what is called in a row for long enough has always a known outcome, or none that can be known.

use std::ffi::CStr;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rdkafka::bindings;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::producer::{Producer, ProducerContext};

/// How long one call waits before it is looked whether it is still wanted.
pub(crate) const SLICE: Duration = Duration::from_secs(1);
/// Between two calls of which the first did not wait.
const PAUSE: Duration = Duration::from_millis(50);

/// A call that failed.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{reason}")]
pub(crate) struct TransactionError {
    pub(crate) kind: TransactionErrorKind,
    pub(crate) code: RDKafkaErrorCode,
    /// librdkafka's own words.
    pub(crate) reason: String,
}

/// What follows from a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TransactionErrorKind {
    /// It goes on by itself: the same call again tells how it ended.
    Unfinished,
    /// The transaction can only be aborted; the producer is sound.
    Abortable,
    /// Another producer with the same id has begun, or a broker ended the transaction for its age. Nobody can tell which.
    Fenced,
    /// The producer is of no use any more.
    Fatal,
}

impl TransactionErrorKind {
    fn of(code: RDKafkaErrorCode, is_fatal: bool, is_retriable: bool, requires_abort: bool) -> Self {
        if is_fenced(code) {
            Self::Fenced
        } else if is_fatal {
            Self::Fatal
        } else if requires_abort {
            Self::Abortable
        } else if is_retriable {
            Self::Unfinished
        } else {
            // A call out of its order: where the transaction stands is not known.
            Self::Fatal
        }
    }
}

/// Whether a code says that a newer producer has the transactional id, or that the transaction was too old.
pub(crate) fn is_fenced(code: RDKafkaErrorCode) -> bool {
    use RDKafkaErrorCode as Code;
    matches!(code, Code::Fenced | Code::ProducerFenced | Code::InvalidProducerEpoch)
}

impl From<KafkaError> for TransactionError {
    fn from(error: KafkaError) -> Self {
        match error {
            KafkaError::Transaction(error) => Self {
                kind: TransactionErrorKind::of(
                    error.code(),
                    error.is_fatal(),
                    error.is_retriable(),
                    error.txn_requires_abort(),
                ),
                code: error.code(),
                reason: error.string(),
            },
            other => Self {
                kind: TransactionErrorKind::Fatal,
                code: other.rdkafka_error_code().unwrap_or(RDKafkaErrorCode::Unknown),
                reason: other.to_string(),
            },
        }
    }
}

/// Ends what older producers with the same id have open, and shuts them out. Before anything else, once.
pub(crate) fn init<C: ProducerContext>(producer: &impl Producer<C>, timeout: Duration) -> Result<(), TransactionError> {
    Ok(producer.init_transactions(timeout)?)
}

/// Begins the next transaction. No broker hears of it before the first record.
pub(crate) fn begin<C: ProducerContext>(producer: &impl Producer<C>) -> Result<(), TransactionError> {
    Ok(producer.begin_transaction()?)
}

/// Drops what the transaction holds. Records on their way are waited for.
pub(crate) fn abort<C: ProducerContext>(
    producer: &impl Producer<C>,
    timeout: Duration,
) -> Result<(), TransactionError> {
    Ok(producer.abort_transaction(timeout)?)
}

/// Waits until every record is reported.
///
/// The client crate's own call takes 100 ms whether or not anything is to be flushed; the binding ends as soon as it can.
#[expect(
    unsafe_code,
    reason = "the client crate has no other way to flush without its 100 ms"
)]
pub(crate) fn flush<C: ProducerContext>(
    producer: &impl Producer<C>,
    timeout: Duration,
) -> Result<(), TransactionError> {
    // SAFETY: the handle is valid for as long as `producer` lives, which is borrowed over the call, and librdkafka's
    // handles may be used by several threads at once.
    let code = unsafe { bindings::rd_kafka_flush(producer.client().native_ptr(), timeout_ms(timeout)) };
    match RDKafkaErrorCode::from(code) {
        RDKafkaErrorCode::NoError => Ok(()),
        code => Err(TransactionError {
            // It only waits.
            kind: TransactionErrorKind::Unfinished,
            code,
            reason: code.to_string(),
        }),
    }
}

fn timeout_ms(timeout: Duration) -> i32 {
    i32::try_from(timeout.as_millis()).unwrap_or(i32::MAX)
}

/// Waits until all records of the transaction are delivered, and commits it.
///
/// The client crate's own call flushes first, as [`flush`] says.
#[expect(
    unsafe_code,
    reason = "the client crate has no other way to commit without its 100 ms"
)]
pub(crate) fn commit<C: ProducerContext>(
    producer: &impl Producer<C>,
    timeout: Duration,
) -> Result<(), TransactionError> {
    // SAFETY: the handle is valid for as long as `producer` lives, which is borrowed over the call, and librdkafka's
    // handles may be used by several threads at once.
    let error = unsafe { bindings::rd_kafka_commit_transaction(producer.client().native_ptr(), timeout_ms(timeout)) };
    let Some(error) = NonNull::new(error).map(NativeError) else {
        return Ok(());
    };
    let pointer = error.0.as_ptr();
    // SAFETY: `error` is an error that librdkafka gave us and that is destroyed only when it is dropped, at this
    // function's end; these calls read it.
    let (code, is_fatal, is_retriable, requires_abort) = unsafe {
        (
            RDKafkaErrorCode::from(bindings::rd_kafka_error_code(pointer)),
            bindings::rd_kafka_error_is_fatal(pointer) != 0,
            bindings::rd_kafka_error_is_retriable(pointer) != 0,
            bindings::rd_kafka_error_txn_requires_abort(pointer) != 0,
        )
    };
    // SAFETY: the text of an error is a C string, never null, that lives as long as the error; it is copied here.
    let reason = unsafe { CStr::from_ptr(bindings::rd_kafka_error_string(pointer)) }
        .to_string_lossy()
        .into_owned();
    Err(TransactionError {
        kind: TransactionErrorKind::of(code, is_fatal, is_retriable, requires_abort),
        code,
        reason,
    })
}

/// An error of librdkafka's, owned.
struct NativeError(NonNull<bindings::rd_kafka_error_t>);

#[expect(unsafe_code, reason = "an error of librdkafka's is freed by its own function")]
impl Drop for NativeError {
    fn drop(&mut self) {
        // SAFETY: it came from librdkafka, which left it to us, and nothing refers to it any more.
        unsafe { bindings::rd_kafka_error_destroy(self.0.as_ptr()) }
    }
}

/// Calls until it is known how it ended, nobody wants to know any more, or patience is over; `unfinished` hears of each
/// call that ran out of time, with the time since the first.
pub(crate) fn until_known(
    is_over: &AtomicBool,
    patience: Option<Duration>,
    mut call: impl FnMut(Duration) -> Result<(), TransactionError>,
    mut unfinished: impl FnMut(&TransactionError, Duration),
) -> Result<(), TransactionError> {
    let begun = Instant::now();
    loop {
        let called = Instant::now();
        let error = match call(SLICE) {
            Err(error) if error.kind == TransactionErrorKind::Unfinished => error,
            known => return known,
        };
        let waited = begun.elapsed();
        if is_over.load(Ordering::Relaxed) || patience.is_some_and(|patience| waited >= patience) {
            return Err(error);
        }
        unfinished(&error, waited);
        if called.elapsed() < PAUSE {
            sleep(PAUSE);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(kind: TransactionErrorKind) -> TransactionError {
        TransactionError {
            kind,
            code: RDKafkaErrorCode::OperationTimedOut,
            reason: "timed out".to_owned(),
        }
    }

    #[test]
    fn a_fenced_code_is_fenced_however_it_is_flagged_and_what_has_no_flag_is_fatal() {
        use RDKafkaErrorCode as Code;
        use TransactionErrorKind as Kind;
        for code in [Code::Fenced, Code::ProducerFenced, Code::InvalidProducerEpoch] {
            assert_eq!(Kind::of(code, true, false, false), Kind::Fenced);
            assert_eq!(Kind::of(code, false, false, true), Kind::Fenced);
        }
        assert_eq!(Kind::of(Code::OperationTimedOut, false, true, false), Kind::Unfinished);
        assert_eq!(Kind::of(Code::MessageSizeTooLarge, false, true, true), Kind::Abortable);
        assert_eq!(
            Kind::of(Code::ClusterAuthorizationFailed, true, false, false),
            Kind::Fatal
        );
        assert_eq!(Kind::of(Code::State, false, false, false), Kind::Fatal);
    }

    #[test]
    fn a_call_is_repeated_until_its_outcome_is_known() {
        let mut answers = vec![
            Ok(()),
            Err(error(TransactionErrorKind::Unfinished)),
            Err(error(TransactionErrorKind::Unfinished)),
        ];
        let mut heard = 0;
        let known = until_known(
            &AtomicBool::new(false),
            None,
            |_| answers.pop().expect("no call after the last answer"),
            |_, _| heard += 1,
        );
        assert!(known.is_ok() && answers.is_empty());
        assert_eq!(heard, 2);
    }

    #[test]
    fn a_call_that_nobody_wants_any_more_or_that_takes_too_long_is_left_unfinished() {
        let unfinished = |_| Err(error(TransactionErrorKind::Unfinished));
        for (is_over, patience) in [(true, None), (false, Some(Duration::ZERO))] {
            let known = until_known(&AtomicBool::new(is_over), patience, unfinished, |_, _| {
                panic!("it is not called again")
            });
            assert_eq!(known.unwrap_err().kind, TransactionErrorKind::Unfinished);
        }
    }
}
