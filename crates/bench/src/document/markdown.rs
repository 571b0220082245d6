//! Tables as Markdown.

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_cannot_break_the_table() {
        let mut table = Table::new(&["a", "b|c"], 1);
        assert_eq!(table.text(), "");
        table.row(vec!["<!-- x\n".into(), "1".into()]);
        assert_eq!(table.text(), "| a | b\\|c |\n| --- | ---: |\n| &lt;!-- x  | 1 |\n");
    }
}
