//! Tables and paragraphs as Markdown.

/// A table under way. The first column is text, the others are figures.
pub struct Table {
    columns: Vec<String>,
    rows: Vec<Vec<String>>,
    text_columns: usize,
}

impl Table {
    /// With these headings, the first `text_columns` of them over text.
    pub fn new(columns: &[&str], text_columns: usize) -> Table {
        let columns = columns.iter().map(|name| (*name).to_owned()).collect();
        Table { columns, rows: Vec::new(), text_columns }
    }

    /// Adds a row; as many cells as there are headings.
    pub fn row(&mut self, cells: Vec<String>) {
        debug_assert_eq!(cells.len(), self.columns.len());
        self.rows.push(cells);
    }

    /// Whether it has no row.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// The text; nothing if there is no row.
    pub fn text(&self) -> String {
        if self.is_empty() {
            return String::new();
        }
        let rule = (0..self.columns.len())
            .map(|at| if at < self.text_columns { "---".to_owned() } else { "---:".to_owned() })
            .collect::<Vec<_>>();
        let mut text = line(&self.columns.iter().map(|cell| escape(cell)).collect::<Vec<_>>());
        text += &line(&rule);
        for row in &self.rows {
            text += &line(&row.iter().map(|cell| escape(cell)).collect::<Vec<_>>());
        }
        text
    }
}

fn line(cells: &[String]) -> String {
    format!("| {} |\n", cells.join(" | "))
}

/// A cell's text: in one line, and without what would end the cell or begin HTML.
pub fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '|' => escaped.push_str("\\|"),
            '<' => escaped.push_str("&lt;"),
            other if other.is_control() => escaped.push(' '),
            other => escaped.push(other),
        }
    }
    escaped
}

/// Letters in a line of prose.
const WIDTH: usize = 100;

/// `text` with its paragraphs in lines of at most [`WIDTH`] letters where words allow. Tables,
/// headings, code and HTML, which end with their lines, stay as they are.
pub fn wrapped(text: &str) -> String {
    text.split('\n').map(wrapped_line).collect::<Vec<_>>().join("\n")
}

fn wrapped_line(line: &str) -> String {
    if line.starts_with(['|', '#', '<', ' ', '!']) {
        return line.to_owned();
    }
    let mut lines: Vec<String> = Vec::new();
    let mut letters = 0;
    for word in line.split(' ') {
        let wide = word.chars().count();
        match lines.last_mut() {
            Some(last) if letters + 1 + wide <= WIDTH || begins_a_block(word) => {
                last.push(' ');
                last.push_str(word);
                letters += 1 + wide;
            }
            _ => {
                lines.push(word.to_owned());
                letters = wide;
            }
        }
    }
    lines.join("\n")
}

/// Whether a line that begins with `word` is not prose: a list, a heading, a table, a quotation.
fn begins_a_block(word: &str) -> bool {
    let number = word.strip_suffix(['.', ')']).unwrap_or_default();
    matches!(word, "-" | "+" | "*")
        || word.starts_with(['#', '|', '>', '='])
        || (!number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prose_is_wrapped_and_nothing_else() {
        let prose = "word ".repeat(60);
        let text = wrapped(&format!("# {prose}\n\n{}\n| {prose} |", prose.trim_end()));
        let lines: Vec<&str> = text.split('\n').collect();
        assert_eq!(lines.len(), 1 + 1 + 3 + 1);
        assert!(lines[2..5].iter().all(|line| line.len() <= WIDTH), "{text}");
        assert_eq!(lines[2..5].join(" "), prose.trim_end());
        assert_eq!(wrapped(&text), text);
        let list = format!("{} 12. x", "a".repeat(WIDTH));
        assert_eq!(wrapped(&list), format!("{} 12.\nx", "a".repeat(WIDTH)));
    }

    #[test]
    fn cells_cannot_break_the_table() {
        let mut table = Table::new(&["a", "b|c"], 1);
        assert_eq!(table.text(), "");
        table.row(vec!["<!-- x\n".into(), "1".into()]);
        assert_eq!(table.text(), "| a | b\\|c |\n| --- | ---: |\n| &lt;!-- x  | 1 |\n");
    }
}
