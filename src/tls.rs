//! TLS to a server, on rustls, as libpq's `sslmode` and MySQL's `ssl-mode` have it.
//!
//! | sslmode (ssl-mode) | the server's certificate |
//! |---|---|
//! | prefer (preferred), require (required) | not looked at, unless root certificates are named: then as verify-ca |
//! | verify-ca | must chain to the named root certificates, or to the system's |
//! | verify-full (verify-identity) | the same, and must name the host |
//!
//! A self-signed certificate that is itself among the named root certificates is taken as pinned: libpq accepts such a server, and
//! webpki by itself would refuse any CA certificate that a server shows as its own.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};
use sha2::{Digest, Sha256, Sha384, Sha512};
use x509_cert::Certificate;
use x509_cert::der::Decode;

use crate::config::{Ssl, SslMode};

/// What keeps a TLS client from being set up.
#[derive(Debug, thiserror::Error)]
pub enum TlsSetupError {
    #[error("read {what} `{}`", path.display())]
    Read {
        what: &'static str,
        path: PathBuf,
        source: rustls::pki_types::pem::Error,
    },
    #[error("{what} `{}` holds no certificate: expected PEM", path.display())]
    Empty { what: &'static str, path: PathBuf },
    #[error("this system has no root certificates: name the server's CA with {option}")]
    NoSystemRoots { option: &'static str },
    #[error("set up TLS")]
    Rustls(#[from] rustls::Error),
    #[error("set up the verification of the server's certificate")]
    Verifier(#[from] rustls::client::VerifierBuilderError),
}

/// How the pipeline file calls its certificate files, for errors.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FileOptions {
    root: &'static str,
    cert: &'static str,
    key: &'static str,
}

pub(crate) const LIBPQ: FileOptions = FileOptions {
    root: "sslrootcert",
    cert: "sslcert",
    key: "sslkey",
};

pub(crate) const MYSQL: FileOptions = FileOptions {
    root: "ssl-ca",
    cert: "ssl-cert",
    key: "ssl-key",
};

pub(crate) const HTTP: FileOptions = FileOptions {
    root: "tls.ca",
    cert: "tls.cert",
    key: "tls.key",
};

/// Whether TLS itself said no; otherwise the connection broke under it.
pub(crate) fn is_tls_verdict(error: &io::Error) -> bool {
    error.get_ref().is_some_and(|inner| inner.is::<rustls::Error>())
}

/// The client's side of TLS.
///
/// # Errors
/// When a certificate or key file cannot be used: the file must be mended.
pub(crate) fn client_config(ssl: &Ssl, names: FileOptions) -> Result<Arc<ClientConfig>, TlsSetupError> {
    let provider = Arc::new(ring::default_provider());
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider)).with_safe_default_protocol_versions()?;
    let verifier = Arc::new(verifier(ssl, names, provider)?);
    let builder = builder.dangerous().with_custom_certificate_verifier(verifier);
    let config = match (&ssl.client_cert, &ssl.client_key) {
        (Some(cert), Some(key)) => {
            let chain = certificates(names.cert, cert)?;
            let key = PrivateKeyDer::from_pem_file(key).map_err(|source| TlsSetupError::Read {
                what: names.key,
                path: key.clone(),
                source,
            })?;
            builder.with_client_auth_cert(chain, key)?
        }
        _ => builder.with_no_client_auth(),
    };
    Ok(Arc::new(config))
}

fn certificates(what: &'static str, path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsSetupError> {
    let read = |source| TlsSetupError::Read {
        what,
        path: path.to_owned(),
        source,
    };
    let list: Vec<_> = CertificateDer::pem_file_iter(path)
        .map_err(read)?
        .collect::<Result<_, _>>()
        .map_err(read)?;
    if list.is_empty() {
        return Err(TlsSetupError::Empty {
            what,
            path: path.to_owned(),
        });
    }
    Ok(list)
}

fn verifier(ssl: &Ssl, names: FileOptions, provider: Arc<CryptoProvider>) -> Result<Verifier, TlsSetupError> {
    let (chain, pinned) = match (ssl.mode, &ssl.root_cert) {
        (SslMode::Disable | SslMode::Prefer | SslMode::Require, None) => (None, Vec::new()),
        (_, Some(path)) if path != Path::new("system") => {
            let given = certificates(names.root, path)?;
            let mut roots = RootCertStore::empty();
            roots.add_parsable_certificates(given.iter().cloned());
            (Some(roots), given)
        }
        _ => {
            let mut roots = RootCertStore::empty();
            roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
            if roots.is_empty() {
                return Err(TlsSetupError::NoSystemRoots { option: names.root });
            }
            (Some(roots), Vec::new())
        }
    };
    let chain = chain
        .map(|roots| WebPkiServerVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider)).build())
        .transpose()?;
    Ok(Verifier {
        provider,
        chain,
        pinned,
        host: ssl.mode == SslMode::VerifyFull,
    })
}

