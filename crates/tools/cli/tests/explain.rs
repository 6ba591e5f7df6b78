//! `evenkeel explain`, as a person or a script asks it.

#![expect(clippy::unwrap_used, reason = "in a test a panic is the report")]

mod common;

use common::{evenkeel, text};

fn verdict(arguments: &[&str]) -> (bool, String) {
    let output = evenkeel(&[&["explain", "statement", "--json"], arguments].concat());
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let document: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    (document["idempotent"].as_bool().unwrap(), document["why"].as_str().unwrap().to_owned())
}

#[test]
fn a_statement_is_explained_in_words_and_in_json() {
    let select = evenkeel(&["explain", "statement", "SELECT * FROM t"]);
    assert_eq!(text(&select.stdout), "idempotent\n");
    for (statement, is_idempotent, word) in [
        ("SELECT now() FROM t", true, "what one does"),
        ("UPDATE t SET c = 1 WHERE k = 1", true, "what one does"),
        ("UPDATE t SET c = c + 1 WHERE k = 1", false, "counter"),
        ("UPDATE t SET l = [1] WHERE k = 1", false, "list"),
        ("UPDATE t SET c = 1 WHERE k = 1 IF c = 2", false, "conditional"),
        ("hello", false, "form is not known"),
        ("UPDATE t SET c = ? WHERE k = ?", false, "prepare it"),
    ] {
        let (found, why) = verdict(&[statement]);
        assert_eq!(found, is_idempotent, "{statement}: {why}");
        assert!(why.contains(word), "{statement}: {why}");
    }
}

#[test]
fn types_and_timestamps_count() {
    let update = "UPDATE t SET c = ? WHERE k = ?";
    assert!(verdict(&["--bind", "text,uuid", update]).0);
    assert!(!verdict(&["--bind", "list<int>,uuid", update]).0);
    let (found, why) = verdict(&["--bind", "text,uuid", "--server-timestamps", update]);
    assert!(!found && why.contains("timestamp"), "{why}");
    assert!(verdict(&["--bind", "text,uuid", "UPDATE t SET c = :c WHERE k = :k"]).0);
    for types in ["int,int", "int,int,int,int"] {
        let quoted = "UPDATE t SET c = '?' WHERE k = ? AND a = ? AND \"b:c\" = :b";
        let wrong = evenkeel(&["explain", "statement", "--bind", types, quoted]);
        assert_eq!(wrong.status.code(), Some(2));
        let reported = text(&wrong.stderr);
        assert!(reported.contains("expected one for each of 3 markers"), "{reported}");
    }
}
