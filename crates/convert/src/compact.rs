//! The short form of a configuration: routes in one line each, for files that have one line for each location.

/// Returns the text with at most `most` lines, if a shorter form has that few; otherwise the shortest form.
pub(crate) fn compacted(text: String, most: usize) -> String {
    let is_short = |text: &String| text.trim_end().lines().count() <= most;
    if is_short(&text) {
        return text;
    }
    let original = table(&text);
    let shorter = shortened(&text, &is_short);
    // A form with another content is not used, however short.
    if original.is_some() && table(&shorter) == original { shorter } else { text }
}

fn table(text: &str) -> Option<toml::Table> {
    text.parse().ok()
}

/// Returns the first form that is short enough, or the last one.
fn shortened(text: &str, is_short: &impl Fn(&String) -> bool) -> String {
    let dense = text.replace("\n\n[[site.route]]", "\n[[site.route]]");
    if is_short(&dense) {
        return dense;
    }
    let lists = with_lists(text);
    if is_short(&lists) {
        return lists;
    }
    let whole: String =
        lists.lines().filter(|line| !line.is_empty()).flat_map(|line| [line, "\n"]).collect();
    if is_short(&whole) {
        return whole;
    }
    let blocks = blocks(&whole);
    let forms = [Sites::Tables, Sites::Lines, Sites::One];
    let mut forms = forms.into_iter().map(|sites| inlined(&blocks, sites));
    forms.find(is_short).unwrap_or_else(|| inlined(&blocks, Sites::One))
}

/// How the sites are written where tables of the server are dotted keys.
#[derive(Clone, Copy, PartialEq)]
enum Sites {
    /// As tables.
    Tables,
    /// As a list with a line for each.
    Lines,
    /// As a list in one line.
    One,
}

/// A table with its keys, each in one line.
struct Block {
    /// The lines of comments before it.
    comments: Vec<String>,
    /// The header; empty for what is before the first one.
    header: String,
    keys: Vec<String>,
}

fn blocks(text: &str) -> Vec<Block> {
    let new =
        |header: &str| Block { comments: Vec::new(), header: header.to_owned(), keys: Vec::new() };
    let mut all = vec![new("")];
    let mut comments = Vec::new();
    for line in text.lines() {
        let last = all.last_mut().map(|block| &mut block.keys);
        match (line.strip_prefix("    "), line) {
            (_, line) if line.starts_with('#') => comments.push(line.to_owned()),
            (_, line) if line.starts_with('[') => {
                let header = line.split("  # ").next().unwrap_or(line);
                all.push(Block { comments: std::mem::take(&mut comments), ..new(header) });
            }
            // Comments of the routes would end the line.
            (Some(item), _) => {
                let item = item
                    .rsplit_once("},  # ")
                    .map_or(item.to_owned(), |(item, _)| format!("{item}}},"));
                last.and_then(|keys| keys.last_mut()).into_iter().for_each(|key| add(key, &item));
            }
            (None, "]") => last.and_then(|keys| keys.last_mut()).into_iter().for_each(end),
            (None, line) => last.into_iter().for_each(|keys| keys.push(line.to_owned())),
        }
    }
    all
}

/// Returns the text with the tables of the server as dotted keys.
fn inlined(blocks: &[Block], sites: Sites) -> String {
    let table = |block: &Block| format!("{{ {} }}", block.keys.join(", "));
    let of = |header: &'static str| blocks.iter().filter(move |block| block.header == header);
    let mut lines: Vec<String> = Vec::new();
    let mut titles = blocks.iter().flat_map(|block| &block.comments);
    lines.extend(titles.next().filter(|title| title.starts_with("# Converted")).cloned());
    for block in blocks.iter().filter(|block| !block.header.starts_with("[[")) {
        let name = block.header.trim_matches(|c| matches!(c, '[' | ']'));
        let dot = if name.is_empty() { "" } else { "." };
        lines.extend(block.keys.iter().map(|key| format!("{name}{dot}{key}")));
    }
    let listens: Vec<String> = of("[[listen]]").map(table).collect();
    if !listens.is_empty() {
        lines.push(format!("listen = [{}]", listens.join(", ")));
    }
    let others = |block: &&Block| !matches!(&*block.header, "[[listen]]" | "[[site]]");
    let is_known =
        blocks.iter().filter(|block| block.header.starts_with("[[")).all(|block| !others(&block));
    let all: Vec<String> = of("[[site]]").map(table).collect();
    match sites {
        Sites::Lines if is_known => {
            lines.push("site = [".to_owned());
            lines.extend(all.iter().map(|site| format!("    {site},")));
            lines.push("]".to_owned());
        }
        Sites::One if is_known => lines.push(format!("site = [{}]", all.join(", "))),
        _ => {
            for block in blocks
                .iter()
                .filter(|block| block.header.starts_with("[[") && block.header != "[[listen]]")
            {
                let own = block.comments.iter().filter(|line| !line.starts_with("# Converted"));
                lines.extend(own.cloned());
                lines.push(block.header.clone());
                lines.extend(block.keys.iter().cloned());
            }
        }
    }
    lines.join("\n") + "\n"
}

