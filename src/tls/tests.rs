//! Handshakes with a server of this process, whose certificate is made for each test.

use std::fs;

use rcgen::{BasicConstraints, CertificateParams, IsCa, KeyPair};
use rustls::ServerConfig;
use tempfile::TempDir;
use tokio_rustls::{TlsAcceptor, TlsConnector};

use super::*;

struct Server {
    config: Arc<ServerConfig>,
    /// A file with the certificate, as sslrootcert takes it.
    root: PathBuf,
    _folder: TempDir,
}

/// A server for `localhost` that signed its own certificate, as a CA or as a plain one.
fn self_signed(is_ca: bool) -> Server {
    let mut params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
    if is_ca {
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    }
    let key = KeyPair::generate().unwrap();
    let certificate = params.self_signed(&key).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().join("root.crt");
    fs::write(&root, certificate.pem()).unwrap();
    let private = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate.der().clone()], private)
        .unwrap();
    Server {
        config: Arc::new(config),
        root,
        _folder: folder,
    }
}

fn ssl(mode: SslMode, root_cert: Option<&Path>) -> Ssl {
    Ssl {
        mode,
        root_cert: root_cert.map(Path::to_owned),
        client_cert: None,
        client_key: None,
    }
}

async fn handshake(server: &Server, ssl: &Ssl, host: &str) -> Result<(), String> {
    let (near, far) = tokio::io::duplex(16 << 10);
    let acceptor = TlsAcceptor::from(Arc::clone(&server.config));
    let accepting = tokio::spawn(async move { acceptor.accept(far).await.map(drop) });
    let connector = TlsConnector::from(client_config(ssl, LIBPQ).unwrap());
    let name = ServerName::try_from(host.to_owned()).unwrap();
    let result = connector.connect(name, near).await;
    let result = result.map(drop).map_err(|error| error.to_string());
    // The server's own view of a refusal is no matter.
    let _ = accepting.await.unwrap();
    result
}

#[tokio::test]
async fn require_takes_any_certificate_and_verify_ca_only_a_known_one() {
    let (server, other) = (self_signed(false), self_signed(false));
    handshake(&server, &ssl(SslMode::Require, None), "elsewhere")
        .await
        .unwrap();
    handshake(&server, &ssl(SslMode::VerifyCa, Some(&server.root)), "elsewhere")
        .await
        .unwrap();
    let refused = handshake(&server, &ssl(SslMode::VerifyCa, Some(&other.root)), "localhost").await;
    assert!(refused.unwrap_err().contains("certificate"));
}

#[tokio::test]
async fn a_ca_that_is_the_servers_own_certificate_is_taken_as_pinned() {
    let server = self_signed(true);
    handshake(&server, &ssl(SslMode::VerifyCa, Some(&server.root)), "elsewhere")
        .await
        .unwrap();
    handshake(&server, &ssl(SslMode::VerifyFull, Some(&server.root)), "localhost")
        .await
        .unwrap();
    let other = self_signed(true);
    handshake(&server, &ssl(SslMode::VerifyCa, Some(&other.root)), "localhost")
        .await
        .unwrap_err();
}

#[tokio::test]
async fn verify_full_asks_for_the_hosts_name_also_of_a_pinned_certificate() {
    for is_ca in [false, true] {
        let server = self_signed(is_ca);
        let full = ssl(SslMode::VerifyFull, Some(&server.root));
        handshake(&server, &full, "localhost").await.unwrap();
        handshake(&server, &full, "elsewhere").await.unwrap_err();
    }
}

#[test]
fn a_certificate_binds_the_channel_by_its_signatures_hash() {
    let key = KeyPair::generate_for(&rcgen::PKCS_ECDSA_P384_SHA384).unwrap();
    let params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
    let certificate = params.self_signed(&key).unwrap();
    assert_eq!(server_end_point(certificate.der()).map(|hash| hash.len()), Some(48));
    let key = KeyPair::generate_for(&rcgen::PKCS_ED25519).unwrap();
    let params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
    assert_eq!(server_end_point(params.self_signed(&key).unwrap().der()), None);
}

#[test]
fn files_that_cannot_be_used_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("empty.crt");
    fs::write(&path, "no certificate").unwrap();
    let text = client_config(&ssl(SslMode::VerifyCa, Some(&path)), LIBPQ)
        .unwrap_err()
        .to_string();
    assert!(text.contains("empty.crt") && text.contains("sslrootcert"), "{text}");
}
