use marula_bson::{Doc, DocBuf, Value, doc};

use super::*;
use crate::time_series::Granularity;

fn options() -> TimeSeries {
    TimeSeries {
        time_field: "t".into(),
        meta_field: Some("m".into()),
        bucketing: Bucketing::Granularity(Granularity::Seconds),
        extended_range: false,
    }
}

fn measurement(time_ms: i64, rest: &DocBuf) -> DocBuf {
    DocBuf::build(|out| {
        out.append("t", Value::DateTime(time_ms)).append("m", 7);
        out.append_elements(rest.as_doc().elements_bytes());
    })
}

/// Adds measurements at these times; returns the control document and the reason why the first
/// misfit was refused.
fn check(
    measurements: &[(i64, DocBuf)],
    min: &DocBuf,
    max: &DocBuf,
    refused: Option<(usize, Full)>,
) {
    let options = options();
    let mut bucket = Bucket::begin(&options, Some(Value::Int32(7).to_buf()), measurements[0].0);
    let mut found = None;
    for (number, (time_ms, rest)) in measurements.iter().enumerate() {
        // Each measurement is added to the bucket as reloaded.
        let mut bytes = Vec::new();
        if number > 0 {
            bucket.write(&mut bytes);
            bucket = Bucket::load(&options, Doc::trusted(&bytes)).expect("it was just written");
        }
        let doc = measurement(*time_ms, rest);
        if let Err(full) = bucket.push(&options, doc.as_doc(), *time_ms, None) {
            found = Some((number, full));
            break;
        }
    }
    assert_eq!(found, refused);
    let mut bytes = Vec::new();
    bucket.write(&mut bytes);
    let control = Doc::trusted(&bytes).get("control").unwrap().as_doc().unwrap();
    let side = |name: &str| {
        let side = control.get(name).unwrap().as_doc().unwrap();
        DocBuf::build(|out| {
            for element in side.iter().filter(|element| element.name != "t") {
                out.append_raw(element.name, element.value);
            }
        })
    };
    assert_eq!(side("min"), *min, "min");
    assert_eq!(side("max"), *max, "max");
    assert_eq!(
        count(&options, Doc::trusted(&bytes)),
        refused.map_or(measurements.len(), |at| at.0)
    );
}

#[test]
fn the_control_document_has_the_least_and_the_greatest() {
    check(
        &[
            (0, doc! { "v": 1 }),
            (1, doc! { "v": 1.5 }),
            (2, doc! {}),
            (3, doc! { "v": -3, "w": "x" }),
        ],
        &doc! { "v": -3, "w": "x" },
        &doc! { "v": 1.5, "w": "x" },
        None,
    );
    check(
        &[(0, doc! { "v": { "a": 1 } }), (1, doc! { "v": { "a": 3, "b": 2 } })],
        &doc! { "v": { "a": 1, "b": 2 } },
        &doc! { "v": { "a": 3, "b": 2 } },
        None,
    );
    check(
        &[(0, doc! { "v": [1, 2] }), (1, doc! { "v": [0, 5, 7] })],
        &doc! { "v": [0, 2, 7] },
        &doc! { "v": [1, 5, 7] },
        None,
    );
}

#[test]
fn another_type_does_not_fit() {
    for other in [doc! { "v": "x" }, doc! { "v": null }, doc! { "v": true }, doc! { "v": [1] }] {
        let one = doc! { "v": 1 };
        check(&[(0, one.clone()), (1, other)], &one, &one, Some((1, Full::Schema)));
    }
    let nested = doc! { "v": { "a": 1 } };
    let other = doc! { "v": { "a": "x" } };
    check(&[(0, nested.clone()), (1, other)], &nested, &nested, Some((1, Full::Schema)));
}

#[test]
fn a_bucket_spans_an_hour_from_its_minute() {
    let none = doc! {};
    let start = 30_000;
    check(&[(start, none.clone()), (10, none.clone())], &none, &none, None);
    check(&[(start, none.clone()), (3_599_999, none.clone())], &none, &none, None);
    let late = (3_600_000, none.clone());
    check(&[(start, none.clone()), late], &none, &none, Some((1, Full::TimeForward)));
    let early = (-1, none.clone());
    check(&[(start, none.clone()), early], &none, &none, Some((1, Full::TimeBackward)));
    assert_eq!(options().bucketing.round_down(-1), -60_000);
    assert_eq!(Bucketing::Seconds(7_200).round_down(7_199_999), 0);
    assert_eq!(Bucketing::Seconds(7_200).round_down(-1), -7_200_000);
}

#[test]
fn a_bucket_has_a_thousand_measurements_or_so_many_bytes() {
    let none = doc! {};
    let many: Vec<_> = (0..1_001).map(|time| (time, none.clone())).collect();
    check(&many, &none, &none, Some((1_000, Full::Count)));
    let large = doc! { "v": "x".repeat(1_000).as_str() };
    let many: Vec<_> = (0..200).map(|time| (time, large.clone())).collect();
    check(&many, &large, &large, Some((125, Full::Size)));
}

#[test]
fn what_is_no_bucket_is_not_taken_apart() {
    for broken in [
        doc! {},
        doc! { "_id": 1, "control": { "version": 1 } },
        doc! { "_id": ObjectId::generate(1), "control": { "version": 2 }, "data": {} },
        doc! { "_id": ObjectId::generate(1), "control": { "version": 1, "min": {}, "max": {} }, "data": { "t": 5 } },
    ] {
        assert!(Bucket::load(&options(), broken.as_doc()).is_none());
    }
}
