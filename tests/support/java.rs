//! A server in Java that is a target of the HTTP sink: a process of the test's own, which can be killed and started again.

use std::ffi::OsString;
use std::fs::{self, File};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde_json::Value;
use tempfile::TempDir;

use super::http::{self, Answer};
use super::relay::free_address;
use super::{DEADLINE, eventually, variable};

/// Where this repository keeps what Solr is started with.
const SOLR: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tools/servers/solr");

/// An in-memory store that is written to disk with each transaction.
const REPOSITORY: &str = r#"
@prefix rep: <http://www.openrdf.org/config/repository#> .
@prefix sr: <http://www.openrdf.org/config/repository/sail#> .
@prefix sail: <http://www.openrdf.org/config/sail#> .
@prefix ms: <http://www.openrdf.org/config/sail/memory#> .
[] a rep:Repository ;
   rep:repositoryID "catalog" ;
   rep:repositoryImpl [
       rep:repositoryType "openrdf:SailRepository" ;
       sr:sailImpl [ sail:sailType "openrdf:MemoryStore" ; ms:persist true ; ms:syncDelay 0 ]
   ] .
"#;

/// It takes some seconds of both cores, of which a busy machine has few.
const START: Duration = DEADLINE.saturating_mul(3);

/// See the module's text. Killed at the end.
pub struct JavaServer {
    arguments: Vec<OsString>,
    /// Answered by 200 when it can be worked with.
    ready: &'static str,
    pub address: SocketAddr,
    folder: TempDir,
    child: Option<Child>,
}

impl JavaServer {
    /// Solr with one core, `records`, of `tools/servers/solr`.
    pub fn solr() -> Self {
        let (folder, address) = place();
        let (home, core) = (folder.path().join("home"), Path::new("records"));
        fs::create_dir_all(home.join(core).join("conf")).expect("a folder");
        for file in [
            "solr.xml",
            "records/core.properties",
            "records/conf/schema.xml",
            "records/conf/solrconfig.xml",
        ] {
            fs::copy(Path::new(SOLR).join(file), home.join(file)).expect("copy Solr's home");
        }
        let jars = variable("TAILPOST_TEST_SOLR");
        let arguments = vec![
            format!("-Dsolr.log.dir={}", folder.path().display()).into(),
            "-cp".into(),
            format!("{jars}/*").into(),
            "org.eclipse.jetty.xml.XmlConfiguration".into(),
            format!("{SOLR}/jetty.xml").into(),
            format!("home={}", home.display()).into(),
            format!("port={}", address.port()).into(),
        ];
        Self::start_new(arguments, "/solr/records/select?q=*:*", address, folder)
    }

    /// RDF4J's server with one repository, `catalog`.
    pub fn rdf4j() -> Self {
        let (folder, address) = place();
        let jars = PathBuf::from(variable("TAILPOST_TEST_RDF4J"));
        let arguments = vec![
            format!("-Dorg.eclipse.rdf4j.appdata.basedir={}", folder.path().display()).into(),
            "-jar".into(),
            jar(&jars, "jetty-runner"),
            "--host".into(),
            address.ip().to_string().into(),
            "--port".into(),
            address.port().to_string().into(),
            "--path".into(),
            "/rdf4j-server".into(),
            jar(&jars, "rdf4j-http-server"),
        ];
        let server = Self::start_new(arguments, "/rdf4j-server/protocol", address, folder);
        let made = server.send("PUT", "/rdf4j-server/repositories/catalog", "text/turtle", REPOSITORY);
        assert_eq!(made.code, 204, "{}", made.body);
        server
    }

    fn start_new(arguments: Vec<OsString>, ready: &'static str, address: SocketAddr, folder: TempDir) -> Self {
        let mut server = Self {
            arguments,
            ready,
            address,
            folder,
            child: None,
        };
        server.start();
        server
    }

    /// Starts it where it was before, and waits until it can be worked with.
    pub fn start(&mut self) {
        let log = File::options()
            .create(true)
            .append(true)
            .open(self.log())
            .expect("a log");
        let child = Command::new("java")
            // The cheap compiler: starting is most of what it does.
            .args(["-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xmx512m"])
            .args(&self.arguments)
            .current_dir(self.folder.path())
            .stdin(Stdio::null())
            .stdout(log.try_clone().expect("the log twice"))
            .stderr(log)
            .spawn()
            .expect("start java");
        self.child = Some(child);
        eventually(START, "the server answers", || {
            http::get(self.address, self.ready).is_some_and(|answer| answer.code == 200)
        });
    }

    /// Ends it as a crash does.
    pub fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            child.kill().expect("kill the server");
            child.wait().expect("its end");
        }
    }

    /// Sends a request.
    pub fn send(&self, method: &str, path: &str, content_type: &str, body: &str) -> Answer {
        http::send(self.address, method, path, content_type, body).expect("the server answers")
    }

    /// Asks for JSON.
    pub fn json(&self, path: &str) -> Value {
        let answer = http::get(self.address, path).expect("the server answers");
        serde_json::from_str(&answer.body).unwrap_or_else(|error| panic!("{error}: {}", answer.body))
    }

    fn log(&self) -> PathBuf {
        self.folder.path().join("log")
    }
}

fn place() -> (TempDir, SocketAddr) {
    (tempfile::tempdir().expect("a folder"), free_address())
}

/// The file in a folder whose name begins so.
fn jar(folder: &Path, name: &str) -> OsString {
    let mut files = fs::read_dir(folder).expect("the folder of the server's files");
    let file = files.find_map(|file| {
        let path = file.expect("a file").path();
        path.file_name()?.to_str()?.starts_with(name).then_some(path)
    });
    file.unwrap_or_else(|| panic!("{name} is not in {}", folder.display()))
        .into_os_string()
}

impl Drop for JavaServer {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            let _ = child.kill();
            let _ = child.wait();
        }
        if std::thread::panicking() {
            let log = fs::read_to_string(self.log()).unwrap_or_default();
            let lines: Vec<&str> = log.lines().collect();
            eprintln!("{}", lines[lines.len().saturating_sub(30)..].join("\n"));
        }
    }
}
