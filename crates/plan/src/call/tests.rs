use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

const VALUES: Values<'_> = Values {
    source: "/in",
    destination: "/out",
    bytes: 12,
    files: 3,
    slot: 1,
    scratch: "/scratch",
    offset_bytes: None,
    list: None,
    directory: None,
    source_host: None,
    source_port: None,
    destination_host: None,
    destination_port: None,
    urls: None,
};

fn call(argv: Vec<Argument>) -> Call {
    let options = [
        ("streams", Scalar::Integer(4)),
        ("window_bytes", Scalar::Null),
        ("mode", Scalar::Text("{slot}".into())),
        ("fsync", Scalar::Bool(true)),
        ("ratio", Scalar::Number(0.5)),
    ];
    Call {
        mover: "get".into(),
        options: options.map(|(name, value)| (name.into(), value)).into(),
        argv,
        requires: vec![],
        timeout_s: Seconds::new(1.0),
        capture: false,
        expect: Expect::Nothing,
        local: "{path}".into(),
        urls: BTreeMap::new(),
    }
}

fn one(text: &str) -> Argument {
    Argument::One(text.into())
}

fn group(texts: &[&str]) -> Argument {
    Argument::Group(texts.iter().map(|&text| text.into()).collect())
}

#[test]
fn placeholders_are_replaced_and_groups_without_a_value_are_omitted() {
    let check = |argument: Argument, expected: &[&str]| {
        assert_eq!(call(vec![argument]).argv(&VALUES).unwrap(), expected);
    };
    check(one("{source}:{destination}"), &["/in:/out"]);
    check(
        one("{bytes} {files} {slot} {scratch}"),
        &["12 3 1 /scratch"],
    );
    check(one("{fsync} {ratio} {streams}"), &["true 0.5 4"]);
    check(one("{{source}}"), &["{source}"]);
    check(one("{{{slot}}}"), &["{1}"]);
    check(one(""), &[""]);
    check(group(&["-p", "{streams}"]), &["-p", "4"]);
    check(group(&["-w", "{window_bytes}"]), &[]);
    check(group(&["{window_bytes}", "{streams}"]), &[]);
    check(group(&["skip={offset_bytes}"]), &[]);
    check(group(&["-v"]), &["-v"]);
}

#[test]
fn placeholder_values_are_not_expanded_again() {
    assert_eq!(call(vec![one("{mode}")]).argv(&VALUES).unwrap(), ["{slot}"]);
}

#[test]
fn offset_has_a_value_in_a_read() {
    let values = Values {
        offset_bytes: Some(7),
        ..VALUES
    };
    assert_eq!(
        call(vec![group(&["skip={offset_bytes}"])])
            .argv(&values)
            .unwrap(),
        ["skip=7"]
    );
}

#[test]
fn mistakes_are_errors_even_in_an_omitted_group() {
    let check = |argument: Argument, expected: &str| {
        let error = call(vec![argument]).argv(&VALUES).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    };
    check(one("{sources}"), "found the placeholder `{sources}`");
    check(one("{}"), "found the placeholder `{}`");
    check(one("{window_bytes}"), "`{window_bytes}` has no value here");
    check(one("{offset_bytes}"), "`{offset_bytes}` has no value here");
    check(
        group(&["{window_bytes}", "{sources}"]),
        "found the placeholder `{sources}`",
    );
    check(one("a}"), "single brace at byte 1");
    check(one("{source"), "single brace at byte 0");
    check(one("{a{b}"), "single brace at byte 0");
}

fn escape(text: &str) -> String {
    text.replace('{', "{{").replace('}', "}}")
}

proptest! {
    #[test]
    fn escaped_text_is_restored_unchanged(texts in prop::collection::vec(".*", 0..4)) {
        let argv = texts.iter().map(|text| Argument::One(escape(text))).collect();
        prop_assert_eq!(call(argv).argv(&VALUES).unwrap(), texts);
    }

    #[test]
    fn any_option_value_is_inserted_between_any_text(before in ".*", value in ".*", after in ".*", name in "[a-z_]{9,12}") {
        let mut call = call(vec![Argument::One(format!("{}{{{name}}}{}", escape(&before), escape(&after)))]);
        call.options = BTreeMap::from([(name.as_str().into(), Scalar::Text(value.as_str().into()))]);
        prop_assume!(!PLACEHOLDERS.contains(&name.as_str()));
        prop_assert_eq!(call.argv(&VALUES).unwrap(), [format!("{before}{value}{after}")]);
    }

    #[test]
    fn no_text_makes_expansion_panic(texts in prop::collection::vec("[{}a-c]{0,12}", 0..4), grouped: bool) {
        let argv = if grouped { vec![Argument::Group(texts)] } else { texts.into_iter().map(Argument::One).collect() };
        let _: Result<_, _> = call(argv).argv(&VALUES);
    }
}

#[test]
fn an_offset_is_rejected_if_the_call_does_not_use_it() {
    let at = |offset: u64| Values {
        offset_bytes: Some(offset),
        ..VALUES
    };
    let plain = call(vec![one("{source}")]);
    assert_eq!(plain.argv(&at(0)).unwrap(), ["/in"]);
    let error = plain.argv(&at(7)).unwrap_err().to_string();
    assert!(error.contains("`get` has no `{offset_bytes}`"), "{error}");
    let records = call(vec![group(&["-off", "{offset_bytes}"]), one("{source}")]);
    assert_eq!(records.argv(&at(7)).unwrap(), ["-off", "7", "/in"]);
}
