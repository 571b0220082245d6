//! The parts of a Markdown document that are made, each between two markers with its name. All else
//! in it is its authors', and stays as it is to the byte.

/// Begins the part of that name.
pub fn begin(name: &str) -> String {
    format!("<!-- {name}:begin -->")
}

/// Ends it.
pub fn end(name: &str) -> String {
    format!("<!-- {name}:end -->")
}

/// `document` with `section` between the markers of `name`; with `heading` and the markers at its
/// end where it has none. Applied again it changes nothing. `Err` says what is wrong with the
/// markers: then nobody can tell what may be replaced.
pub fn replace(document: &str, name: &str, heading: &str, section: &str) -> Result<String, String> {
    let (begin_mark, end_mark) = (begin(name), end(name));
    debug_assert!(!section.contains(&begin_mark) && !section.contains(&end_mark));
    let section = section.trim_matches('\n');
    let begins: Vec<usize> = document.match_indices(&begin_mark).map(|(at, _)| at).collect();
    let ends: Vec<usize> = document.match_indices(&end_mark).map(|(at, _)| at).collect();
    match (&begins[..], &ends[..]) {
        ([], []) => {
            let before = document.trim_end_matches('\n');
            let gap = if before.is_empty() { "" } else { "\n\n" };
            Ok(format!("{before}{gap}{heading}\n\n{begin_mark}\n\n{section}\n\n{end_mark}\n"))
        }
        ([begin], [end]) if begin < end => {
            Ok(format!("{}{begin_mark}\n\n{section}\n\n{}", &document[..*begin], &document[*end..]))
        }
        _ => Err(format!(
            "it has '{begin_mark}' {} times and '{end_mark}' {} times, or in the wrong order",
            begins.len(),
            ends.len()
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::replace as replace_part;

    const BEGIN: &str = "<!-- nbw:begin -->";
    const END: &str = "<!-- nbw:end -->";

    fn replace(document: &str, heading: &str, section: &str) -> Result<String, String> {
        replace_part(document, "nbw", heading, section)
    }

    #[test]
    fn parts_are_told_apart_by_their_names() {
        let one = replace("", "## One", "one").expect("no markers");
        let both = replace_part(&one, "awol", "## Two", "two").expect("no markers");
        assert!(both.starts_with(one.trim_end()), "{both}");
        assert_eq!(replace(&both, "## One", "one").expect("markers"), both);
        let changed = replace(&both, "## One", "new").expect("markers");
        assert!(changed.contains("new") && changed.contains("two") && !changed.contains("one"));
    }

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
