use proptest::prelude::*;
use secrecy::ExposeSecret;

use super::*;

fn parse(text: &str) -> MysqlDsn {
    MysqlDsn::parse(text).unwrap_or_else(|errors| panic!("{text}: {errors:?}"))
}

fn messages(text: &str) -> Vec<String> {
    MysqlDsn::parse(text)
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

fn password(dsn: &MysqlDsn) -> Option<&str> {
    dsn.password.as_ref().map(ExposeSecret::expose_secret)
}

fn tcp(name: &str, port: u16) -> MysqlHost {
    MysqlHost::Tcp {
        name: name.to_owned(),
        port,
    }
}

#[test]
fn servers_that_replicate_from_one_another_are_named_in_their_order() {
    let text = "mysql://u@db-1:3307,[::1],db-3/d";
    let dsn = parse(text);
    assert_eq!(dsn.hosts, [tcp("db-1", 3307), tcp("::1", 3306), tcp("db-3", 3306)]);
    assert_eq!(dsn.to_string(), "mysql://u@db-1:3307,[::1]:3306,db-3:3306/d");
    assert_eq!(parse(&dsn.to_string()).hosts, dsn.hosts);
    assert_eq!(dsn.hosts[1].to_string(), "[::1]:3306");
}

#[test]
fn each_place_of_a_url_is_read() {
    for scheme in ["mysql", "mariadb"] {
        let dsn = parse(&format!(
            "{scheme}://me%40:p%40ss@db-1.example:3307/my%2Fshop?connect-timeout=7"
        ));
        assert_eq!((dsn.user.as_str(), password(&dsn)), ("me@", Some("p@ss")));
        assert_eq!(dsn.hosts, [tcp("db-1.example", 3307)]);
        assert_eq!(dsn.database.as_deref(), Some("my/shop"));
        assert_eq!(dsn.connect_timeout, Some(Duration::from_secs(7)));
    }
    let dsn = parse("mysql://root@[::1]");
    assert_eq!((dsn.user.as_str(), password(&dsn)), ("root", None));
    assert_eq!(dsn.hosts, [tcp("::1", 3306)]);
    assert_eq!((dsn.database, dsn.connect_timeout), (None, None));
    assert_eq!(dsn.ssl.mode, SslMode::Prefer);
    assert!(dsn.ssl.root_cert.is_none() && dsn.ssl.client_cert.is_none() && dsn.ssl.client_key.is_none());
}

#[test]
fn a_socket_is_an_option_or_a_host_that_begins_with_a_slash() {
    for text in [
        "mysql://u@/d?socket=/run/mysqld/mysqld.sock",
        "mysql://u@localhost/d?socket=%2Frun%2Fmysqld%2Fmysqld.sock",
        "mysql://u@%2Frun%2Fmysqld%2Fmysqld.sock/d",
    ] {
        let dsn = parse(text);
        assert_eq!(
            dsn.hosts,
            [MysqlHost::Socket("/run/mysqld/mysqld.sock".into())],
            "{text}"
        );
        assert_eq!(dsn.database.as_deref(), Some("d"));
        assert_eq!(dsn.to_string(), "mysql://u@%2Frun%2Fmysqld%2Fmysqld.sock/d");
    }
    assert_eq!(parse("mysql://u@localhost").hosts, [tcp("localhost", 3306)]);
    for text in ["mysql://u@h?socket=/s", "mysql://u@%2Fa?socket=/b"] {
        assert!(message(text).contains("`socket` beside a host"), "{text}");
    }
    assert!(message("mysql://u@localhost?socket=run/s").contains("a path that begins with `/`"));
}

#[test]
fn ssl_mode_has_the_words_of_the_mysql_client() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let path = file.path().to_str().unwrap();
    let modes = [
        ("disabled", SslMode::Disable),
        ("preferred", SslMode::Prefer),
        ("required", SslMode::Require),
        ("verify-identity", SslMode::VerifyFull),
    ];
    for (word, mode) in modes {
        for spelt in [word.to_owned(), word.to_uppercase().replace('-', "_")] {
            for option in ["ssl-mode", "ssl_mode"] {
                assert_eq!(parse(&format!("mysql://u@h?{option}={spelt}")).ssl.mode, mode);
            }
        }
        assert_eq!(mode.as_mysql_str(), word);
    }
    for mode in ["", "&ssl-mode=verify_ca"] {
        let ssl = parse(&format!("mysql://u@h?ssl_ca={path}{mode}")).ssl;
        assert_eq!(
            (ssl.mode, ssl.root_cert.as_deref()),
            (SslMode::VerifyCa, Some(file.path()))
        );
    }
    let ssl = parse(&format!(
        "mysql://u@h?ssl-mode=verify-identity&ssl-ca={path}&ssl-cert={path}&ssl_key={path}"
    ))
    .ssl;
    assert_eq!((ssl.mode, ssl.root_cert.is_some()), (SslMode::VerifyFull, true));
    assert_eq!(ssl.client_cert.as_deref(), Some(file.path()));
    assert_eq!(ssl.client_key.as_deref(), Some(file.path()));
    for (word, suggestion) in [
        ("verify-full", "verify-identity"),
        ("require", "required"),
        ("prefer", "preferred"),
        ("disable", "disabled"),
        ("verfy-ca", "verify-ca"),
        ("REQUIRE", "required"),
    ] {
        let found = message(&format!("mysql://u@h?ssl-mode={word}"));
        assert_eq!(
            found,
            format!(
                "option `ssl-mode`: expected disabled, preferred, required, verify-ca or verify-identity; did you mean `{suggestion}`?"
            )
        );
    }
}

