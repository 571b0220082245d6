//! The tables of docs/RESULTS.md as bars, and the figures of the documents that it names.
//!
//! Owns the form: a row has three cells, what was measured, the figure or figures, and links to documents. It knows nothing of the
//! image, and reads no file.

/// A row whose figures are bold.
#[derive(Debug)]
pub struct Bar {
    /// What was measured.
    pub label: String,
    /// One or more, as the row has them.
    pub figures: Vec<Figure>,
    /// The documents that it names, relative to the table's.
    pub pages: Vec<String>,
}

/// A ratio as it is printed.
#[derive(Clone, Debug)]
pub struct Figure {
    /// Without the x.
    pub text: String,
    /// Its value.
    pub value: f64,
}

impl Figure {
    /// Whether `value`, rounded, is this.
    pub fn is(&self, value: f64) -> bool {
        let decimals = self.text.split_once('.').map_or(0, |(_, decimals)| decimals.len());
        format!("{value:.decimals$}") == self.text
    }
}

impl Bar {
    /// The least and the most of its figures.
    pub fn span(&self) -> (f64, f64) {
        let values = self.figures.iter().map(|figure| figure.value);
        values.fold((f64::INFINITY, 0.0), |(least, most), one| (one.min(least), one.max(most)))
    }

    /// Its figures in words.
    pub fn shown(&self) -> String {
        let (least, most) = self.span();
        let text = |value: f64| self.figures.iter().find(|figure| figure.value == value);
        let text = |value| text(value).map_or("", |figure| figure.text.as_str());
        if least == most {
            return format!("{}x", text(least));
        }
        format!("{}x to {}x", text(least), text(most))
    }
}

/// The bars of a document, in its order.
pub fn bars(document: &str) -> Result<Vec<Bar>, String> {
    let mut bars = Vec::new();
    for row in rows(document) {
        let [label, figures, pages] = row[..] else { continue };
        let Some(bold) = figures.strip_prefix("**").and_then(|text| text.strip_suffix("**")) else {
            continue;
        };
        let label = label.replace('`', "");
        let bar = Bar { figures: ratios(bold), pages: links(pages), label };
        if bar.figures.is_empty() {
            return Err(format!("'{}' has no figure such as 2.5x", bar.label));
        }
        bars.push(bar);
    }
    if bars.is_empty() {
        return Err("no row has bold figures".into());
    }
    Ok(bars)
}

/// All ratios of a document: those with an x, and bare decimals in tables whose heads have it.
pub fn figures_of(document: &str) -> Vec<f64> {
    let with_sign = ratios(document).into_iter().map(|figure| figure.value);
    with_sign.chain(rows(document).flatten().filter_map(bare)).collect()
}

/// A cell that is a decimal, or one and its spread in parentheses.
fn bare(cell: &str) -> Option<f64> {
    let (figure, spread) = cell.split_once(' ').unwrap_or((cell, "("));
    (figure.contains('.') && spread.starts_with('(')).then(|| figure.parse().ok())?
}

/// The cells of each row of each table.
fn rows(document: &str) -> impl Iterator<Item = Vec<&str>> {
    let lines =
        document.lines().filter_map(|line| line.trim().strip_prefix('|')?.strip_suffix('|'));
    lines.map(|line| line.split('|').map(str::trim).collect())
}

/// Numbers before an x, with or without a space between.
fn ratios(text: &str) -> Vec<Figure> {
    let mut found = Vec::new();
    for (at, _) in text.match_indices('x') {
        let before = text[..at].trim_end_matches([' ', '*']);
        let follows_word = text[at + 1..].starts_with(char::is_alphanumeric);
        let digits = before.trim_end_matches(|one: char| one.is_ascii_digit() || one == '.').len();
        let number = &before[digits..];
        if follows_word || number.is_empty() {
            continue;
        }
        if let Ok(value) = number.parse::<f64>()
            && value > 0.0
        {
            found.push(Figure { text: number.to_owned(), value });
        }
    }
    found
}

/// The targets of links.
fn links(text: &str) -> Vec<String> {
    let targets = text.split("](").skip(1).filter_map(|rest| rest.split_once(')'));
    targets.map(|(target, _)| target.to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bold_rows_are_bars() {
        let text = "| | figure | details |\n|---|---:|---|\n\
                    | small writes, `hdd` | **19x to 124x** | [nbw](results/nbw.md), [engine](results/engine.md) |\n\
                    | others | 63x | [redo log](results/redo-log.md) |\n\
                    | four | **17x, 21x; 13x** | [names](results/names.md) |\n";
        let bars = bars(text).expect("bars");
        assert_eq!(bars.len(), 2);
        assert_eq!(bars[0].label, "small writes, hdd");
        assert_eq!(bars[0].pages, ["results/nbw.md", "results/engine.md"]);
        assert_eq!((bars[0].span(), bars[0].shown()), ((19.0, 124.0), "19x to 124x".into()));
        assert_eq!(bars[1].shown(), "13x to 21x");
        assert!(super::bars("| a | 2x | [b](b.md) |").is_err());
    }

    #[test]
    fn figures_are_found_and_rounded() {
        let there = figures_of(
            "| a | 1.5 | **0.313 x** | 12 | 42.4 (34.1–50.4) | 7.5 ms |\nand 41.6x, 3 extra, 0xff\n",
        );
        assert_eq!(there, [0.313, 41.6, 1.5, 42.4]);
        let figure = |text: &str| Figure { text: text.into(), value: 0.0 };
        assert!(figure("42").is(41.6) && figure("0.31").is(0.313) && !figure("41").is(41.6));
    }
}
