//! How long a pass over a disk takes at least: the bound of a program that reads and writes much of it in
//! the order of its blocks.

use super::Model;
use super::parameters::{Ns, SECOND, hdd, remote, ssd, time_at};

/// A disk as far as a pass over it is concerned.
struct Rates {
    /// Bytes a second.
    read: u64,
    /// The same.
    write: u64,
    /// What it takes to begin anew somewhere near.
    positioning: Ns,
}

impl Rates {
    fn of(model: Model) -> Option<Rates> {
        match model {
            // To a track nearby, and half a turn until the block comes round.
            Model::Hdd => Some(Rates {
                read: hdd::TRANSFER,
                write: hdd::TRANSFER,
                positioning: hdd::SEEK_TRACK + hdd::REVOLUTION / 2,
            }),
            Model::Ssd => {
                Some(Rates { read: ssd::READ_RATE, write: ssd::WRITE_RATE, positioning: ssd::READ })
            }
            Model::Remote => Some(Rates {
                read: remote::RATE,
                write: remote::RATE,
                positioning: remote::ROUND_TRIP,
            }),
            Model::None => None,
        }
    }
}

/// Seconds a disk of `model` takes to read and write these bytes in `runs` pieces, each of which
/// begins with a positioning. `None` for a disk without delays.
pub fn seconds(model: Model, read_bytes: u64, written_bytes: u64, runs: u64) -> Option<f64> {
    let rates = Rates::of(model)?;
    let transfer = time_at(rates.read, read_bytes) + time_at(rates.write, written_bytes);
    Some((transfer + rates.positioning * runs) as f64 / SECOND as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn transfers_and_positionings_add_up() {
        let transfer = seconds(Model::Hdd, hdd::TRANSFER, 2 * hdd::TRANSFER, 0).unwrap();
        assert!((transfer - 3.0).abs() < 1e-6, "{transfer}");
        // 2 ms from track to track and half of 8.33 ms.
        let moves = seconds(Model::Hdd, 0, 0, 1000).unwrap();
        assert!((moves - 6.167).abs() < 0.01, "{moves}");
        assert_eq!(seconds(Model::None, 1, 1, 1), None);
    }
}
