//! The schema as an editor applies it: to examples, and to what is wrong.

use regex_lite::Regex;

use super::*;
use crate::root;

fn read(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).unwrap()
}

fn schema() -> Value {
    serde_json::from_str(&of_document(&read(DOCUMENT)).unwrap()).unwrap()
}

/// What the words of JSON Schema that we write find wrong, as `path: what`.
fn wrongs(schema: &Value, value: &Value, path: &str, found: &mut Vec<String>) {
    let mut wrong = |what: String| found.push(format!("{path}: {what}"));
    let is = |kind: &Value| match kind.as_str().unwrap() {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "boolean" => value.is_boolean(),
        "integer" => value.is_i64() || value.is_u64(),
        "number" => value.is_number(),
        other => panic!("{other}"),
    };
    if let Some(kind) = schema.get("type") {
        let any = kind.as_array().map_or_else(|| is(kind), |kinds| kinds.iter().any(is));
        if !any {
            return wrong(format!("{value} is no {kind}"));
        }
    }
    if let Some(choices) = schema.get("anyOf") {
        let fits = |choice: &&Value| {
            let mut found = Vec::new();
            wrongs(choice, value, path, &mut found);
            found.is_empty()
        };
        if !choices.as_array().unwrap().iter().any(|choice| fits(&choice)) {
            wrong(format!("{value} fits none of {choices}"));
        }
    }
    if let Some(words) =
        schema.get("enum").filter(|words| !words.as_array().unwrap().contains(value))
    {
        wrong(format!("{value} is none of {words}"));
    }
    if let (Some(pattern), Some(text)) = (schema.get("pattern"), value.as_str())
        && !Regex::new(pattern.as_str().unwrap()).unwrap().is_match(text)
    {
        wrong(format!("{text:?} does not match"));
    }
    let length = value.as_array().map(|items| items.len() as f64);
    for (name, of, is_least) in [
        ("minimum", value.as_f64(), true),
        ("maximum", value.as_f64(), false),
        ("minItems", length, true),
        ("maxItems", length, false),
    ] {
        let (Some(limit), Some(of)) = (schema.get(name).and_then(Value::as_f64), of) else {
            continue;
        };
        if if is_least { of < limit } else { of > limit } {
            wrong(format!("{of} is beyond {limit}"));
        }
    }
    wrongs_below(schema, value, path, found);
}

fn wrongs_below(schema: &Value, value: &Value, path: &str, found: &mut Vec<String>) {
    for item in value.as_array().into_iter().flatten() {
        if let Some(items) = schema.get("items") {
            wrongs(items, item, path, found);
        }
    }
    let Some(table) = value.as_object() else { return };
    for key in schema.get("required").and_then(Value::as_array).into_iter().flatten() {
        if !table.contains_key(key.as_str().unwrap()) {
            found.push(format!("{path}: {key} is missing"));
        }
    }
    for (key, value) in table {
        let path = format!("{path}.{key}");
        let known = schema.get("properties").and_then(|known| known.get(key));
        match known.or(schema.get("additionalProperties")) {
            Some(Value::Bool(false)) => found.push(format!("{path}: unknown")),
            Some(schema) => wrongs(schema, value, &path, found),
            None => {}
        }
    }
}

fn check(text: &str) -> Vec<String> {
    let value: toml::Value = toml::from_str(text).unwrap_or_else(|error| panic!("{error}\n{text}"));
    let mut found = Vec::new();
    wrongs(&schema(), &serde_json::to_value(value).unwrap(), "", &mut found);
    found
}

