//! Recorded traces of any content, in all three forms: they are read or refused, and what is read can be analysed.
#![no_main]

use libfuzzer_sys::fuzz_target;
use weir_advise::files::{Before, Survey};
use weir_advise::footprint::{Recorder, analyse};
use weir_advise::plan::{Bounds, Plan, counts};
use weir_advise::trace::{Format, Reader, write};

fuzz_target!(|input: &[u8]| {
    let Some((form, text)) = input.split_first() else { return };
    let format = [Format::Strace, Format::Mobibench, Format::Weir][usize::from(form % 3)];
    let mut reader = Reader::new(format, b"/d");
    for line in text.split(|byte| *byte == b'\n') {
        if reader.line(line).is_err() {
            return;
        }
    }
    let Ok(trace) = reader.finish() else { return };
    let survey = Survey::new(&trace.events, &trace.paths, &|_| Before::Unknown);
    let recorder = Recorder { added_us: 1.0, gap_us: 1.0, waits_from_us: 50.0 };
    // A transfer of exabytes is one of many pages.
    if trace.events.iter().all(|event| event.length < 1 << 24) {
        let found = analyse(&trace.events, &trace.paths, &survey, b"/", recorder);
        assert!(found.overwrites.first_use <= found.overwrites.partial);
        assert!(found.overwrites.partial <= found.overwrites.writes);
        let plan = Plan::new(&trace, &survey, b"/", recorder, Bounds::default(), &|_| true);
        assert_eq!(plan.check(), Ok(()));
        let _ = counts(&trace, &survey, b"/", &|_| true);
    }
    // What is read can be written, and is then read as the same.
    let mut written = Vec::new();
    write(&trace, &mut written).expect("memory takes it");
    let mut again = Reader::new(Format::Weir, b"/");
    for line in written.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
        again.line(line).expect("it was written so");
    }
    let again = again.finish().map(|again| again.events.len());
    assert!(again.is_err() || again == Ok(trace.events.len()));
});