#[test]
fn a_mode_that_cannot_do_what_is_asked_is_refused() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let path = file.path().to_str().unwrap();
    for (options, expected) in [
        (
            "ssl-mode=verify-ca".to_owned(),
            "`ssl-mode=verify-ca` needs `ssl-ca`: the system's authorities vouch for any host",
        ),
        (
            format!("ssl-mode=required&ssl-ca={path}"),
            "`ssl-ca` has no effect with `ssl-mode=required`: expected verify-ca or verify-identity",
        ),
        (
            format!("ssl-mode=preferred&ssl-ca={path}"),
            "`ssl-ca` has no effect with `ssl-mode=preferred`",
        ),
        (
            format!("ssl-mode=disabled&ssl-cert={path}&ssl-key={path}"),
            "`ssl-cert` has no effect with `ssl-mode=disabled`",
        ),
        (format!("ssl-cert={path}"), "`ssl-cert` without `ssl-key`"),
        (format!("ssl-key={path}"), "`ssl-key` without `ssl-cert`"),
        (
            "ssl-ca=/nowhere/ca.pem".to_owned(),
            "the file of `ssl-ca` cannot be read: entity not found",
        ),
        ("ssl-ca=/tmp".to_owned(), "the file of `ssl-ca` cannot be read"),
        ("ssl-ca=".to_owned(), "option `ssl-ca`: expected a value"),
    ] {
        let found = message(&format!("mysql://u@h?{options}"));
        assert!(found.contains(expected), "{options}: {found}");
    }
    for mode in ["required", "verify-identity"] {
        let found = message(&format!("mysql://u@localhost?socket=/s&ssl-mode={mode}"));
        assert!(
            found.starts_with(&format!("`ssl-mode={mode}` over a unix socket")),
            "{found}"
        );
    }
    assert!(message(&format!("mysql://u@%2Fs?ssl-ca={path}")).contains("over a unix socket"));
    parse("mysql://u@%2Fs?ssl-mode=preferred");
    parse("mysql://u@%2Fs?ssl-mode=disabled");
}

#[test]
fn what_is_wrong_is_said_by_option() {
    for (text, expected) in [
        ("", "expected a URL (`mysql://user:password@host:3306/database`)"),
        ("just words", "expected a URL"),
        ("host=h user=u", "expected a URL"),
        ("postgres://u:p@h/db", "expected a URL"),
        ("jdbc:mysql://h/db", "expected a URL"),
        ("u:p@tcp(h:3306)/db", "expected a URL"),
        ("MySQL://u@h", "expected a URL"),
        ("mysql://u@[::1", "expected a URL"),
        ("mysql://u@h?ssl-mode", "expected a URL"),
        (
            "mysql://u@",
            "expected a host: a name, an address, or the path of a unix socket",
        ),
        ("mysql://u@/d", "expected a host"),
        ("mysql://h/d", "expected a user before the host"),
        ("mysql://:p@h/d", "expected a user before the host"),
        ("mysql://u@h:0", "option `port`: expected a port number from 1 to 65535"),
        ("mysql://u@h:65536", "option `port`: expected a port number"),
        ("mysql://u@h:x", "option `port`: expected a port number"),
        ("mysql://u@h1:1,h2:x/d", "option `port`: expected a port number"),
        (
            "mysql://u@h1,,h2/d",
            "option `host`: expected a name or an address between two commas",
        ),
        ("mysql://u@h1,%2Fs/d", "option `host`: expected a name or an address"),
        ("mysql://u@h1,h2/d?socket=/s", "`socket` beside a host"),
        (
            "mysql://u@h?connect-timeout=0",
            "option `connect-timeout`: expected whole seconds, 1 or more",
        ),
        (
            "mysql://u@h?connect_timeout=1.5",
            "option `connect-timeout`: expected whole seconds",
        ),
        (
            "mysql://u@h?ssl-mode=preferred&ssl_mode=required",
            "option `ssl-mode` is given more than once",
        ),
        ("mysql://u:100%@h", "the password holds a %"),
        ("mysql://u:%zz@h", "the password holds a %"),
        ("mysql://u:p%00@h", "a zero byte, which MySQL cannot take"),
        ("mysql://u:%ff@h", "option `password`: expected UTF-8 text"),
        ("mysql://u@h/%ff", "option `database`: expected UTF-8 text"),
        ("mysql://u:p@x@h/d", "percent-encode"),
        ("mysql://u:p/x@h/d", "percent-encode"),
        ("mysql://u@h?whatever=1", "option 1 is not known"),
        (
            "mysql://u@h?a=&ssl-mod=required",
            "option 2 is not known; did you mean `ssl-mode`?",
        ),
        (
            "mysql://u@h?sslMode=REQUIRED",
            "option 1 is not known; did you mean `ssl-mode`?",
        ),
        ("mysql://u@h?Socket=/s", "option 1 is not known; did you mean `socket`?"),
    ] {
        let found = messages(text).join("\n");
        assert!(found.contains(expected), "{text}: {found}");
    }
    assert_eq!(messages("mysql://h:0?ssl-mode=no&x=y&require_ssl=true").len(), 5);
    assert_eq!(messages("mysql://h:0").len(), 2);
}

