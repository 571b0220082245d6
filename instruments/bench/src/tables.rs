//! The tables of docs/results/engine.md, from a run's JSON: what is in the document is what was measured.

use std::path::Path;

use serde_json::Value;

use crate::error::Result;
use crate::fuse::RATES;
use crate::json;
use crate::measure::show_us;
use crate::report::number;

/// Prints the tables of the results in `path`, as Markdown. Benchmarks that were not run are left
/// out.
pub fn print(path: &Path) -> Result<()> {
    let results: Value = json::load(path)?;
    goals(&results["goals"]);
    let tables: [(&str, Print); 5] = [
        ("engine", engine),
        ("cold_write_64_b", cold_write),
        ("cached_read_4_kib", cached_read),
        ("sequential_1_mib", sequential),
        ("memory", memory),
    ];
    for (name, print) in tables {
        let figures = &results["figures"][name];
        if !figures.is_null() {
            print(figures);
        }
    }
    Ok(())
}

/// Prints the table of a benchmark's figures.
type Print = fn(&Value);

fn figure(value: &Value) -> f64 {
    value.as_f64().unwrap_or(f64::NAN)
}

fn goals(goals: &Value) {
    println!("| goal | at | measured | |\n|---|---|---|---|");
    for goal in goals.as_array().into_iter().flatten() {
        let text = |key: &str| goal[key].as_str().unwrap_or_default().to_owned();
        let shown = |key: &str| number(figure(&goal[key]));
        let bound = if goal["at_least"] == true { "≥" } else { "≤" };
        println!(
            "| {} | {bound} {} {unit} | {} {unit} | {} |",
            text("name"),
            shown("goal"),
            shown("measured"),
            if goal["reached"] == true { "reached" } else { "**missed**" },
            unit = text("unit"),
        );
    }
}

fn engine(engine: &Value) {
    println!("\n| 64 B write to | median | least |\n|---|---|---|");
    for (key, name) in [
        ("up_to_date_ns", "an up-to-date page that is dirty"),
        ("up_to_date_clean_ns", "an up-to-date page that is clean"),
        ("up_to_date_over_256_mib_ns", "an up-to-date page among 256 MiB of them"),
        ("absent_first_patch_ns", "an absent page: its first patch"),
        ("patched_same_place_ns", "a patched page, over an earlier patch"),
        ("patched_anywhere_ns", "a patched page, anywhere, up to 8 patches"),
        ("patched_new_run_of_4_ns", "a patched page, beside up to 4 patches"),
        ("patched_new_run_of_21_ns", "a patched page, beside up to 21 patches"),
    ] {
        let nanos = |which: &str| number(figure(&engine[key][which]));
        println!("| {name} | {} ns | {} ns |", nanos("median"), nanos("least"));
    }
    println!("\n| overhead of a patch of 64 B | counted | the process grew by |\n|---|---|---|");
    for (key, name) in [
        ("overhead_one_patch_a_page", "alone on its page"),
        ("overhead_ten_patches_a_page", "with nine others on its page"),
    ] {
        let bytes = |which: &str| number(figure(&engine[key][which]));
        println!("| {name} | {} B | {} B |", bytes("counted"), bytes("resident"));
    }
}

fn cold_write(cold: &Value) {
    println!(
        "\n| 64 B writes | median | p99 | a second | fsync after a round |\n|---|---|---|---|---|"
    );
    let row = |name: &str, side: &Value| {
        let us = |value: &Value| show_us(figure(value));
        let writes = &side["writes"];
        println!(
            "| {name} | {} | {} | {:.0} | {} |",
            us(&writes["median_us"]),
            us(&writes["p99_us"]),
            figure(&writes["per_second"]),
            us(&side["fsync_after_round_us"]),
        );
    };
    row("cold, straight to the directory", &cold["directory"]);
    row("cold, through Weir", &cold["weir"]);
    row("in memory, through the passthrough", &cold["passthrough_all_in_memory"]);
    for (policy, side) in cold["policies"].as_object().into_iter().flatten() {
        row(&format!("cold, through Weir, `--fetch {policy}`"), side);
    }
}

fn cached_read(read: &Value) {
    let us = |key: &str| show_us(figure(&read[key]));
    println!("\n| 4 KiB cached read | |\n|---|---|");
    println!("| Weir | {} |\n| passthrough | {} |", us("weir_us"), us("passthrough_us"));
}

fn sequential(sequential: &Value) {
    println!("\n| 1 MiB sequential, MiB/s | Weir | passthrough | directory |\n|---|---|---|---|");
    for (key, name) in RATES {
        let rate = |side: &str| figure(&sequential[side][key]);
        println!(
            "| {name} | {:.0} | {:.0} | {:.0} |",
            rate("weir"),
            rate("passthrough"),
            rate("directory")
        );
    }
}

fn memory(memory: &Value) {
    let shown = |value: &Value| number(figure(value));
    println!("\n| memory | |\n|---|---|");
    println!("| `--memory` | {} MiB |", shown(&memory["memory_mib"]));
    println!("| VmHWM of the daemon | {} MiB |", shown(&memory["peak_resident_mib"]));
    println!("| writes | {} |", memory["writes"]["count"]);
}