/// The configurations that a document shows: all TOML whose tables are those of a configuration.
fn examples(document: &str) -> Vec<String> {
    let text = read(document);
    let fenced = text.split("```toml\n").skip(1).map(|rest| rest.split("```").next().unwrap());
    let known = schema()["properties"].as_object().unwrap().clone();
    let is_configuration = |text: &&str| {
        let table = toml::from_str::<toml::Table>(text).unwrap_or_default();
        // `[agent.dimmer]` alone is an excerpt.
        let is_whole = |(key, value): (&String, &toml::Value)| {
            let Some(schema) = known.get(key) else { return false };
            (schema["type"] == "array") == value.is_array()
        };
        !table.is_empty() && table.iter().all(is_whole)
    };
    fenced.filter(is_configuration).map(str::to_owned).collect()
}

#[test]
fn the_configurations_of_all_documents_fit() {
    let mut count = 0;
    let folder = std::fs::read_dir(root().join("docs")).unwrap();
    let documents = folder.map(|entry| format!("docs/{}", entry.unwrap().file_name().display()));
    let documents = documents.filter(|path| path.ends_with(".md"));
    for document in documents.chain(["README.md".to_owned()]) {
        for example in examples(&document) {
            let mut found = check(&example);
            if document != DOCUMENT {
                found.retain(|wrong| !wrong.ends_with("is missing")); // an excerpt
            }
            assert_eq!(found, [""; 0], "{document}:\n{example}");
            count += 1;
        }
    }
    assert!(count >= 15, "{count} examples found");
    assert_eq!(check(&read("packaging/evenkeel.toml")), [""; 0]);
}

const WHOLE: &str = "[[listen]]\naddress = '127.0.0.1:80'\nupstream = 'a'\n\
                     [upstream.a]\nreplicas = ['10.0.0.1:80', '[::1]:80']\n";

#[test]
fn what_the_reader_refuses_is_wrong_in_an_editor_too() {
    assert_eq!(check(WHOLE), [""; 0]);
    for (more, says) in [
        ("policyy = 'c3'", ".upstream.a.policyy: unknown"),
        ("retries_max = 7", "beyond 6"),
        ("retries_max = 1.5", "is no \"integer\""),
        ("protocol = 'redis'", "none of [\"http\",\"cql\"]"),
        ("replay_bytes_max = '64k'", "does not match"),
        ("timeouts = { total = 30 }", "is no \"string\""),
        ("timeouts = { total = '30' }", "does not match"),
        ("hedge = { quantile = 0.4 }", "beyond 0.5"),
        ("health = true", "is no \"object\""),
        ("[proces]", ".proces: unknown"),
        ("[[listen]]\naddress = '127.0.0.1:81'", "\"upstream\" is missing"),
        ("[[listen]]\naddress = '127.0.0.1'\nupstream = 'a'", "fits none of"),
        ("[admin]\naddress = '127.0.0.1:1'\npublic = ['health']", "none of"),
        ("[[agent]]\nlisten = '127.0.0.1:1'", "\"app\" is missing"),
    ] {
        let found = check(&format!("{WHOLE}{more}\n"));
        assert!(found.len() == 1 && found[0].contains(says), "{more}: {found:?}");
    }
}

#[test]
fn quantities_of_every_form_fit() {
    for more in [
        "timeouts = { total = '1m30s', attempt = '2.5 s', connect = '250us' }",
        "replay_bytes_max = 1000",
        "replay_bytes_max = '1.5KiB'",
        "retry_budget = '5%'",
        "retry_budget = 0.05",
        "[upstream.a.sites]\nlondon = ['10.0.0.1:80']",
        "[upstream.a.tls]\nca = 'ca.pem'",
        "[duplicates.b]\nlisten = '127.0.0.1:1'\ndirectory = 'd'\ncost = { per_node = 0.5 }",
    ] {
        assert_eq!(check(&format!("{WHOLE}{more}\n")), [""; 0], "{more}");
    }
}

#[test]
fn links_are_taken_out_of_descriptions() {
    assert_eq!(unlinked("as [a](b.md#c), and [d](e) too"), "as a, and d too");
    assert_eq!(unlinked("in [a] and 'b'"), "in [a] and 'b'");
}
