use proptest::prelude::*;

use super::*;

fn parse(text: &str) -> PostgresDsn {
    PostgresDsn::parse(text).unwrap_or_else(|errors| panic!("{text}: {errors:?}"))
}

fn messages(text: &str) -> Vec<String> {
    PostgresDsn::parse(text)
        .unwrap_err()
        .iter()
        .map(DsnError::to_string)
        .collect()
}

fn message(text: &str) -> String {
    let mut all = messages(text);
    assert_eq!(all.len(), 1, "{text}: {all:?}");
    all.remove(0)
}

#[test]
fn both_spellings_give_the_same_config() {
    let url = parse(
        "postgresql://me:p%40ss@h1:5433,h2/shop?application_name=tp%20x&connect_timeout=7&target_session_attrs=read-write&keepalives_idle=9&options=-c%20a%3Db&sslmode=require",
    );
    let pairs = parse(
        "host = 'h1,h2' port=5433,5432 user=me password=p@ss dbname=shop application_name='tp x' connect_timeout=7 target_session_attrs=read-write keepalives_idle=9 options='-c a=b' sslmode=require",
    );
    assert!(url.config == pairs.config);
    let config = &url.config;
    assert_eq!(
        config.get_hosts(),
        [Host::Tcp("h1".to_owned()), Host::Tcp("h2".to_owned())]
    );
    assert_eq!(config.get_ports(), [5433, 5432]);
    assert_eq!(config.get_user(), Some("me"));
    assert_eq!(config.get_password(), Some(b"p@ss".as_slice()));
    assert_eq!(config.get_dbname(), Some("shop"));
    assert_eq!(config.get_application_name(), Some("tp x"));
    assert_eq!(config.get_options(), Some("-c a=b"));
    assert_eq!(config.get_connect_timeout(), Some(&Duration::from_secs(7)));
    assert_eq!(config.get_target_session_attrs(), TargetSessionAttrs::ReadWrite);
    assert_eq!(config.get_keepalives_idle(), Duration::from_secs(9));
    assert_eq!(config.get_ssl_mode(), tokio_postgres::config::SslMode::Require);
}

#[test]
fn what_this_parser_reads_tokio_postgres_reads_the_same() {
    for text in [
        "postgres://u:p@h:5433/d",
        "postgres://u@h1:1,h2:2/d?sslmode=disable&keepalives=0&keepalives_retries=3&tcp_user_timeout=5",
        "postgresql://u:a%3Ab%2F@[::1]:5432/d",
        "host=/run/postgresql user=u dbname='a b' password='it\\'s \\\\'",
        "host=h hostaddr=127.0.0.1 port=1 user=u load_balance_hosts=random channel_binding=require",
        "postgres://u@%2Frun%2Fpostgresql/d",
        "postgres:///d?host=/run/postgresql&port=5433&user=u",
    ] {
        let theirs: Config = text.parse().unwrap();
        let ours = parse(text).config;
        assert_eq!(ours.get_hosts(), theirs.get_hosts(), "{text}");
        assert_eq!(ours.get_hostaddrs(), theirs.get_hostaddrs(), "{text}");
        assert_eq!(ours.get_user(), theirs.get_user(), "{text}");
        assert_eq!(ours.get_password(), theirs.get_password(), "{text}");
        assert_eq!(ours.get_dbname(), theirs.get_dbname(), "{text}");
        assert_eq!(ours.get_keepalives(), theirs.get_keepalives(), "{text}");
        assert_eq!(ours.get_keepalives_retries(), theirs.get_keepalives_retries(), "{text}");
        assert_eq!(ours.get_channel_binding(), theirs.get_channel_binding(), "{text}");
        assert_eq!(ours.get_load_balance_hosts(), theirs.get_load_balance_hosts(), "{text}");
        assert_eq!(ours.get_ssl_mode(), theirs.get_ssl_mode(), "{text}");
    }
}

#[test]
fn a_unix_socket_is_a_host_that_begins_with_a_slash() {
    for text in [
        "host=/run/postgresql user=u",
        "postgres://u@%2Frun%2Fpostgresql",
        "postgres://u@/?host=%2Frun%2Fpostgresql",
    ] {
        assert_eq!(
            parse(text).config.get_hosts(),
            [Host::Unix("/run/postgresql".into())],
            "{text}"
        );
    }
}

