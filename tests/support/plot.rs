//! What a test has on the shared servers whatever its database: a name, topics, and the application's way in.

use super::app::Door;
use super::kafka::{Kafka, Reader};

/// See the module's text. Its name begins all other names; its topics are gone at the end.
pub struct Plot {
    pub name: String,
    pub kafka: Kafka,
    /// To the database, as the application.
    pub door: Door,
}

impl Plot {
    pub(super) fn new(name: &str, brokers: &str, door: Door) -> Self {
        Self {
            name: name.to_owned(),
            kafka: Kafka::new(brokers),
            door,
        }
    }

    /// A topic's name in this plot.
    pub fn topic(&self, name: &str) -> String {
        format!("{}.{name}", self.name)
    }

    /// The plot's first topic, `<topic>` in a pipeline.
    pub fn events(&self) -> String {
        self.topic("events")
    }

    /// A reader of these topics of the plot, by their names in it.
    pub fn reader(&self, topics: &[&str]) -> Reader {
        self.kafka.reader(&self.topics(topics))
    }

    /// The same, of committed records only.
    pub fn committed_reader(&self, topics: &[&str]) -> Reader {
        self.kafka.committed_reader(&self.topics(topics))
    }

    fn topics(&self, names: &[&str]) -> Vec<String> {
        names.iter().map(|name| self.topic(name)).collect()
    }

    /// Puts the names that every plot has into a text.
    pub(super) fn fill(&self, template: &str) -> String {
        template
            .replace("<name>", &self.name)
            .replace("<brokers>", &self.kafka.brokers)
            .replace("<topic>", &self.events())
    }
}

impl Drop for Plot {
    fn drop(&mut self) {
        self.kafka.delete_topics(&format!("{}.", self.name));
    }
}