#[test]
fn options_of_other_clients_are_refused_with_what_to_write() {
    let by_mode = "say by `ssl-mode` what is verified";
    for (option, remedy) in [
        ("require_ssl=true", by_mode),
        ("verify_ca=false", by_mode),
        ("verify_identity=true", by_mode),
        ("useSSL=false", by_mode),
        ("requireSSL=true", by_mode),
        ("tls=skip-verify", by_mode),
        ("trustCertificateKeyStoreUrl=file:x", "by `ssl-ca`"),
        ("clientCertificateKeyStoreUrl=file:x", "by `ssl-cert` and `ssl-key`"),
        ("connectTimeout=5000", "by `connect-timeout`, in seconds"),
        ("timeout=5s", "by `connect-timeout`, in seconds"),
        ("unix_socket=/s", "by `socket`"),
        ("user=u", "before the options"),
        ("password=hunter2", "before the options"),
    ] {
        let name = option.split_once('=').unwrap().0;
        let found = message(&format!("mysql://u@h?{option}"));
        assert!(
            found.starts_with(&format!("option `{name}` is another client's: ")) && found.contains(remedy),
            "{found}"
        );
    }
    for name in UNSUPPORTED {
        let expected = format!("option `{name}` is not supported: remove it");
        assert_eq!(message(&format!("mysql://u@h?{name}=1")), expected);
        assert_eq!(message(&format!("mysql://u@h?{}=1", name.to_lowercase())), expected);
    }
}

#[test]
fn odd_passwords_are_read_and_never_shown() {
    for (written, meant) in [
        ("p:a:b", "p:a:b"),
        ("p#a?b&c=d", "p#a?b&c=d"),
        ("p%40%2F%25", "p@/%"),
        ("p$x ${y}", "p$x ${y}"),
        ("p'\\\"", "p'\\\""),
        ("päß", "päß"),
    ] {
        let dsn = parse(&format!("mysql://me:{written}@h/d"));
        assert_eq!(password(&dsn), Some(meant), "{written}");
        for shown in [dsn.to_string(), dsn.redacted(), format!("{dsn:?}"), format!("{dsn:#?}")] {
            assert!(!shown.contains(meant) && !shown.contains(written), "{shown}");
        }
    }
}

#[test]
fn display_is_a_url_without_the_password() {
    for (text, shown) in [
        ("mysql://user:pw@h:3307/db?ssl-mode=disabled", "mysql://user@h:3307/db"),
        ("mariadb://user:pw@h", "mysql://user@h:3306"),
        ("mysql://x%20y:pw@[::1]:1/d%2Fe", "mysql://x%20y@[::1]:1/d%2Fe"),
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
            0 => format!("mysql://u:{password}@h/d?ssl-mode=x"),
            1 => format!("mysql://u:{password}@h:x"),
            2 => format!("mysql://u@h/d?ssl-ca={password}"),
            3 => format!("mysql://u:{password}"),
            _ => format!("mysql://u@h/d?password={password}&x=y"),
        };
        // A user, host or database may be shown: an unencoded password that the URL's rules take for one of these is none any more.
        match MysqlDsn::parse(&text) {
            Ok(dsn) => {
                let visible = [Some(&dsn.user), dsn.database.as_ref()].into_iter().flatten().any(|part| part.contains(MARK))
                    || dsn.hosts.iter().any(|host| host.to_string().contains(MARK));
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
        let _ = MysqlDsn::parse(&text);
        let _ = MysqlDsn::parse(&format!("mysql://{rest}"));
        let _ = MysqlDsn::parse(&format!("mysql://u@h?{rest}"));
    }

    #[test]
    fn what_is_encoded_reads_back(user in "[^\\x00]{1,20}", secret in "[^\\x00]{1,20}", database in "[^\\x00]{1,20}") {
        let [u, p, d] = [&user, &secret, &database].map(|part| percent_encode(part));
        let dsn = parse(&format!("mysql://{u}:{p}@h/{d}"));
        prop_assert_eq!(password(&dsn), Some(secret.as_str()));
        prop_assert_eq!((&dsn.user, dsn.database.as_deref()), (&user, Some(database.as_str())));
        prop_assert_eq!(dsn.to_string(), format!("mysql://{u}@h:3306/{d}"));
    }
}
