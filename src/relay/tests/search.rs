//! The search for a refused record, life after life, in a sink that has the position for itself, and in one of several, where the
//! others hold it back.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;

/// What a run is made of.
#[derive(Debug, Clone)]
struct Run {
    /// Of how many events each batch is.
    batches: Vec<u64>,
    /// Events whose records the sink refuses.
    refused: BTreeSet<u64>,
    /// Of how many records the requests are that it gets, one after the other and again from the start.
    requests: Vec<usize>,
    /// In each life, how many batches the position stays behind what this sink has.
    lags: Vec<usize>,
    /// Lives that end by something else when so many records were answered.
    cuts: Vec<usize>,
    /// The position is this sink's alone: no batches behind.
    leads: bool,
}

fn runs() -> impl Strategy<Value = Run> {
    prop::collection::vec(1..=60_u64, 1..=5).prop_flat_map(|batches| {
        let count: u64 = batches.iter().sum();
        let refused = prop::collection::btree_set(1..=count, 0..=3);
        let requests = prop::collection::vec(1..=40_usize, 1..=6);
        let lags = prop::collection::vec(0..=3_usize, 1..=6);
        let cuts = prop::collection::vec(0..=150_usize, 0..=2);
        (Just(batches), refused, requests, lags, cuts, any::<bool>()).prop_map(
            |(batches, refused, requests, lags, cuts, leads)| Run {
                batches,
                refused,
                requests,
                lags,
                cuts,
                leads,
            },
        )
    })
}

/// Of an event, or of its letter.
fn number(label: &str) -> u64 {
    label.trim_start_matches("letter ").parse().unwrap()
}

fn place(change: u64) -> Position {
    Position::Postgres(PostgresPosition {
        system_identifier: 7,
        timeline: 1,
        base: Lsn(1),
        partial: Some(Partial {
            commit: Lsn(1000),
            change: Lsn(change),
            index: 0,
        }),
        last_event_end: Lsn::ZERO,
    })
}

/// How one life went.
struct Life {
    end: End,
    left: Left,
    /// Of what was acknowledged, the labels.
    acked: Vec<String>,
    /// The last event of those that this sink has, as it told.
    had: u64,
}

impl Run {
    /// The last event of each batch.
    fn ends(&self) -> Vec<u64> {
        let sums = self.batches.iter().scan(0, |sum, size| {
            *sum += size;
            Some(*sum)
        });
        sums.collect()
    }

    /// A life that begins behind an event.
    async fn live(&self, from: u64, left: Left, mut cut: Option<usize>) -> Life {
        let pipeline = parking(PARK, OversizedDeadLetter::Halt);
        let status = PipelineStatus::new(&pipeline);
        let mut bench = start_with(
            &pipeline,
            &Journal::default(),
            status,
            left,
            Script::default(),
            self.leads,
        );
        let sender = bench.batches.take().unwrap();
        let mut first = 1;
        let mut given = Vec::new();
        for end in self.ends() {
            if end > from {
                given.push(LogBatch {
                    end: place(end),
                    ..batch(first.max(from + 1)..=end, None)
                });
            }
            first = end + 1;
        }
        let giving = tokio::spawn(async move {
            for batch in given {
                if sender.send(batch).await.is_err() {
                    return;
                }
            }
        });
        let mut sizes = self.requests.iter().copied().cycle();
        let (mut acked, mut answered, mut fails) = (Vec::new(), 0, false);
        while !bench.relay.is_finished() {
            let sent = bench.sink.0.lock().unwrap().sent.clone();
            while answered < sent.len() {
                let size = sizes.next().unwrap().min(sent.len() - answered);
                let request = &sent[answered..answered + size];
                answered += size;
                let is_refused = |label: &String| label.parse().is_ok_and(|number| self.refused.contains(&number));
                let is_cut = cut.is_some_and(|cut| answered > cut);
                let kind = match request.iter().any(|(_, label)| is_refused(label)) {
                    _ if fails || is_cut => Some(DeliveryErrorKind::Unavailable),
                    true => Some(DeliveryErrorKind::Record(RecordFault::Refused)),
                    false => None,
                };
                fails |= kind.is_some();
                if is_cut {
                    cut = None;
                }
                for (seq, label) in request {
                    match kind {
                        Some(kind) => bench.acks.failed(*seq, refused(kind)),
                        None => {
                            bench.acks.acked(*seq);
                            acked.push(label.clone());
                        }
                    }
                }
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        giving.abort();
        let had = bench.acked.borrow().as_ref().and_then(change);
        let Ended { end, left, .. } = bench.relay.await.unwrap();
        Life {
            end,
            left,
            acked,
            had: had.unwrap_or(from),
        }
    }

    /// Lives until nothing is left: the labels of what was acknowledged, and how many lives that took.
    async fn run(&self) -> (BTreeSet<String>, usize) {
        let (mut from, mut had, mut left) = (0, 0, Left::default());
        let (mut acked, mut cuts) = (BTreeSet::new(), self.cuts.iter().copied());
        for lives in 1.. {
            let lag = self.lags[lives % self.lags.len()];
            let life = self.live(from, left, cuts.next()).await;
            let numbers: Vec<u64> = life.acked.iter().map(|label| number(label)).collect();
            assert!(
                numbers.is_sorted_by(|one, next| one < next),
                "out of order: {:?}",
                life.acked
            );
            acked.extend(life.acked);
            if !matches!(life.end, End::SinkFailed(_)) {
                assert!(matches!(life.end, End::Drained), "{:?}", life.end);
                return (acked, lives);
            }
            assert!(lives < 40, "it comes to no end: {:?}", life.left);
            had = had.max(life.had);
            let ends: Vec<u64> = self.ends().into_iter().filter(|end| *end <= had).collect();
            from = match self.leads {
                true => had,
                false => ends.into_iter().rev().nth(lag).unwrap_or(0).max(from),
            };
            left = life.left.from(Some(&place(from)));
        }
        unreachable!()
    }
}

fn in_paused_time<T>(run: impl Future<Output = T>) -> T {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_all().start_paused(true).build();
    runtime.unwrap().block_on(run)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn each_refused_record_is_found_in_a_few_lives_wherever_they_begin(run in runs()) {
        let (acked, lives) = in_paused_time(run.run());
        let count: u64 = run.batches.iter().sum();
        let expected: BTreeSet<String> = (1..=count)
            .map(|number| match run.refused.contains(&number) {
                true => format!("letter {number}"),
                false => number.to_string(),
            })
            .collect();
        prop_assert_eq!(acked, expected);
        // In its batch, in its group, and alone.
        prop_assert!(lives <= 1 + 3 * run.refused.len() + 2 * run.cuts.len(), "{} lives", lives);
    }
}

#[test]
fn a_record_that_is_the_last_but_few_of_those_searched_is_found_as_fast() {
    // 98 fails with 20, the last of which is the hundredth, and 70 that follow the first batch are searched.
    let run = Run {
        batches: vec![30, 90, 60],
        refused: [98].into(),
        requests: vec![40],
        lags: vec![0],
        cuts: Vec::new(),
        leads: false,
    };
    let (_, lives) = in_paused_time(run.run());
    assert_eq!(lives, 4, "in its batch, in its group, alone, and parked");
}
