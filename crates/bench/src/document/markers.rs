//! The part of a Markdown document that is made, between two markers. All else in it is its
//! authors', and stays as it is to the byte.

/// Begins the part.
pub const BEGIN: &str = "<!-- nbw:begin -->";
/// Ends it.
pub const END: &str = "<!-- nbw:end -->";

/// `document` with `section` between its markers; with `heading` and the markers at its end where
/// it has none. Applied again it changes nothing. `Err` says what is wrong with the markers: then
/// nobody can tell what may be replaced.
pub fn replace(document: &str, heading: &str, section: &str) -> Result<String, String> {
    debug_assert!(!section.contains(BEGIN) && !section.contains(END));
    let section = section.trim_matches('\n');
    let begins: Vec<usize> = document.match_indices(BEGIN).map(|(at, _)| at).collect();
    let ends: Vec<usize> = document.match_indices(END).map(|(at, _)| at).collect();
    match (&begins[..], &ends[..]) {
        ([], []) => {
            let before = document.trim_end_matches('\n');
            let gap = if before.is_empty() { "" } else { "\n\n" };
            Ok(format!("{before}{gap}{heading}\n\n{BEGIN}\n\n{section}\n\n{END}\n"))
        }
        ([begin], [end]) if begin < end => {
            Ok(format!("{}{BEGIN}\n\n{section}\n\n{}", &document[..*begin], &document[*end..]))
        }
        _ => Err(format!(
            "it has '{BEGIN}' {} times and '{END}' {} times, or in the wrong order",
            begins.len(),
            ends.len()
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_document_without_markers_gets_them_at_its_end() {
        let once = replace("# Title\n\ntext\n", "## New", "\nbody\n").expect("no markers");
        assert_eq!(once, format!("# Title\n\ntext\n\n## New\n\n{BEGIN}\n\nbody\n\n{END}\n"));
        assert_eq!(replace(&once, "## New", "body").expect("markers"), once);
        let empty = replace("", "## New", "body").expect("no markers");
        assert_eq!(empty, format!("## New\n\n{BEGIN}\n\nbody\n\n{END}\n"));
    }

    #[test]
    fn what_is_outside_stays_to_the_byte() {
        let document = format!("a\r\n {BEGIN} old\n\nold {END}\n\n\nz");
        let made = replace(&document, "## New", "new").expect("markers");
        assert_eq!(made, format!("a\r\n {BEGIN}\n\nnew\n\n{END}\n\n\nz"));
        assert_eq!(replace(&made, "## New", "new").expect("markers"), made);
    }

    #[test]
    fn markers_that_do_not_pair_are_refused() {
        for text in [BEGIN.to_owned(), END.to_owned(), format!("{END}{BEGIN}"), [BEGIN; 2].join("")]
        {
            assert!(replace(&text, "h", "s").is_err(), "{text}");
        }
    }
}