/// Checks as much of the server's certificate as the sslmode asks for.
#[derive(Debug)]
struct Verifier {
    provider: Arc<CryptoProvider>,
    /// None: any certificate will do.
    chain: Option<Arc<WebPkiServerVerifier>>,
    /// Certificates taken as the server's own, without a chain.
    pinned: Vec<CertificateDer<'static>>,
    /// Whether the certificate must name the host.
    host: bool,
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let Some(chain) = &self.chain else {
            return Ok(ServerCertVerified::assertion());
        };
        let name_is_wrong = |error: &rustls::Error| {
            matches!(
                error,
                rustls::Error::InvalidCertificate(
                    CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. }
                )
            )
        };
        match chain.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now) {
            Ok(verified) => Ok(verified),
            Err(error) if name_is_wrong(&error) && !self.host => Ok(ServerCertVerified::assertion()),
            Err(error) if !name_is_wrong(&error) && self.pinned.iter().any(|pinned| pinned == end_entity) => {
                within_validity(end_entity, now)?;
                if self.host {
                    rustls::client::verify_server_name(&ParsedCertificate::try_from(end_entity)?, server_name)?;
                }
                Ok(ServerCertVerified::assertion())
            }
            Err(error) => Err(error),
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, cert, dss, &self.provider.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, cert, dss, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

fn within_validity(certificate: &CertificateDer<'_>, now: UnixTime) -> Result<(), rustls::Error> {
    let parsed = Certificate::from_der(certificate)
        .map_err(|_| rustls::Error::InvalidCertificate(CertificateError::BadEncoding))?;
    let validity = parsed.tbs_certificate.validity;
    if now.as_secs() < validity.not_before.to_unix_duration().as_secs() {
        return Err(rustls::Error::InvalidCertificate(CertificateError::NotValidYet));
    }
    if now.as_secs() > validity.not_after.to_unix_duration().as_secs() {
        return Err(rustls::Error::InvalidCertificate(CertificateError::Expired));
    }
    Ok(())
}

/// The server certificate's hash that binds SCRAM to the TLS channel (`tls-server-end-point`, RFC 5929 section 4.1):
/// by the hash of the certificate's own signature, with SHA-256 in place of MD5 and SHA-1.
///
/// None where no hash belongs to the signature, such as Ed25519: the channel cannot be bound.
pub(crate) fn server_end_point(certificate: &CertificateDer<'_>) -> Option<Vec<u8>> {
    let parsed = Certificate::from_der(certificate).ok()?;
    match parsed.signature_algorithm.oid.to_string().as_str() {
        // RSA and ECDSA with MD5, SHA-1 or SHA-256.
        "1.2.840.113549.1.1.4"
        | "1.2.840.113549.1.1.5"
        | "1.2.840.113549.1.1.11"
        | "1.2.840.10045.4.1"
        | "1.2.840.10045.4.3.2" => Some(Sha256::digest(certificate).to_vec()),
        "1.2.840.113549.1.1.12" | "1.2.840.10045.4.3.3" => Some(Sha384::digest(certificate).to_vec()),
        "1.2.840.113549.1.1.13" | "1.2.840.10045.4.3.4" => Some(Sha512::digest(certificate).to_vec()),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
