//! Room `storage`, WAL tests: a crash at every step of a workload, and random workloads with random crashes.

use super::disk::{FakeDisk, Left};
use super::model::{Ask, Harness};
use super::world::Dice;
use proptest::prelude::*;

/// A workload that visits every kind of frame, rolls segments, purges and resets.
fn workload(dice: &mut Dice, length: usize) -> Vec<Ask> {
    let mut asks = Vec::new();
    for _ in 0..length {
        let byte = dice.next() as u8;
        asks.push(match dice.below(32) {
            0..=11 => Ask::Append {
                entries: 1 + byte % 5,
                // Often whole sectors, so that what is left of a torn write fits behind what comes next.
                bytes: if byte < 128 { 472 } else { u16::from(byte) * 2 },
            },
            12 => Ask::Append {
                entries: 1,
                bytes: 5000,
            },
            13..=14 => Ask::Vote,
            15..=16 => Ask::Committed,
            17 => Ask::Truncate { drop: byte % 12 },
            18 => Ask::Purge { keep: byte % 8 },
            19..=20 => Ask::EngineDurable { behind: byte % 4 },
            21 if byte < 64 => Ask::Reset { ahead: byte % 3 },
            22 => Ask::Read,
            23..=25 => Ask::Tasks,
            26..=28 => Ask::Job(byte),
            _ => Ask::Run,
        });
    }
    asks
}

#[test]
fn a_crash_at_every_step_loses_nothing_acknowledged_and_revives_nothing() {
    let all = [
        Left::Nothing,
        Left::Everything,
        Left::Pieces,
        Left::Beginnings,
    ];
    for seed in 0..2 {
        let asks = workload(&mut Dice::new(seed), 120);
        let mut whole = Harness::new(FakeDisk::default(), seed);
        asks.iter().for_each(|ask| whole.ask(*ask));
        let steps = whole.disk.steps();
        assert!(steps > 100, "the workload does something: {steps}");
        for step in 1..=steps {
            for left in [
                all[(step + seed) as usize % 4],
                all[(step + seed + 2) as usize % 4],
            ] {
                let mut dice = Dice::new(seed << 32 | step);
                let disk = FakeDisk::default();
                disk.crash_at(step);
                let mut harness = Harness::new(disk.clone(), seed);
                for ask in &asks {
                    if disk.is_dead() {
                        break;
                    }
                    harness.ask(*ask);
                }
                // The second life dies while it opens, the third lives on.
                harness.crash(left, &mut dice, &[1 + step % 7]);
                workload(&mut dice, 20)
                    .into_iter()
                    .for_each(|ask| harness.ask(ask));
                harness.crash(left, &mut dice, &[]);
            }
        }
    }
}

fn ask() -> impl Strategy<Value = Ask> {
    prop_oneof![
        4 => (1..6u8, 0..600u16).prop_map(|(entries, bytes)| Ask::Append { entries, bytes }),
        4 => (1..6u8).prop_map(|entries| Ask::Append { entries, bytes: 472 }),
        1 => Just(Ask::Append { entries: 1, bytes: 9000 }),
        1 => Just(Ask::Append { entries: 0, bytes: 0 }),
        2 => Just(Ask::Vote),
        2 => Just(Ask::Committed),
        2 => (0..20u8).prop_map(|drop| Ask::Truncate { drop }),
        1 => Just(Ask::TruncateAll),
        2 => (0..10u8).prop_map(|keep| Ask::Purge { keep }),
        2 => (0..5u8).prop_map(|behind| Ask::EngineDurable { behind }),
        1 => (0..3u8).prop_map(|ahead| Ask::Reset { ahead }),
        2 => Just(Ask::Tasks),
        3 => (0..4u8).prop_map(Ask::Job),
        3 => Just(Ask::Run),
        2 => Just(Ask::Read),
    ]
}

fn left() -> impl Strategy<Value = Left> {
    prop_oneof![
        Just(Left::Nothing),
        Just(Left::Everything),
        Just(Left::Pieces),
        Just(Left::Beginnings),
        Just(Left::Cached),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 800,
        failure_persistence: None,
        rng_seed: proptest::test_runner::RngSeed::Fixed(3),
        ..ProptestConfig::default()
    })]

    #[test]
    fn the_log_is_the_model_over_many_lives(
        lives in prop::collection::vec(
            (prop::collection::vec(ask(), 1..60), left(), 1..200u64, prop::collection::vec(1..9u64, 0..3)),
            1..6,
        ),
        seed in 0..u64::MAX / 2,
    ) {
        let mut dice = Dice::new(seed);
        let mut harness = Harness::new(FakeDisk::default(), seed);
        for (asks, left, dies_in, again) in lives {
            let now = harness.disk.steps();
            harness.disk.crash_at(now + dies_in);
            for ask in asks {
                if harness.disk.is_dead() {
                    break;
                }
                harness.ask(ask);
            }
            harness.crash(left, &mut dice, &again);
        }
    }
}
