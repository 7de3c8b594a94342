//! The data source name.

use super::Database;
use super::settings::Given;
use super::work::Work;
use crate::config::dsn::percent_encode;
use crate::convert::yaml::{Mapping, Node};

/// Debezium's names of what is verified, and ours.
const MYSQL_MODES: [(&str, &str); 8] = [
    ("disabled", "disabled"),
    ("preferred", "preferred"),
    ("required", "required"),
    ("verify_ca", "verify-ca"),
    ("verify_identity", "verify-identity"),
    // MariaDB's driver has names of its own.
    ("disable", "disabled"),
    ("trust", "required"),
    ("verify_full", "verify-identity"),
];

pub(super) fn set_dsn(work: &mut Work, config: &mut Mapping, database: Database) {
    let mut options = Vec::new();
    let dsn = match database {
        Database::Postgres => postgres(work, &mut options),
        Database::Mysql | Database::Mariadb => mysql(work, database, &mut options),
    };
    config.set("dsn", Node::text(dsn), options.join(", "));
    for option in options {
        work.taken(&option, "spec.source.config.dsn");
    }
}

/// A text of the DSN, and which option it is of.
fn part(work: &mut Work, name: &str, options: &mut Vec<String>) -> Option<String> {
    let given = work.take(name)?;
    options.push(given.option.clone());
    Some(work.value(&given))
}

fn secret(work: &mut Work, name: &str, options: &mut Vec<String>) -> Option<String> {
    let given = work.take(name).filter(|given| !given.value.is_empty())?;
    options.push(given.option.clone());
    Some(work.secret(&given))
}

fn ssl_mode(work: &mut Work, name: &str, options: &mut Vec<String>) -> Option<String> {
    let mode = part(work, name, options)?;
    if mode != "allow" {
        return Some(mode);
    }
    work.different(
        options.last().map_or(name, |option| option.as_str()),
        "`allow` is `prefer` here: TLS is tried first, and not last",
    );
    Some("prefer".to_owned())
}

fn host(work: &mut Work, options: &mut Vec<String>) -> String {
    part(work, "database.hostname", options).unwrap_or_else(|| {
        let what = "the connector does not say where the database is";
        work.ask("database.hostname", "DATABASE_HOSTNAME", what)
    })
}

/// Pairs, in which a password needs no percent-encoding.
fn postgres(work: &mut Work, options: &mut Vec<String>) -> String {
    let mut pairs = vec![("host", host(work, options))];
    let given = [
        ("port", "database.port"),
        ("user", "database.user"),
        ("password", "database.password"),
        ("dbname", "database.dbname"),
        ("sslmode", "database.sslmode"),
        ("sslrootcert", "database.sslrootcert"),
        ("sslcert", "database.sslcert"),
        ("sslkey", "database.sslkey"),
    ];
    for (key, name) in given {
        let value = match key {
            "password" => secret(work, name, options),
            "sslmode" => ssl_mode(work, name, options),
            _ => part(work, name, options),
        };
        pairs.extend(value.map(|value| (key, value)));
    }
    if pairs.iter().any(|(key, _)| *key == "sslkey") {
        work.different(
            "database.sslkey",
            "a key in PEM: `openssl pkcs8 -inform der -in key.pk8 -out key.pem` makes one of a Java driver's",
        );
    }
    if let Some(given) = work.take("database.sslpassword") {
        work.not_possible(
            &given.option,
            "a key without a password: `openssl pkey -in key.pem -out plain.pem`",
        );
    }
    let pairs: Vec<String> = pairs
        .iter()
        .map(|(key, value)| format!("{key}={}", quoted(value)))
        .collect();
    pairs.join(" ")
}

/// A value of a pair, as libpq reads it.
fn quoted(value: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "._-/:".contains(c);
    match !value.is_empty() && value.chars().all(is_plain) {
        true => value.to_owned(),
        false => format!("'{}'", value.replace('\\', r"\\").replace('\'', r"\'")),
    }
}

fn mysql(work: &mut Work, database: Database, options: &mut Vec<String>) -> String {
    let mut host = host(work, options);
    // An address of IPv6; the colon of a placeholder is none.
    if host.contains(':') && !host.contains("${") && !host.starts_with('[') {
        host = format!("[{host}]");
    }
    let port = part(work, "database.port", options);
    let user = work.take("database.user").map(|given| {
        options.push(given.option.clone());
        match given.value.contains("${") {
            true => work.value(&given),
            false => percent_encode(&given.value),
        }
    });
    let password = secret(work, "database.password", options);
    if let Some(password) = &password {
        work.different(
            "database.password",
            format!("in a URL it is percent-encoded: so is the value of {password}"),
        );
    }
    let mut queries = Vec::new();
    if let Some(given) = work.settings.take_any(&["database.ssl.mode", "database.sslmode"]) {
        let modes = MYSQL_MODES.iter();
        let known = modes
            .clone()
            .find(|(name, _)| given.value.replace('-', "_").eq_ignore_ascii_case(name));
        match known {
            Some((_, mode)) => {
                queries.push(format!("ssl-mode={mode}"));
                options.push(given.option);
            }
            None => work.not_possible(&given.option, "no mode that is known: write `ssl-mode` in the DSN"),
        }
    }
    stores(work);
    let credentials = match (user, password) {
        (None, _) => String::new(),
        (Some(user), None) => format!("{user}@"),
        (Some(user), Some(password)) => format!("{user}:{password}@"),
    };
    let scheme = match database {
        Database::Mariadb => "mariadb",
        Database::Mysql | Database::Postgres => "mysql",
    };
    let port = port.map_or(String::new(), |port| format!(":{port}"));
    let query = match queries.is_empty() {
        true => String::new(),
        false => format!("?{}", queries.join("&")),
    };
    format!("{scheme}://{credentials}{host}{port}/{query}")
}

/// Java's key stores, which nothing here can read.
fn stores(work: &mut Work) {
    let stores = [
        (
            "truststore",
            "the authorities' certificates in PEM, as `ssl-ca` of the DSN: `keytool -exportcert -rfc`",
        ),
        (
            "keystore",
            "certificate and key in PEM, as `ssl-cert` and `ssl-key` of the DSN: `openssl pkcs12 -nodes`",
        ),
    ];
    for (store, remedy) in stores {
        let given: Vec<Given> = ["", ".location", ".password"]
            .iter()
            .filter_map(|end| work.take(&format!("database.ssl.{store}{end}")))
            .collect();
        for given in given {
            work.not_possible(&given.option, remedy);
        }
    }
}