#[test]
fn sslmode_and_its_files_are_kept_apart() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let path = file.path().to_str().unwrap();
    assert_eq!(parse("host=h").ssl.mode, SslMode::Prefer);
    for (mode, expected) in [
        ("disable", SslMode::Disable),
        ("prefer", SslMode::Prefer),
        ("require", SslMode::Require),
        ("verify-ca", SslMode::VerifyCa),
        ("verify-full", SslMode::VerifyFull),
    ] {
        assert_eq!(parse(&format!("host=h sslmode={mode}")).ssl.mode, expected);
    }
    let dsn = parse(&format!(
        "postgres://h?sslmode=verify-full&sslrootcert={path}&sslcert={path}&sslkey={path}"
    ));
    assert_eq!(dsn.ssl.root_cert.as_deref(), Some(file.path()));
    assert_eq!(dsn.ssl.client_cert.as_deref(), Some(file.path()));
    assert_eq!(dsn.ssl.client_key.as_deref(), Some(file.path()));
    assert_eq!(
        parse(&format!("host=h sslmode=require sslrootcert={path}")).ssl.mode,
        SslMode::VerifyCa
    );
    let system = parse("host=h sslrootcert=system").ssl;
    assert_eq!((system.mode, system.root_cert), (SslMode::VerifyFull, None));
    assert!(message("host=h sslmode=verify-ca sslrootcert=system").contains("needs `sslmode=verify-full`"));
    assert!(message(&format!("host=h sslcert={path}")).contains("`sslcert` without `sslkey`"));
    assert!(message(&format!("host=h sslkey={path}")).contains("`sslkey` without `sslcert`"));
    assert_eq!(
        message("host=h sslrootcert=/nowhere/ca.pem"),
        "the file of `sslrootcert` cannot be read: entity not found"
    );
    assert!(message("host=h sslrootcert=/tmp").contains("cannot be read"));
    assert!(message("host=h sslmode=allow").ends_with("did you mean `prefer`?"));
    assert!(message("host=h sslmode=verfy-full").ends_with("did you mean `verify-full`?"));
}

#[test]
fn what_is_wrong_is_said_by_option() {
    for (text, expected) in [
        ("", "expected a URL"),
        ("mysql://u:p@h/db?ssl-mode=x", "expected a URL"),
        ("just words", "expected a URL"),
        ("host", "expected a URL"),
        ("=h", "expected a URL"),
        ("host='h", "closing quote"),
        ("host=h port=0", "option `port`: expected port numbers"),
        ("host=h port=65536", "option `port`: expected port numbers"),
        ("postgres://h:x", "option `port`: expected port numbers"),
        ("host=a,b,c port=1,2", "ports for 3 hosts"),
        ("host=a,b hostaddr=127.0.0.1", "addresses for 2 hosts"),
        ("host=h hostaddr=h", "option `hostaddr`: expected IP addresses"),
        ("host=", "option `host`: expected a value"),
        ("host=a,", "option `host`: expected a value"),
        ("user=u", "expected a host"),
        ("postgres://", "expected a host"),
        ("postgres://u:p@/d", "expected a host"),
        ("host=h user=a user=b", "option `user` is given more than once"),
        ("postgres://a?host=b", "option `host` is given more than once"),
        (
            "host=h connect_timeout=soon",
            "option `connect_timeout`: expected whole seconds",
        ),
        ("host=h target_session_attrs=readwrite", "did you mean `read-write`?"),
        (
            "host=h target_session_attrs=primary",
            "expected any, read-write or read-only",
        ),
        ("host=h keepalives=yes", "expected 0 or 1"),
        (
            "host=h sslmod=require",
            "option 2 is not known; did you mean `sslmode`?",
        ),
        (
            "postgres://u:p@h/d?options=&sslmod=require",
            "option 2 is not known; did you mean `sslmode`?",
        ),
        ("host=h whatever=1", "option 2 is not known"),
        ("host=h gssencmode=disable", "option `gssencmode` is not supported"),
        ("postgres://u:100%@h", "the password holds a %"),
        ("postgres://u:%zz@h", "the password holds a %"),
        ("postgres://u:p%00@h", "a zero byte"),
        ("postgres://u:p@x@h/d", "percent-encode"),
        ("postgres://u:p/x@h/d", "percent-encode"),
        ("postgres://[::1", "expected a URL"),
        ("postgres://h?sslmode", "expected a URL"),
    ] {
        let found = message(text);
        assert!(found.contains(expected), "{text}: {found}");
    }
    assert_eq!(messages("port=x sslmode=y foo=z").len(), 4);
}

