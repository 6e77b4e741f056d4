use proptest::prelude::*;

use super::*;

struct Fixed;

impl Environment for Fixed {
    fn variable(&self, name: &str) -> Option<String> {
        match name {
            "QUERY_STRING" => Some("a=<1>".into()),
            "DOCUMENT_NAME" => Some("page.html".into()),
            _ => None,
        }
    }

    fn names(&self) -> Vec<String> {
        ["DATE_GMT", "DOCUMENT_NAME", "LAST_MODIFIED", "QUERY_STRING"].map(String::from).to_vec()
    }

    fn now(&self) -> u64 {
        1_000_000_000
    }

    fn last_modified(&self) -> Option<u64> {
        Some(0)
    }
}

/// Returns the text of a page; includes stand in brackets.
fn page<'t>(chunks: impl IntoIterator<Item = &'t [u8]>) -> String {
    let (mut ssi, mut parts) = (Ssi::new(Box::new(Fixed)), Vec::new());
    for chunk in chunks {
        ssi.push(Bytes::copy_from_slice(chunk), &mut parts);
    }
    ssi.end(&mut parts);
    let mut text = String::new();
    for part in parts {
        match part {
            Part::Bytes(bytes) => text.push_str(&String::from_utf8_lossy(&bytes)),
            Part::Include(include) => text.push_str(&match include.target {
                Target::Virtual(path) => format!("[{path}{}]", include.what.text(2048, 0)),
                Target::File(path) => format!("[./{path}{}]", include.what.text(2048, 0)),
            }),
        }
    }
    text
}

const ERROR: &str = "[an error occurred while processing the directive]";

const PAGES: [(&str, &str); 23] = [
    ("text", "text"),
    ("<!-- a comment --><!--x-->", "<!-- a comment --><!--x-->"),
    ("a<!--#include virtual=\"/b?c\" -->d", "a[/b?c]d"),
    ("<!--# include file='e.txt' wait=\"yes\" -->", "[./e.txt]"),
    (
        "<!--#set var=\"d\" value=\"x-$QUERY_STRING\"--><!--#include virtual=\"/${d}/\"-->",
        "[/x-a=<1>/]",
    ),
    ("<!--#echo var=\"QUERY_STRING\"-->", "a=&lt;1&gt;"),
    ("<!--#echo var='QUERY_STRING' encoding='none'-->", "a=<1>"),
    ("<!--#echo var='QUERY_STRING' encoding=\"url\" -->", "a%3D%3C1%3E"),
    ("<!--#echo var=\"none\" --> <!--#echo var=\"none\" default=\"-\" -->", "(none) -"),
    ("<!--#echo var=\"DATE_GMT\" -->", "Sunday, 09-Sep-2001 01:46:40 GMT"),
    ("<!--#config timefmt=\"%Y\"--><!--#echo var=\"LAST_MODIFIED\" -->", "1970"),
    (
        "<!--#fsize file=\"a\" --> <!--#config sizefmt=\"bytes\" --><!--#fsize virtual=\"/a\" -->",
        "[./a2.0K] [/a2048]",
    ),
    ("<!--#config timefmt='%F' --><!--#flastmod file=\"a\" -->", "[./a1970-01-01]"),
    (
        "<!--#if expr=\"$DOCUMENT_NAME = /(.*)\\.html/\" -->y<!--#echo var=\"1\" --><!--#else -->n<!--#endif -->",
        "ypage",
    ),
    (
        "<!--#if expr='$x' -->a<!--#elif expr='$DOCUMENT_NAME' -->b<!--#elif expr='$DOCUMENT_NAME' -->c<!--#else -->d<!--#endif -->e",
        "be",
    ),
    (
        "<!--#if expr='$x' --><!--#if expr='1' -->a<!--#else -->b<!--#endif --><!--#include virtual='/'-->c<!--#endif -->d",
        "d",
    ),
    ("<!--#exec cmd=\"id\" -->", ERROR),
    (
        "<!--#config errmsg=\"E\" --><!--#echo -->|<!--#endif -->|<!--#if expr='(' -->x<!--#endif -->",
        "E|E|E",
    ),
    ("<!--#config errmsg='E' --><!--#printenv x-->", "E"),
    (
        "<!--#config errmsg='E' --><!--#if expr='$x' --><!--#elif expr='(' --><!--#else -->y<!--#endif -->",
        "Ey",
    ),
    ("<!--#echo var=\"x", "[an error occurred while processing the directive]echo var=\"x"),
    ("<!--#include virtual=\"a-->b\" -->", "[a-->b]"),
    ("<<!--<!--#echo var='DOCUMENT_NAME'--><!", "<<!--page.html<!"),
];

#[test]
fn pages_are_the_same_wherever_they_are_cut() {
    for (text, expected) in PAGES {
        assert_eq!(page([text.as_bytes()]), expected, "{text}");
        assert_eq!(page(text.as_bytes().chunks(1)), expected, "{text}");
        for at in 0..=text.len() {
            let (start, end) = text.as_bytes().split_at(at);
            assert_eq!(page([start, end]), expected, "{text} {at}");
        }
    }
}

#[test]
fn printenv_has_all_variables_encoded() {
    let text =
        page([&b"<!--#config timefmt='%Y' --><!--#set var='z' value='<' --><!--#printenv -->"[..]]);
    assert_eq!(
        text,
        "DATE_GMT=2001\nDOCUMENT_NAME=page.html\nLAST_MODIFIED=1970\nQUERY_STRING=a=&lt;1&gt;\nz=&lt;\n"
    );
}

#[test]
fn what_a_page_can_use_is_bounded() {
    let long =
        format!("<!--#config errmsg='E' --><!--#echo var=\"{}", "x".repeat(MAX_DIRECTIVE + 10));
    let (mut ssi, mut parts) = (Ssi::new(Box::new(Fixed)), Vec::new());
    for chunk in long.as_bytes().chunks(1000) {
        ssi.push(Bytes::copy_from_slice(chunk), &mut parts);
        assert!(ssi.held.len() < MAX_DIRECTIVE + 2000);
    }
    assert_eq!(parts[0], Part::Bytes(Bytes::from("E")));
    let deep = "<!--#if expr='1' -->".repeat(MAX_BLOCKS + 1);
    assert_eq!(page([deep.as_bytes()]), ERROR);
    // Each doubles the variable.
    let double = "<!--#set var='a' value='$a$a' -->".repeat(40);
    let text = format!("<!--#set var='a' value='xx' -->{double}<!--#echo var='a' -->");
    assert!(page([text.as_bytes()]).len() < 40 * ERROR.len() + 2 * MAX_VARIABLES);
}

proptest! {
    #[test]
    fn any_page_is_the_same_wherever_it_is_cut(
        words in proptest::collection::vec(
            prop_oneof![
                Just("<!--#"), Just("-->"), Just("if expr=\"$a = /x/\" "), Just("endif"), Just("else "),
                Just("set var=\"a\" value=\"x\""), Just("echo var='a'"), Just("\""), Just("<"), Just("\\"),
                Just(" "), Just("text"),
            ],
            0..20,
        ),
        at in 0usize..200,
    ) {
        let text = words.concat();
        let whole = page([text.as_bytes()]);
        let (start, end) = text.as_bytes().split_at(at.min(text.len()));
        prop_assert_eq!(page([start, end]), whole.clone());
        prop_assert_eq!(page(text.as_bytes().chunks(1)), whole);
    }
}
