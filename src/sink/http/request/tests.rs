use std::sync::Arc;

use super::*;
use crate::record::{About, OrderingKey};
use crate::relay::in_flight::Seq;

fn requests(body: Body, batch: Option<BatchForm>) -> Requests {
    Requests {
        body,
        batch,
        headers: HeaderMap::new(),
        secrets: Vec::new(),
    }
}

fn item(value: Option<&'static [u8]>, headers: &[(&str, Option<&'static [u8]>)]) -> Item {
    Item {
        seq: Seq(0),
        record: Record {
            topic: Arc::from("http://h/in"),
            partition: None,
            key: Some(Bytes::from_static(b"7")),
            value: value.map(Bytes::from_static),
            headers: headers
                .iter()
                .map(|(name, value)| Header {
                    name: Arc::from(*name),
                    value: value.map(Bytes::from_static),
                })
                .collect(),
            timestamp_ms: 5,
            about: Some(Box::new(About {
                event_id: "msg_2KWPBgLlAfxdpx2AI54pPJ85f4W".to_owned(),
                event_type: None,
                aggregate_type: None,
                aggregate_id: None,
                ordering: OrderingKey::Unordered,
                audited: Vec::new(),
            })),
        },
        alone: false,
        attempts: 0,
    }
}

fn body(requests: &Requests, values: &[&'static [u8]]) -> Result<String, NotJson> {
    let items: Vec<Item> = values.iter().map(|value| item(Some(value), &[])).collect();
    let body = requests.body(&items)?;
    Ok(String::from_utf8(body.to_vec()).unwrap())
}

#[test]
fn one_event_is_its_value_as_it_is() {
    let requests = requests(Body::Payload, None);
    assert_eq!(
        requests.body(&[item(Some(b"\xff{ "), &[])]).unwrap(),
        Bytes::from_static(b"\xff{ ")
    );
    assert_eq!(requests.body(&[item(None, &[])]).unwrap(), Bytes::new());
}

#[test]
fn a_batch_is_an_array_or_lines() {
    let values: [&[u8]; 2] = [b"{\"a\" : 1.50}", b"{\n\"b\": \"\\n\"}"];
    let array = requests(Body::Payload, Some(BatchForm::Array));
    assert_eq!(body(&array, &values).unwrap(), "[{\"a\" : 1.50},{\n\"b\": \"\\n\"}]");
    let lines = requests(Body::Payload, Some(BatchForm::Lines));
    assert_eq!(body(&lines, &values).unwrap(), "{\"a\" : 1.50}\n{ \"b\": \"\\n\"}\n");
    for requests in [array, lines] {
        assert_eq!(body(&requests, &[b"{}", b"{", b"{}"]), Err(NotJson { index: 1 }));
    }
    let envelopes = requests(Body::Envelope, Some(BatchForm::Lines));
    assert_eq!(
        body(&envelopes, &[b"{}", b"{"]).unwrap(),
        "{\"key\":\"7\",\"timestamp_ms\":5,\"headers\":{},\"value\":{}}\n\
         {\"key\":\"7\",\"timestamp_ms\":5,\"headers\":{},\"value_text\":\"{\"}\n"
    );
}

#[test]
fn an_events_headers_are_the_requests_as_far_as_http_has_them() {
    let requests = Requests {
        headers: HeaderMap::from_iter([(HeaderName::from_static("x-fixed"), HeaderValue::from_static("file"))]),
        ..requests(Body::Payload, None)
    };
    let item = item(
        Some(b"{}"),
        &[
            ("df-event-id", Some(b"7f")),
            ("content-type", Some(b"application/xml")),
            ("X-Twice", Some(b"1")),
            ("x-twice", Some(b"2")),
            ("x-fixed", Some(b"event")),
            ("x-null", None),
            ("no name", Some(b"1")),
            ("Content-Length", Some(b"999")),
            ("x-odd", Some(b" 50% \xc3\xa9\n ")),
            ("ce_type", Some(b"a \"b\"")),
        ],
    );
    let headers = requests.headers(std::slice::from_ref(&item), b"{}", 0);
    let all = |name: &str| {
        headers
            .get_all(name)
            .iter()
            .map(|value| value.to_str().unwrap())
            .collect::<Vec<_>>()
    };
    assert_eq!(all("df-event-id"), ["7f"]);
    assert_eq!(all("content-type"), ["application/xml"]);
    assert_eq!(all("x-twice"), ["1", "2"]);
    assert_eq!(all("x-fixed"), ["file"]);
    assert_eq!(all("x-odd"), ["%2050%25 %C3%A9%0A%20"]);
    assert_eq!(all("ce-type"), ["a%20%22b%22"]);
    assert_eq!(headers.len(), 7);
    let none = super::tests::requests(Body::Envelope, None).headers(&[item], b"{}", 0);
    assert_eq!(none.len(), 1, "they are in the body: {none:?}");
}

#[test]
fn a_signature_is_the_one_of_the_specifications_example() {
    // From the README of standard-webhooks' own libraries: https://github.com/standard-webhooks/standard-webhooks
    let secrets = ["whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "sixteen bytes and"];
    let requests = Requests {
        secrets: secrets.map(SecretString::from).to_vec(),
        ..requests(Body::Payload, None)
    };
    let mut item = item(Some(b"{\"test\": 2432232314}"), &[]);
    item.record.about.as_mut().unwrap().event_id = "msg_p5jXN8AQM9LWM0D4loKWxJek".to_owned();
    let body = requests.body(std::slice::from_ref(&item)).unwrap();
    let headers = requests.headers(&[item], &body, 1_614_265_330);
    let text = |name| headers[name].to_str().unwrap();
    assert_eq!(
        (text("webhook-id"), text("webhook-timestamp")),
        ("msg_p5jXN8AQM9LWM0D4loKWxJek", "1614265330")
    );
    let signatures: Vec<&str> = text("webhook-signature").split(' ').collect();
    assert_eq!(signatures[0], "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
    assert_eq!(signatures.len(), 2);
}

#[test]
fn authentication_is_kept_out_of_logs() {
    let config = |auth| {
        let text = "{apiVersion: tailpost/v1, kind: Pipeline, metadata: {name: p}, spec: {\
             source: {type: postgres, config: {id: s, dsn: 'postgres://u@h/d', slot: s, publication: p, outbox: {prefixes: [o]}}}, \
             processors: [{type: outbox}], sinks: [{type: http, config: {id: k, url: 'http://h/', auth: ";
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("p.yaml");
        std::fs::write(&path, format!("{text}{auth}}}}}]}}}}")).unwrap();
        let loaded = config::load(&path, &std::collections::HashMap::new()).unwrap();
        match loaded.pipeline.sink {
            config::Sink::Http(http) => *http,
            _ => panic!("a sink of type http"),
        }
    };
    for (auth, expected) in [
        (
            "{type: basic, username: ann, password: 's3:cret'}",
            "Basic YW5uOnMzOmNyZXQ=",
        ),
        ("{type: bearer, token: t0ken}", "Bearer t0ken"),
    ] {
        let requests = Requests::new(&config(auth));
        let headers = requests.headers(&[item(None, &[])], b"", 0);
        assert_eq!(headers[AUTHORIZATION].to_str().unwrap(), expected);
        assert!(!format!("{headers:?}{requests:?}").contains("t0ken"), "{headers:?}");
    }
}
