//! Runs of several systems, interleaved so that none of them gets the better hours.

use crate::error::Result;

/// The order in which `systems` run in one round.
///
/// Every second round runs backwards (ABBA), and every two rounds start one system further on: so each
/// pair of systems is measured equally often in either order, and no system always follows the same one.
#[must_use]
pub fn order(round: usize, systems: usize) -> Vec<usize> {
    assert!(systems > 0, "a round needs something to run");
    let mut order: Vec<usize> = (0..systems).map(|place| (place + round / 2) % systems).collect();
    if round % 2 == 1 {
        order.reverse();
    }
    order
}

/// Runs every system once per round and gathers what each run answers, by system, in rounds' order.
pub fn interleave<T>(
    rounds: usize,
    systems: usize,
    mut run: impl FnMut(usize, usize) -> Result<T>,
) -> Result<Vec<Vec<T>>> {
    let mut samples: Vec<Vec<T>> = (0..systems).map(|_| Vec::with_capacity(rounds)).collect();
    for round in 0..rounds {
        for system in order(round, systems) {
            samples[system].push(run(round, system)?);
        }
    }
    Ok(samples)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_systems_alternate_as_abba() {
        let orders: Vec<_> = (0..4).map(|round| order(round, 2)).collect();
        assert_eq!(orders, [vec![0, 1], vec![1, 0], vec![1, 0], vec![0, 1]]);
    }

    #[test]
    fn every_pair_of_four_systems_is_seen_in_both_orders_equally_often() {
        for first in 0..4 {
            for second in (0..4).filter(|&second| second != first) {
                let before = (0..8)
                    .filter(|&round| {
                        let order = order(round, 4);
                        let place = |system| order.iter().position(|&other| other == system);
                        place(first) < place(second)
                    })
                    .count();
                assert_eq!(before, 4, "{first} before {second}");
            }
        }
    }

    #[test]
    fn samples_come_back_by_system_and_round() {
        let samples = interleave(3, 2, |round, system| Ok((round, system))).expect("nothing fails");
        assert_eq!(samples[1], [(0, 1), (1, 1), (2, 1)]);
    }
}
