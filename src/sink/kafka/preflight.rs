//! What `tailpost check` looks at on a Kafka cluster.

use std::sync::Arc;
use std::time::Duration;

use rdkafka::admin::{AdminClient, AdminOptions, ResourceSpecifier};
use rdkafka::client::DefaultClientContext;
use rdkafka::config::FromClientConfig;

use crate::config;
use crate::preflight::Finding;

use super::client::client_config;
use super::error::client_error;

const REQUEST: Duration = Duration::from_secs(10);

/// Looks at the brokers and at the topics that the pipeline names outright, and makes nothing.
pub async fn preflight(kafka: &config::Kafka, pipeline: &config::Pipeline) -> Vec<Finding> {
    let admin = match AdminClient::<DefaultClientContext>::from_config(&client_config(kafka)) {
        Ok(admin) => Arc::new(admin),
        Err(error) => return vec![Finding::bad("Kafka", client_error(&error).to_string())],
    };
    let mut findings = Vec::new();
    let asked = tokio::task::spawn_blocking({
        let admin = Arc::clone(&admin);
        move || admin.inner().fetch_metadata(None, REQUEST)
    });
    let metadata = match asked.await {
        Ok(Ok(metadata)) => metadata,
        Ok(Err(error)) => {
            let code = error
                .rdkafka_error_code()
                .map(|code| code.to_string())
                .unwrap_or_default();
            findings.push(Finding::bad(
                format!("Kafka {}", kafka.brokers),
                format!(
                    "no broker answers ({code}), expected at least one: start it, or check brokers and the security settings in \
                     client_conf"
                ),
            ));
            return findings;
        }
        Err(error) => return vec![Finding::bad("Kafka", error.to_string())],
    };
    let brokers = metadata.brokers().len();
    findings.push(Finding::good(
        format!("Kafka {}", kafka.brokers),
        format!("answers; brokers in the cluster: {brokers}"),
    ));
    for name in named_topics(kafka, pipeline) {
        let known = metadata.topics().iter().find(|topic| topic.name() == name);
        findings.push(match known {
            Some(topic) => {
                let limit = limit(&admin, &name).await;
                Finding::good(format!("topic {name}"), format!("{} partitions{limit}", topic.partitions().len()))
            }
            None if kafka.create_topics.is_some() => {
                Finding::good(format!("topic {name}"), "does not exist; it is created when the first event comes")
            }
            None => Finding::warning(
                format!("topic {name}"),
                "does not exist: the broker makes it if auto.create.topics.enable is on; else create it, or set create_topics",
            ),
        });
    }
    findings
}

/// Templates with fields name a topic only once an event is there.
fn named_topics(kafka: &config::Kafka, pipeline: &config::Pipeline) -> Vec<String> {
    let constant = |template: Option<&config::Template>| {
        template
            .filter(|template| template.is_constant())
            .map(ToString::to_string)
    };
    let mut names: Vec<String> = constant(kafka.topic.as_ref()).into_iter().collect();
    let dead_letter = pipeline.dead_letter.as_ref();
    names.extend(dead_letter.and_then(|dead_letter| dead_letter.topic().map(str::to_owned)));
    for processor in &pipeline.processors {
        let config::Processor::Outbox(outbox) = processor else {
            continue;
        };
        names.extend(constant(outbox.topic.as_ref().and_then(config::TopicRule::template)));
        names.extend(outbox.default_topic.clone());
    }
    names.sort();
    names.dedup();
    names
}

async fn limit(admin: &AdminClient<DefaultClientContext>, name: &str) -> String {
    let options = AdminOptions::new().request_timeout(Some(REQUEST));
    let described = admin
        .describe_configs([&ResourceSpecifier::Topic(name)], &options)
        .await;
    let value = described
        .ok()
        .and_then(|results| results.into_iter().next()?.ok())
        .and_then(|resource| resource.get("max.message.bytes")?.value.clone());
    value
        .map(|bytes| format!(", records up to {bytes} bytes"))
        .unwrap_or_default()
}