/// Returns the text with a list of routes in each site.
fn with_lists(text: &str) -> String {
    let mut result = String::new();
    // One empty line separates tables.
    let mut was_empty = false;
    let mut lines = text
        .lines()
        .filter(|line| !(std::mem::replace(&mut was_empty, line.is_empty()) && line.is_empty()))
        .peekable();
    let mut is_in_list = false;
    while let Some(line) = lines.next() {
        let Some(comment) = line.strip_prefix("[[site.route]]  # ") else {
            // The empty line before a further route is left out.
            let is_before_route = line.is_empty()
                && lines.peek().is_some_and(|next| next.starts_with("[[site.route]]"));
            if !is_before_route {
                if is_in_list {
                    result.push_str("]\n");
                    is_in_list = false;
                }
                result.push_str(line);
                result.push('\n');
            }
            continue;
        };
        if !is_in_list {
            result.push_str("route = [\n");
            is_in_list = true;
        }
        let mut keys: Vec<String> = Vec::new();
        while let Some(line) = lines.next_if(|line| !line.is_empty() && !line.starts_with('[')) {
            match (line.strip_prefix("    "), line) {
                (Some(item), _) => keys.last_mut().into_iter().for_each(|key| add(key, item)),
                (None, "]") => keys.last_mut().into_iter().for_each(end),
                (None, line) => keys.push(line.to_owned()),
            }
        }
        result.push_str(&format!("    {{ {} }},  # {comment}\n", keys.join(", ")));
    }
    if is_in_list {
        result.push_str("]\n");
    }
    result
}

/// Appends an item to a list that has been in several lines.
fn add(key: &mut String, item: &str) {
    if !key.ends_with('[') {
        key.push(' ');
    }
    key.push_str(item);
}

/// Ends such a list.
fn end(key: &mut String) {
    if key.ends_with(',') {
        key.pop();
    }
    key.push(']');
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: &str = "[[site]]\nroot = \"/srv\"\n\n[[site.route]]  # a:1: location /a\npath = \"/a\"\n\
        allow = [\n    \"10.0.0.0/8\",\n    \"::1\",\n]\n\n[[site.route]]  # a:2: location /b\npath = \"/b\"\n\n\
        # a:3: server\n[[site]]\nroot = \"/b\"\n";

    #[test]
    fn a_text_is_as_short_as_it_has_to_be() {
        assert_eq!(compacted(LONG.to_owned(), 99), LONG);
        let dense = compacted(LONG.to_owned(), 14);
        assert!(dense.contains("]\n[[site.route]]"), "{dense}");
        for most in [8, 7, 3, 1] {
            let text = compacted(LONG.to_owned(), most);
            let site = "{ root = \"/srv\", route = [{ path = \"/a\", allow = [\"10.0.0.0/8\", \"::1\"] }, { path = \"/b\" }] }";
            assert!(most > 3 || text.contains(site), "{text}");
            assert!(text.lines().count() <= most.max(1), "{most}: {text}");
        }
        assert_eq!(
            compacted(LONG.to_owned(), 10),
            "[[site]]\nroot = \"/srv\"\nroute = [\n    { path = \"/a\", allow = [\"10.0.0.0/8\", \"::1\"] },  \
             # a:1: location /a\n    { path = \"/b\" },  # a:2: location /b\n]\n\n# a:3: server\n[[site]]\nroot = \"/b\"\n"
        );
    }
}
