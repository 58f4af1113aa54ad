//! Messages that another HTTP peer could read differently: chunk extensions, the end of a chunked body, targets, methods.

use std::sync::Arc;

use polyserve_core::Echo;

use super::keep_alive::echo;
use super::live::Live;
use super::status_table::{ONE, entities};
use super::subject::ServerSubject;
use super::wire::{get, put, request};
use crate::client::shown;
use crate::property::Outcome;

/// A POST with this chunked body.
fn with_chunks(body: &[u8]) -> Vec<u8> {
    [&request("POST", "/", "Transfer-Encoding: chunked\r\n"), body].concat()
}

impl ServerSubject {
    /// A chunked body that is not valid is answered with 400, and the connection ends.
    ///
    /// A server that is declared to skip such bytes may answer instead. Then it closes as well, and answers nothing that
    /// follows.
    #[track_caller]
    fn refused_or_last(&self, live: &Live, bytes: &[u8]) {
        if !self.deviations.chunk_extensions_hold_anything {
            return self.refused_for_good(live, bytes, &[400]);
        }
        let mut client = live.client();
        let sent = client.send(&[bytes, &get("/next")].concat());
        let response = client.expect_one_of(&[200, 400]);
        assert!(response.closes(), "{} does not end the connection\n{}", shown(bytes), client.show());
        client.expect_end();
        drop(sent);
    }

    /// A target with `byte` is answered with 400, and the connection ends. A server that is declared to cut off fragments
    /// answers if the byte begins one.
    #[track_caller]
    fn refused_or_cut(&self, live: &Live, byte: &str, target: &str) {
        if byte == "#" && self.deviations.fragments_are_dropped {
            live.ask(&get(target), 200);
        } else {
            self.refused_for_good(live, &get(target), &[400]);
        }
    }
}

/// Chunk extensions that match the grammar of RFC 9112, section 7.1.1, are skipped. All others are answered with 400.
pub fn chunk_extensions_follow_the_grammar(subject: &ServerSubject) -> Outcome {
    let live = echo(subject);
    for extension in [
        ";a",
        ";a=b",
        ";a=b;c;d=e",
        ";a=\"\"",
        ";a=\"b; c\\\" d\"",
        ";a=\"b\tc\"",
        "; a",
        " ;a",
        "\t;a",
        ";a = b",
        ";a=b ;c",
        ";!#$%&'*+-.^_`|~0aA=1",
    ] {
        let bytes = with_chunks(format!("5{extension}\r\nhello\r\n0{extension}\r\n\r\n").as_bytes());
        let response = live.ask(&bytes, 200);
        assert_eq!(response.text(), "hello", "{extension:?}");
    }
    for extension in [
        ";",
        ";;a",
        ";=b",
        ";a=",
        ";a=;b",
        ";a[=b",
        ";bad[=x",
        ";a=[",
        ";a=\"b",
        ";a=\"b\\\"",
        ";a=\"b\"c",
        ";a b",
        ";a=b c",
        ";a=b=c",
        ";a,b",
        ";\u{e9}",
        " ",
        "\t",
        " a",
        ";a=b ",
    ] {
        subject.refused_or_last(&live, &with_chunks(format!("5{extension}\r\nhello\r\n0\r\n\r\n").as_bytes()));
        subject.refused_or_last(&live, &with_chunks(format!("5\r\nhello\r\n0{extension}\r\n\r\n").as_bytes()));
    }
    Outcome::Held
}

/// Every server checks the end of a chunked body strictly. It reads no later bytes as a trailer, and no bytes of a trailer
/// as a request.
pub fn the_end_of_a_chunked_body_is_strict(subject: &ServerSubject) -> Outcome {
    let live = echo(subject);
    for body in [
        &b"0\r\n\n"[..],
        b"0\r\na: b\n\n",
        b"0\r\na: b\r\n\n",
        b"0\r\na: b\n\r\n",
        b"0\n\r\n",
        b"0\n\n",
        b"5\r\nhello\r\n0\r\n\n",
        b"5\r\nhello\r\n0\r\na: b\n\n",
        b"5\r\nhello\n0\r\n\r\n",
        b"5 \r\nhello\r\n0\r\n\r\n",
        b"5\t\r\nhello\r\n0\r\n\r\n",
        b"5\r\nhello\r\n0 \r\n\r\n",
        b"5;a\x01b\r\nhello\r\n0\r\n\r\n",
        b"5;a\0\r\nhello\r\n0\r\n\r\n",
        b"5;a\x7f\r\nhello\r\n0\r\n\r\n",
        b"5;a\x0b\r\nhello\r\n0\r\n\r\n",
        b"5;a=\"\x01\"\r\nhello\r\n0\r\n\r\n",
        b"5\r\nhello\r\n0;a\x01\r\n\r\n",
        b"5\r\nhello\r\n0;a\nb\r\n\r\n",
    ] {
        subject.refused_or_last(&live, &with_chunks(body));
    }
    Outcome::Held
}

/// A path with a byte that no URI may contain is answered with 400, and the connection ends. So is a query with a byte that
/// browsers encode.
pub fn a_target_holds_only_uri_bytes(subject: &ServerSubject) -> Outcome {
    let live = echo(subject);
    let everywhere = ["\"", "<", ">", "#", "\u{7f}", "\u{1}"];
    let in_path = ["\\", "^", "`", "{", "|", "}", "\u{e9}", "%", "%g1", "%1", "%1g", "%%41", "%zz"];
    for byte in everywhere.iter().chain(&in_path) {
        for target in [format!("/a{byte}"), format!("/{byte}/b"), format!("/{byte}?b"), format!("http://a/{byte}")] {
            subject.refused_or_cut(&live, byte, &target);
        }
    }
    for byte in everywhere {
        for target in [format!("/a?b={byte}"), format!("/a?{byte}={{}}"), format!("http://a/?{byte}")] {
            subject.refused_or_cut(&live, byte, &target);
        }
    }
    for target in ["/%41%c3%A9", "/a?b=%20&c", "/-._~!$&'()*+,;=:@/?:@", "/a//b/./.."] {
        live.ask(&get(target), 200);
    }
    Outcome::Held
}

/// A query may have every byte that browsers send as it is: `{ } | ^` backslash, backtick, a `%` without digits, and text
/// that is not ASCII. The entity service ignores it.
pub fn a_query_holds_what_browsers_send(subject: &ServerSubject) -> Outcome {
    let live = entities(subject);
    live.ask(&put("/", ONE), 201);
    for query in ["a={b}", "|", "^", "`", "\\", "%", "%4", "%zz", "\u{e9}=\u{2603}", "?/:@[]'", "{\"a\":1}"] {
        let query = query.replace('"', "");
        for target in [format!("/1?{query}"), format!("http://a/1?{query}")] {
            assert_eq!(live.ask(&get(&target), 200).text(), ONE, "{target}");
        }
    }
    Outcome::Held
}

/// A method longer than the largest head is answered with 501, like any unknown method. The server does not wait for its end.
pub fn a_long_method_is_not_implemented(subject: &ServerSubject) -> Outcome {
    let live = subject.live(Arc::new(Echo), |config| config.max_head = 1024);
    let statuses: &[u16] = if subject.deviations.unknown_method_is_400 { &[400, 501] } else { &[501] };
    for length in [1_100, 2_000, 50_000] {
        let method = "A".repeat(length);
        subject.refused_for_good(&live, &request(&method, "/", ""), statuses);
        subject.refused_unfinished(&live, method.as_bytes(), statuses);
    }
    Outcome::Held
}
