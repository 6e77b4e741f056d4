//! Chunked bodies: sizes, extensions and trailer fields.

use dunlin_http::http1::{BodyEvent, Http1Connection};
use dunlin_http::{Head, Limits};

use super::support::{read, read_in_pieces, served};

#[test]
fn chunks_are_strict() {
    let head = "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n";
    for body in [
        "+1\r\na\r\n0\r\n\r\n",
        "-1\r\na\r\n0\r\n\r\n",
        "0x1\r\na\r\n0\r\n\r\n",
        " 1\r\na\r\n0\r\n\r\n",
        "1 \r\na\r\n0\r\n\r\n",
        "\r\na\r\n0\r\n\r\n",
        ";x\r\na\r\n0\r\n\r\n",
        "g\r\na\r\n0\r\n\r\n",
        "1\na\r\n0\r\n\r\n",
        "1\r\na\n0\r\n\r\n",
        "1\r\nab\r\n0\r\n\r\n",
        "1;a\nb\r\na\r\n0\r\n\r\n",
        "1;a\rb\r\na\r\n0\r\n\r\n",
        "10000000000000000\r\na",
        "0\r\nX : y\r\n\r\n",
        "0\r\n X: y\r\n\r\n",
        "0\r\nX\r\n\r\n",
        "0\r\nX: y\n\r\n",
        "0\r\nX: y\r\n z\r\n\r\n",
        "0\r\n: y\r\n\r\n",
        "0\r\nX\u{e4}: y\r\n\r\n",
        "0\r\nX: a\0\r\n\r\n",
        "0\r\nX: a\rb\r\n\r\n",
        "0\r\n\n",
        "0\r\n\rX\r\n\r\n",
        "0\r\nContent-Length: 3\r\n\r\n",
        "0\r\nTransfer-Encoding: chunked\r\n\r\n",
        "0\r\nHost: y\r\n\r\n",
    ] {
        let message = format!("{head}{body}");
        let read = read(message.as_bytes());
        assert_eq!(read.rejected, Some(400), "{body:?}");
        assert_eq!(read.requests.len(), 1, "{body:?}");
    }
    for endless in ["1;", "1;a=", "1;a=\"", "1 "] {
        let filler = if endless == "1 " { " " } else { "x" };
        let endless = format!("{head}{endless}{}", filler.repeat(20_000));
        let read = read_in_pieces(endless.as_bytes(), &[], &Limits::default());
        assert_eq!(read.rejected, Some(431));
    }
}

#[test]
fn chunk_extensions_keep_to_their_grammar() {
    let head = "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n";
    for extension in [
        ";a",
        ";a;b",
        ";a=b",
        ";a=b;c=\"d\"",
        ";a=\"\"",
        ";a=\"b c;d=\u{e4}\t\"",
        ";a=\"\\\"\\\\\\x\"",
        " ;a",
        "\t ; \ta",
        ";a =b",
        ";a= b",
        ";a \t= \"b\" ;c ; d",
        ";!#$%&'*+-.^_`|~0",
        ";a=0",
        ";a=\";\"",
    ] {
        let message = format!("{head}1{extension}\r\na\r\n0{extension}\r\n\r\n");
        served(message.as_bytes(), &[("POST", "/", "a")]);
    }
    for extension in [
        ";",
        ";;",
        "; ",
        ";=",
        ";a=",
        ";a= ",
        ";a;",
        ";a; ",
        ";a=b;",
        " ",
        "\t",
        " a",
        "a=b",
        "=b",
        ";=b",
        ";a==b",
        ";a=b=c",
        ";a=\"b",
        ";a=\"b\\\"",
        ";a=\"b\"c",
        ";a=b\"c",
        ";a=b\"c\"",
        ";a\"b\"",
        ";\"a\"",
        ";\"a\"=b",
        ";[]",
        ";a[",
        ";a=[",
        ";bad[=x",
        ";a b",
        ";a=b c",
        ";a ",
        ";a=b ",
        ";a=\"b\" ",
        ";a,b",
        ";a=(b)",
        ";a/b",
        ";a=b/c",
        ";a:b",
        ";a@b",
        ";\u{e4}",
        ";a=\u{e4}",
        ";a=\"\0\"",
        ";a=\"\x7f\"",
        ";a=\"\\\x01\"",
        ";a=\"\n\"",
        ";a=\"\r\"",
        ";\0",
        ";a\x0b",
        ";a\rb",
        ";a\nb",
    ] {
        for chunk in ["1{}\r\na\r\n0\r\n\r\n", "0{}\r\n\r\n"] {
            let body = chunk.replace("{}", extension);
            let read = read(format!("{head}{body}").as_bytes());
            assert_eq!(read.rejected, Some(400), "{body:?}");
            assert_eq!(read.requests.len(), 1, "{body:?}");
        }
    }
    let endless = format!("{head}1;{}", "x".repeat(20_000));
    let read = read_in_pieces(endless.as_bytes(), &[], &Limits::default());
    assert_eq!(read.rejected, Some(431));
}

#[test]
fn trailer_fields_are_kept_until_they_are_taken() {
    let mut connection = Http1Connection::default();
    let mut head = Head::default();
    let request = b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
    connection.head(request, &Limits::default(), &mut head).unwrap();
    let body = b"1\r\nx\r\n0\r\nDigest:  y \r\nB: \r\n\r\nGET";
    let mut at = 0;
    loop {
        let (used, event) = connection.body(&body[at..]).unwrap();
        at += used;
        if event == BodyEvent::End {
            break;
        }
    }
    assert_eq!(&body[at..], b"GET");
    assert_eq!(connection.take_trailers().as_bytes(), b"Digest: y\r\nB: \r\n");
    assert!(connection.take_trailers().is_empty());
}
