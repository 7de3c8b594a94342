//! Rights on a broker that has an authorizer, which the client's library has no call for.

use std::io::{Read, Write};
use std::net::TcpStream;

/// Broker settings by which everybody may do everything, but on what somebody was given a right to: there only they may.
pub const AUTHORIZER: &str = "authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer \
                              allow.everyone.if.no.acl.found=true";

/// Lets a principal, such as `User:ANONYMOUS`, do everything with a topic.
///
/// Kafka's protocol, `CreateAcls` version 1.
pub fn allow(brokers: &str, topic: &str, principal: &str) {
    const CREATE_ACLS: i16 = 30;
    const TOPIC: u8 = 2;
    const LITERAL: u8 = 3;
    const ALL: u8 = 2;
    const ALLOW: u8 = 3;
    let text = |text: &str| {
        let length = u16::try_from(text.len()).expect("a short text");
        [&length.to_be_bytes()[..], text.as_bytes()].concat()
    };
    let parts: [&[u8]; 12] = [
        &CREATE_ACLS.to_be_bytes(),
        &1_i16.to_be_bytes(),
        &7_i32.to_be_bytes(),
        &text("test"),
        &1_i32.to_be_bytes(),
        &[TOPIC],
        &text(topic),
        &[LITERAL],
        &text(principal),
        &text("*"),
        &[ALL],
        &[ALLOW],
    ];
    let request = parts.concat();
    let mut stream = TcpStream::connect(brokers).expect("a broker");
    let length = u32::try_from(request.len()).expect("a short request");
    stream.write_all(&length.to_be_bytes()).expect("send a request");
    stream.write_all(&request).expect("send a request");
    let mut length = [0; 4];
    stream.read_exact(&mut length).expect("an answer");
    let mut answer = vec![0; u32::from_be_bytes(length) as usize];
    stream.read_exact(&mut answer).expect("an answer");
    // Correlation id, throttle time, number of results, then the first one's error.
    assert_eq!(answer.get(12..14), Some(&[0, 0][..]), "the broker refuses: {answer:?}");
}
