//! What a registry answers, made into a schema that payloads are held against: pure.

use std::collections::BTreeMap;

use jsonschema::{Retrieve, Uri, Validator};
use reqwest::Url;
use serde::Deserialize;
use serde_json::Value;

use crate::config::payload_schemas::not_a_schema;

/// A version of a subject, as `GET /subjects/{subject}/versions/{version}` has it.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Registered {
    pub(super) version: u32,
    /// Left out where it is Avro.
    #[serde(default)]
    pub(super) schema_type: Option<String>,
    #[serde(default)]
    pub(super) references: Option<Vec<Reference>>,
    schema: String,
}

/// Another schema that one refers to by a name.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub(super) struct Reference {
    name: String,
    pub(super) subject: String,
    pub(super) version: u32,
}

/// What relative names are seen from where a schema has no `$id`.
const BASE: &str = "json-schema:///";

/// A schema with those that it refers to, as they come in.
#[derive(Debug)]
pub(super) struct Assembly {
    root: Value,
    version: u32,
    /// By their absolute URIs.
    referenced: BTreeMap<String, Value>,
}

impl Assembly {
    /// Begins with the schema itself, and names what it refers to.
    ///
    /// # Errors
    /// It is none of JSON.
    pub(super) fn new(registered: &Registered) -> Result<(Self, Vec<Wanted>), String> {
        let root = document(registered)?;
        let wanted = wanted(&root, &base()?, registered);
        let assembly = Self {
            root,
            version: registered.version,
            referenced: BTreeMap::new(),
        };
        Ok((assembly, wanted?))
    }

    /// Adds one that is referred to, and names what it refers to itself. Nothing, where it is there already.
    ///
    /// # Errors
    /// It is none of JSON.
    pub(super) fn add(&mut self, wanted: Wanted, registered: &Registered) -> Result<Vec<Wanted>, String> {
        let document = document(registered).map_err(|fault| format!("{} {fault}", wanted.place()))?;
        let more = self::wanted(&document, &wanted.uri, registered)?;
        let more = more.into_iter().filter(|one| !self.has(one)).collect();
        self.referenced.insert(wanted.uri.to_string(), document);
        Ok(more)
    }

    pub(super) fn has(&self, wanted: &Wanted) -> bool {
        self.referenced.contains_key(wanted.uri.as_str())
    }

    pub(super) fn len(&self) -> usize {
        self.referenced.len()
    }

    pub(super) fn version(&self) -> u32 {
        self.version
    }

    /// Compiles it.
    ///
    /// # Errors
    /// It is no schema, or refers to what its references do not name.
    pub(super) fn compile(self) -> Result<Validator, String> {
        let options = jsonschema::options().with_retriever(Referenced(self.referenced));
        options.build(&self.root).map_err(|err| not_a_schema(&err).to_string())
    }
}

/// A reference, with the URI by which its schema is referred to.
#[derive(Debug, Clone)]
pub(super) struct Wanted {
    pub(super) reference: Reference,
    uri: Url,
}

impl Wanted {
    /// For errors.
    pub(super) fn place(&self) -> String {
        let Reference { subject, version, .. } = &self.reference;
        format!("refers to `{subject}/{version}`, which")
    }
}

fn base() -> Result<Url, String> {
    Url::parse(BASE).map_err(|err| err.to_string())
}

fn document(registered: &Registered) -> Result<Value, String> {
    match registered.schema_type.as_deref() {
        Some("JSON") => {}
        other => {
            let found = other.unwrap_or("AVRO");
            return Err(format!("is of type {found}: expected JSON"));
        }
    }
    serde_json::from_str(&registered.schema).map_err(|err| format!("is no JSON: {err}"))
}

/// Names are seen from the schema's own `$id`, which is seen from where the schema was found.
fn wanted(document: &Value, found_at: &Url, registered: &Registered) -> Result<Vec<Wanted>, String> {
    let id = document
        .get("$id")
        .or_else(|| document.get("id"))
        .and_then(Value::as_str);
    let base = id.and_then(|id| found_at.join(id).ok());
    let base = base.as_ref().unwrap_or(found_at);
    let references = registered.references.iter().flatten();
    let wanted = references.map(|reference| {
        let mut uri = base
            .join(&reference.name)
            .map_err(|err| format!("has a reference whose name is no URI: {err}"))?;
        uri.set_fragment(None);
        Ok(Wanted {
            reference: reference.clone(),
            uri,
        })
    });
    wanted.collect()
}

