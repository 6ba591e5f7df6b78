//! Headers as they come, as they should not come, and the table that every SDK is tested against.

use proptest::prelude::*;
use serde_json::Value;

use super::*;

fn headers(lines: &[(&'static str, &str)]) -> Fields {
    let line = |(name, value): &(&'static str, &str)| {
        (HeaderName::from_static(name), HeaderValue::from_str(value).unwrap())
    };
    let mut headers = Fields::new();
    for (name, value) in lines.iter().map(line) {
        headers.append(name, &value);
    }
    headers
}

fn taken(lines: &[(&'static str, &str)]) -> Result<Option<f64>, BadDimmer> {
    let mut headers = headers(lines);
    headers.insert(header::CONTENT_LENGTH, &HeaderValue::from_static("3"));
    let dimmer = take_dimmer(&mut headers);
    assert_eq!(headers.len(), 1, "dimmers are taken off and nothing else: {headers:?}");
    dimmer.map(|dimmer| dimmer.map(Dimmer::value))
}

#[test]
fn a_dimmer_is_a_decimal_between_nothing_and_all() {
    let read = |value: &str| taken(&[("brownout-dimmer", value)]);
    for (value, expected) in
        [("0.73", 0.73), ("0", 0.0), ("1", 1.0), ("1.0", 1.0), ("0.125", 0.125), ("00.5", 0.5)]
    {
        assert_eq!(read(value), Ok(Some(expected)), "{value:?}");
    }
    for value in [
        "", " ", ".", ".5", "1.", "0.1234", "+0.5", "--0", "0,5", "NaN", "nan", "inf", "-", "5e-1",
        "0.7;q=1", "0.7, 0.7", "?1", "0x1", "0.-5", "1 0",
    ] {
        assert_eq!(read(value), Err(BadDimmer::Malformed), "{value:?}");
    }
    assert_eq!(read(&"9".repeat(16)), Err(BadDimmer::Malformed));
    assert_eq!(read(&"0".repeat(60_000)), Err(BadDimmer::Malformed));
    assert_eq!(read("1.001"), Err(BadDimmer::OutOfRange(1.001)));
    assert_eq!(read("-0.5"), Err(BadDimmer::OutOfRange(-0.5)));
    assert_eq!(read(&"9".repeat(15)), Err(BadDimmer::OutOfRange(1e15 - 1.0)));
}

#[test]
fn the_dimmer_of_the_prototypes_is_what_php_and_python_print() {
    let read = |value: &str| taken(&[("x-dimmer", value)]);
    for (value, expected) in
        [("0.73451928374", 0.734_519_283_74), ("5.0E-5", 5e-5), ("1e-05", 1e-5), ("1", 1.0)]
    {
        assert_eq!(read(value), Ok(Some(expected)), "{value:?}");
    }
    for value in ["", "NAN", "INF", "nan", "infinity", "e", "1e", "0.5 ", "0.5f", "0x0.8p0"] {
        let is_padded = value.ends_with(' ');
        assert_eq!(read(value).is_ok(), is_padded, "{value:?}");
    }
    assert_eq!(read("1e999"), Err(BadDimmer::OutOfRange(f64::INFINITY)));
    assert_eq!(read(&"0".repeat(33)), Err(BadDimmer::Malformed));
}

#[test]
fn two_dimmers_are_none_and_the_new_name_beats_the_old() {
    let new = ("brownout-dimmer", "0.5");
    assert_eq!(taken(&[]), Ok(None));
    assert_eq!(taken(&[new, new]), Err(BadDimmer::Repeated));
    assert_eq!(taken(&[("x-dimmer", "1"), ("x-dimmer", "1")]), Err(BadDimmer::Repeated));
    assert_eq!(taken(&[new, ("x-dimmer", "0.9")]), Ok(Some(0.5)));
    assert_eq!(taken(&[new, ("x-dimmer", "rubbish")]), Ok(Some(0.5)));
    let rubbish = ("brownout-dimmer", "rubbish");
    assert_eq!(taken(&[rubbish, ("x-dimmer", "0.9")]), Err(BadDimmer::Malformed));
}

#[test]
fn a_decision_counts_when_it_came_once_and_is_well_formed() {
    let item = |lines: &[(&'static str, &str)]| decision(&headers(lines)).map(Decision::item);
    let full = ("brownout-optional", "?1");
    assert_eq!(item(&[full]), Some(true));
    assert_eq!(item(&[("brownout-optional", "?0;comments")]), Some(false));
    assert_eq!(item(&[]), None);
    assert_eq!(item(&[full, full]), None, "repeated, even if they agree");
    assert_eq!(item(&[("brownout-optional", "?1, ?1")]), None);
    assert_eq!(item(&[("brownout-optional", "1")]), None);
}

#[test]
fn every_spelling_of_a_decision_is_removed() {
    let mut headers = headers(&[
        ("brownout-optional", "?1"),
        ("brownout-optional", "?0"),
        ("brownout_optional", "?0"),
        ("cookie", "a=b"),
    ]);
    strip_decision(&mut headers);
    assert_eq!(headers.names().map(|name| name.to_string()).collect::<Vec<_>>(), ["cookie"]);
}

#[test]
fn what_was_served_is_read_in_old_and_new_words() {
    let parts = ["recommendations".to_owned(), "comments".to_owned()];
    let said = |name: &'static str, value: &str| served(&headers(&[(name, value)]), &parts);
    let kept = |kept, is_full| Some(Said { content: Content::new(kept, 2), is_full });
    assert_eq!(said("brownout-served", "?1"), kept(2, true));
    assert_eq!(said("brownout-served", "?0;recommendations"), kept(1, false));
    assert_eq!(said("brownout-served", "?1;advertising=?0"), kept(2, false));
    assert_eq!(said("brownout-served", "yes"), None);
    assert_eq!(said("x-withoptional", "1"), kept(2, true));
    assert_eq!(said("x-withoptional", ""), kept(0, false));
    assert_eq!(said("brownout-with-optional", ""), kept(0, false));
    assert_eq!(said("x-withoptional", "0"), None);
    let both = headers(&[("brownout-served", "?0"), ("x-withoptional", "1")]);
    assert_eq!(served(&both, &[]), Some(Said { content: Content::LEAN, is_full: false }));
    for (value, expected) in [("1", Some("?1")), ("", Some("?0")), ("2", None)] {
        let mut headers = headers(&[("x-withoptional", value)]);
        translate_served(&mut headers);
        assert_eq!(headers.get(SERVED).map(|value| value.to_str().unwrap()), expected);
    }
}

#[test]
fn every_header_of_ours_is_noticed_and_no_other() {
    let ours = [DIMMER, DIMMER_2014, SERVED, SERVED_2014, SERVED_2017, OPTIONAL];
    for name in ours {
        let mut answer = headers(&[("vary", "a")]);
        answer.insert(&name, &HeaderValue::from_static("1"));
        assert!(is_mentioned(&answer), "{name}");
    }
    assert!(!is_mentioned(&headers(&[("x-dim", "1"), ("brown", "1"), ("content-type", "a")])));
}

#[test]
fn a_decision_is_stripped_in_every_spelling_that_is_taken_for_it() {
    let names = ["brownout-optional", "brownout_optional", "brownout.optional", "brownout-optiona"];
    let mut headers = headers(&names.map(|name| (name, "?0")));
    strip_decision(&mut headers);
    assert_eq!(
        headers.names().map(|name| name.to_string()).collect::<Vec<_>>(),
        ["brownout-optiona"]
    );
}

#[test]
fn an_answer_with_something_left_out_is_not_stored() {
    let whole = [
        ("etag", "\"5\""),
        ("last-modified", "Sat, 21 Nov 2026 03:00:00 GMT"),
        ("expires", "Sat, 21 Nov 2026 04:00:00 GMT"),
        ("cdn-cache-control", "max-age=600"),
        ("fastly-cdn-cache-control", "max-age=600"),
        ("surrogate-control", "max-age=600"),
        ("x-accel-expires", "600"),
        ("vary", "accept-encoding"),
    ];
    let after = |status: u16, cache_control: &'static str| {
        let mut headers = headers(&whole);
        headers.append(header::CACHE_CONTROL, &HeaderValue::from_static(cache_control));
        forbid_storing(StatusCode::from_u16(status).unwrap(), &mut headers);
        let mut names: Vec<_> = headers.names().map(|name| name.to_string()).collect();
        names.sort_unstable();
        (headers.get("cache-control").unwrap().to_value(), names.join(" "))
    };
    let forbidden = (HeaderValue::from_static("no-store"), "cache-control vary".to_owned());
    // A CDN obeys its own header beside `private`, and a browser keeps what is private for a day.
    for said in ["max-age=60", "public", "private, max-age=86400", "no-cache", "No-Store", ""] {
        assert_eq!(after(200, said), forbidden, "{said:?}");
    }
    assert_eq!(after(304, "max-age=60").0, "max-age=60", "it stands for what the client has");
}

/// The cases that the SDKs in every language are tested against.
#[test]
fn the_shared_table_is_obeyed() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../sdk/conformance/headers.json");
    let table = std::fs::read(path).unwrap_or_else(|error| panic!("{path}: {error}"));
    let table: Value = serde_json::from_slice(&table).unwrap();
    let cases = table["cases"].as_array().unwrap();
    assert!(cases.len() > 80, "{}", cases.len());
    for case in cases {
        let name = &case["name"];
        let mut headers = Fields::new();
        let lines: Vec<_> = case["lines"].as_array().unwrap().iter().map(text).collect();
        for line in &lines {
            // What no header line can hold never comes this far.
            let Ok(line) = HeaderValue::from_bytes(line.as_bytes()) else { continue };
            headers.append(OPTIONAL, &line);
        }
        let came = headers.get_all(OPTIONAL).count();
        let decision = decision(&headers);
        if came == lines.len() {
            let is_obeyed = !case["passes_on"].is_null();
            assert_eq!(decision.is_some(), is_obeyed, "{name}: what is passed on");
        }
        for (part, allowed) in case["parts"].as_object().unwrap() {
            let reported = decision.is_none_or(|decision| decision.allows(part));
            assert_eq!(Some(reported), allowed.as_bool(), "{name}: {part}");
        }
        let others = decision.is_none_or(Decision::item);
        assert_eq!(Some(others), case["others"].as_bool(), "{name}: others");
    }
}

/// A line of the table: a text, or how to make a long one.
fn text(line: &Value) -> String {
    let Some(line) = line.as_object() else { return line.as_str().unwrap().to_owned() };
    let piece = |key: &str| line[key].as_str().unwrap();
    let times = usize::try_from(line["times"].as_u64().unwrap()).unwrap();
    format!("{}{}{}", piece("begin"), piece("fill").repeat(times), piece("end"))
}

proptest! {
    /// Bytes near the grammars: never a panic, and what is believed is a dimmer.
    #[test]
    fn any_bytes_are_a_dimmer_or_an_error(
        new in prop::collection::vec("[-+0-9.eE ?;a]{0,20}", 0..3),
        old in prop::collection::vec("[-+0-9.eEnaif]{0,40}", 0..3),
    ) {
        let lines = new.iter().map(|value| ("brownout-dimmer", value.as_str()));
        let lines = lines.chain(old.iter().map(|value| ("x-dimmer", value.as_str())));
        if let Ok(Some(dimmer)) = taken(&lines.collect::<Vec<_>>()) {
            prop_assert!((0.0..=1.0).contains(&dimmer));
        }
    }

    #[test]
    fn a_dimmer_that_is_written_is_read_as_the_nearest_thousandth(value in 0.0..=1.0_f64) {
        let written = write_dimmer(Dimmer::clamped(value));
        let read = taken(&[("brownout-dimmer", written.to_str().unwrap())]);
        prop_assert!(read.is_ok_and(|read| (read.unwrap() - value).abs() <= 0.000_500_1));
    }
}