#[test]
fn odd_passwords_are_read_and_never_shown() {
    for (written, meant) in [
        ("p:a:b", "p:a:b"),
        ("p#a?b&c=d", "p#a?b&c=d"),
        ("p%40%2F%25", "p@/%"),
        ("p$x ${y}", "p$x ${y}"),
        ("p'\\\"", "p'\\\""),
    ] {
        let dsn = parse(&format!("postgres://me:{written}@h/d"));
        assert_eq!(dsn.config.get_password(), Some(meant.as_bytes()), "{written}");
        for shown in [
            dsn.to_string(),
            dsn.redacted(),
            format!("{dsn:?}"),
            format!("{:?}", dsn.config),
        ] {
            assert!(!shown.contains(meant) && !shown.contains(written), "{shown}");
        }
    }
    let quoted = parse("host=h password='a b=c\\'d' user=u");
    assert_eq!(quoted.config.get_password(), Some(b"a b=c'd".as_slice()));
}

#[test]
fn display_is_a_url_without_the_password() {
    for (text, shown) in [
        (
            "postgres://user:pw@host1,host2:5433/db?sslmode=disable",
            "postgres://user@host1:5432,host2:5433/db",
        ),
        ("host=h password=pw", "postgres://h:5432"),
        (
            "host=a,b port=6000 user='x y' dbname=d/e",
            "postgres://x%20y@a:6000,b:6000/d%2Fe",
        ),
        ("host=/run/pg user=u dbname=d", "postgres://u@%2Frun%2Fpg:5432/d"),
        ("postgres://u@[::1]:1/d", "postgres://u@[::1]:1/d"),
        ("hostaddr=127.0.0.1 user=u", "postgres://u@127.0.0.1:5432"),
    ] {
        assert_eq!(parse(text).to_string(), shown);
    }
}

const MARK: &str = "hunter2";

proptest! {
    /// Whatever stands around the marker, and whether or not the whole is a DSN: it is never said again.
    #[test]
    fn errors_and_debug_never_show_a_piece_of_the_password(
        before in "[@:/#%$ ?&='\\\\a]{0,4}",
        after in "[@:/#%$ ?&='\\\\a]{0,4}",
        shape in 0..5_usize,
    ) {
        let password = format!("{before}{MARK}{after}");
        let text = match shape {
            0 => format!("postgres://u:{password}@h/d?sslmode=x"),
            1 => format!("host=h password={password} port=x"),
            2 => format!("host=h password='{password}' sslmode=verify"),
            3 => format!("postgres://u:{password}"),
            _ => format!("postgres://u@h/d?password={password}&x=y"),
        };
        // A user, host or database may be shown: an unencoded password that libpq's rules take for one of these is none any more.
        match PostgresDsn::parse(&text) {
            Ok(dsn) => {
                let visible = [dsn.config.get_user(), dsn.config.get_dbname()].into_iter().flatten().any(|part| part.contains(MARK))
                    || format!("{:?}", dsn.config.get_hosts()).contains(MARK);
                prop_assert!(visible || !format!("{dsn:?} {dsn}").contains(MARK), "{text}");
            }
            Err(errors) => {
                for err in errors {
                    prop_assert!(!format!("{err} {err:?}").contains(MARK), "{text}: {err}");
                }
            }
        }
    }

    #[test]
    fn parsing_never_panics(text in "\\PC*", rest in "[@:/#%?&=,'\\\\ a-c\\[\\]0-9]{0,30}") {
        let _ = PostgresDsn::parse(&text);
        let _ = PostgresDsn::parse(&format!("postgres://{rest}"));
        let _ = PostgresDsn::parse(&format!("host={rest}"));
    }

    #[test]
    fn an_encoded_password_reads_back(password in "[^\\x00]{1,20}") {
        let dsn = PostgresDsn::parse(&format!("postgres://u:{}@h/d", percent_encode(&password))).unwrap();
        prop_assert_eq!(dsn.config.get_password(), Some(password.as_bytes()));
    }
}
