//! How long something is run before it counts.

/// What is measured must fall below this part of the best so far to count as still falling.
const FALLS: f64 = 0.95;
/// So many rounds in a row that did not fall say that it is settled: one alone can be a disturbance.
const PATIENCE: usize = 2;
/// It need not settle on a machine that others use too.
const ROUNDS: usize = 12;

/// Whether what is measured of each round, such as CPU or a latency, still falls: a server's compiler is at work for a while.
#[derive(Debug)]
pub struct Settling {
    best: f64,
    rounds: usize,
    since_best: usize,
}

impl Settling {
    pub fn new() -> Self {
        Self {
            best: f64::MAX,
            rounds: 0,
            since_best: 0,
        }
    }

    /// Takes a round's value. False: it is settled, or has had its rounds.
    pub fn goes_on(&mut self, value: f64) -> bool {
        self.rounds += 1;
        self.since_best += 1;
        if value < FALLS * self.best {
            self.since_best = 0;
        }
        self.best = self.best.min(value);
        self.since_best < PATIENCE && self.rounds < ROUNDS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_settled_when_two_rounds_in_a_row_did_not_fall() {
        let rounds = |values: &[f64]| {
            let mut settling = Settling::new();
            values.iter().take_while(|value| settling.goes_on(**value)).count() + 1
        };
        assert_eq!(rounds(&[6.0, 6.1, 3.0, 2.9, 3.1, 1.0]), 5);
        let falling: Vec<f64> = (0..20).map(|round| 0.5_f64.powi(round)).collect();
        assert_eq!(rounds(&falling), ROUNDS);
    }
}
