//! A small made-up run for tests: every experiment, with gaps.

use serde_json::json;

use super::results::{Case, Class, Experiment, Profile, Results, Round, SUITE};
use crate::disk::Model;
use crate::stage::LOG_BYTES;

fn case(
    name: &str,
    experiment: Experiment,
    workload: &str,
    size: u64,
    who: &str,
    ratio: f64,
) -> Case {
    let disk = if name.starts_with("ssd") { Model::Ssd } else { Model::Hdd };
    let spread = [ratio * 0.95, ratio * 1.05];
    let classes = match experiment {
        Experiment::FileServer => vec![class("read", ratio / 10.5), class("write", ratio)],
        _ => vec![class("write", ratio)],
    };
    let round = |ratio: f64| Round {
        seconds: 3.0,
        ops_per_s: 97.0 * ratio,
        mean_us: 10_000.0 / ratio,
        p50_us: 9_000.0 / ratio,
        p99_us: 20_000.0 / ratio,
        fetches: 12,
        blocked_writes: 3,
        device_reads: 1234,
        device_writes: 56,
        device_seeks: 78,
        classes: classes.clone(),
        ratio_to_blocking: ratio,
        ..Round::default()
    };
    Case {
        name: name.into(),
        experiment,
        workload: workload.into(),
        disk,
        size_bytes: size,
        memory_bytes: 64 << 20,
        contestant: who.into(),
        ops_per_s: 97.0 * ratio,
        mean_us: 10_000.0 / ratio,
        p50_us: 9_000.0 / ratio,
        p99_us: 20_000.0 / ratio,
        fetches: 12,
        blocked_writes: 3,
        device_reads: 1234,
        device_writes: 56,
        ratio_to_blocking: ratio,
        ratio_spread: spread,
        bound_ops_per_s: None,
        phases: None,
        disk_use: None,
        classes: classes.clone(),
        rounds: vec![round(spread[0]), round(ratio), round(spread[1])],
    }
}

fn class(name: &str, ratio: f64) -> Class {
    Class {
        class: name.into(),
        ops: 100,
        ops_per_s: 33.0,
        mean_us: 10_000.0 / ratio,
        p50_us: 9_000.0 / ratio,
        p99_us: 20_000.0 / ratio,
        max_us: 30_000.0 / ratio,
        ratio_to_blocking: ratio,
    }
}

/// A case of its own, with what is in neither its name nor its classes like that of another: three equal rounds, in
/// which each class had so many operations a second.
pub fn case_of(name: &str, experiment: Experiment, who: &str, classes: &[(&str, f64)]) -> Case {
    let like = results().cases.swap_remove(0);
    let class = |(name, ops_per_s): &(&str, f64)| Class {
        class: (*name).into(),
        ops_per_s: *ops_per_s,
        mean_us: 1e6 / ops_per_s,
        ..like.classes[0].clone()
    };
    let classes: Vec<Class> = classes.iter().map(class).collect();
    let mut rounds = like.rounds;
    rounds.iter_mut().for_each(|round| round.classes = classes.clone());
    let (name, workload) = (name.to_owned(), name.rsplit('/').next().unwrap_or(name).to_owned());
    Case { name, experiment, workload, contestant: who.into(), classes, rounds, ..like }
}

/// Nine names, three of which not every policy has; nothing ran on the ssd but one read.
pub fn results() -> Results {
    use Experiment::{FileServer, Memory, Personality, Trace};
    let mut cases = Vec::new();
    let mut add = |name: &str, experiment, workload: &str, size, ratios: [Option<f64>; 4]| {
        let names = ["ext4", "weir-async-bg", "weir-lazy", "weir-auto"];
        for (who, ratio) in names.into_iter().zip(ratios) {
            if let Some(ratio) = ratio {
                cases.push(case(name, experiment, workload, size, who, ratio));
            }
        }
    };
    let all = |bg, lazy, auto| [Some(1.0), Some(bg), Some(lazy), Some(auto)];
    add("hdd/random-write/128", Personality, "random-write", 128, all(29.5, 45.4, 50.0));
    add("hdd/random-write/2048", Personality, "random-write", 2048, all(6.7, 7.1, 10.0));
    add("hdd/random-write/4096", Personality, "random-write", 4096, all(0.99, 0.8, 0.9));
    add("hdd/sequential-write/2048", Personality, "sequential-write", 2048, all(1.4, 2.6, 1.5));
    let reads = [Some(1.0), Some(1.0), None, Some(1.0)];
    add("ssd/random-read/2048", Personality, "random-read", 2048, reads);
    let memory = "hdd/memory/random-write/2048/64M";
    add(memory, Memory, "random-write", 2048, all(5.6, 7.1, 7.5));
    add("hdd/file-server/18-10-72", FileServer, "18-10-72", 0, all(3.0, 5.0, 10.0));
    add("hdd/facebook", Trace, "facebook", 0, all(1.5, 1.6, 2.0));
    let no_fsync = [Some(1.0), None, None, Some(2.0)];
    add("hdd/facebook/no-fsync", Trace, "facebook-no-fsync", 0, no_fsync);
    for case in &mut cases {
        if case.name == "hdd/random-write/2048" && case.contestant != "ext4" {
            case.bound_ops_per_s = Some(970.0 / 0.75);
        }
    }
    Results {
        suite: SUITE.into(),
        command: "weir-bench run nbw --quick --json out.json".into(),
        machine: json!({"kernel": "6.18", "cpus": 2, "nothing": null}),
        profile: Profile {
            name: "quick".into(),
            scale: 64,
            file_bytes: 80 << 20,
            memory_bytes: 64 << 20,
            patch_bytes: 1 << 20,
            log_bytes: LOG_BYTES,
            seconds: 1.0,
            file_server_seconds: 5.0,
            trace_seconds: 5.0,
            rounds: 3,
            file_server_rounds: 1,
            trace_rounds: 1,
            side_by_side: None,
        },
        weir: "weir 0.1.0 <a|b>".into(),
        complete: false,
        took_seconds: 432.1,
        cases,
    }
}