/// Gives a schema those that its references name, and nothing else.
struct Referenced(BTreeMap<String, Value>);

impl Retrieve for Referenced {
    fn retrieve(&self, uri: &Uri<String>) -> Result<Value, Box<dyn std::error::Error + Send + Sync>> {
        let found = self.0.get(uri.as_str()).cloned();
        found.ok_or_else(|| "its references do not name it".into())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn registered(schema: &Value, references: &[(&str, &str)]) -> Registered {
        let references: Vec<Value> = references
            .iter()
            .map(|(name, subject)| json!({"name": name, "subject": subject, "version": 1}))
            .collect();
        let text = json!({
            "subject": "s", "id": 7, "version": 3, "schemaType": "JSON",
            "references": references, "schema": schema.to_string(),
        });
        serde_json::from_value(text).unwrap()
    }

    /// The schema of these documents by subject, the first of which is `root`.
    fn compiled(documents: &[(&str, Registered)]) -> Result<Validator, String> {
        let find = |subject: &str| &documents.iter().find(|(found, _)| *found == subject).unwrap().1;
        let (mut assembly, mut open) = Assembly::new(find("root"))?;
        while let Some(wanted) = open.pop() {
            if !assembly.has(&wanted) {
                let registered = find(&wanted.reference.subject);
                open.extend(assembly.add(wanted, registered)?);
            }
        }
        assembly.compile()
    }

    #[test]
    fn references_lead_from_one_schema_to_the_next() {
        for (id, name) in [
            (None, "money.json"),
            (Some("https://s.example/orders/order.json"), "../money.json"),
        ] {
            let mut root = json!({"properties": {"price": {"$ref": name}}, "required": ["price"]});
            if let Some(id) = id {
                root["$id"] = json!(id);
            }
            let money = json!({"properties": {"currency": {"$ref": "currency.json#/$defs/code"}}});
            let currency = json!({"$defs": {"code": {"enum": ["EUR"]}}});
            let schema = compiled(&[
                ("root", registered(&root, &[(name, "money")])),
                ("money", registered(&money, &[("currency.json", "currency")])),
                ("currency", registered(&currency, &[])),
            ]);
            let schema = schema.unwrap();
            assert!(schema.is_valid(&json!({"price": {"currency": "EUR"}})), "{id:?}");
            assert!(!schema.is_valid(&json!({"price": {"currency": "DM"}})), "{id:?}");
        }
    }

    #[test]
    fn schemas_may_refer_to_one_another() {
        let tree = json!({"type": "object", "properties": {"children": {"items": {"$ref": "node.json"}}}});
        let node = json!({"anyOf": [{"type": "integer"}, {"$ref": "tree.json"}]});
        let schema = compiled(&[
            ("root", registered(&tree, &[("node.json", "node")])),
            ("node", registered(&node, &[("tree.json", "tree")])),
            ("tree", registered(&tree, &[("node.json", "node")])),
        ]);
        let schema = schema.unwrap();
        assert!(schema.is_valid(&json!({"children": [1, {"children": [2]}]})));
        assert!(!schema.is_valid(&json!({"children": ["a"]})));
    }

    #[test]
    fn what_is_no_json_schema_says_what_it_is() {
        let mut avro = registered(&json!({}), &[]);
        avro.schema_type = None;
        let fault = |documents: &[(&str, Registered)]| compiled(documents).unwrap_err();
        assert_eq!(fault(&[("root", avro.clone())]), "is of type AVRO: expected JSON");
        let root = registered(&json!({"$ref": "a.json"}), &[("a.json", "a")]);
        assert_eq!(
            fault(&[("root", root), ("a", avro)]),
            "refers to `a/1`, which is of type AVRO: expected JSON"
        );
        let unnamed = registered(&json!({"$ref": "a.json"}), &[]);
        assert!(fault(&[("root", unnamed)]).contains("is no JSON Schema"));
        let wrong = registered(&json!({"type": "objekt"}), &[]);
        assert!(fault(&[("root", wrong)]).starts_with("is no JSON Schema, at `/type`"));
    }
}
