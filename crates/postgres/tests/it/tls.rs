//! Connections by TLS, to a server with a certificate of an authority that only some clients trust.

use std::{
    fs,
    io::{BufRead as _, BufReader},
    net::TcpListener,
    path::Path,
    process::{Command, Stdio},
};

use futures::StreamExt as _;
use superstep_graph::{Checkpointer, ThreadId};
use superstep_postgres::{PostgresCheckpointer, PostgresOptions};

use crate::{
    server::{Server, shared},
    support::line,
};

const URL: &str = "SUPERSTEP_TEST_TLS_URL";

/// The file of authorities that a client trusts.
const TRUSTED: &str = "SSL_CERT_FILE";

const ADDRESS: &str = "127.0.0.1";

/// The host in the certificate.
const HOST: &str = "db.test";

/// Creates an authority; `None` if openssl is not installed.
fn authority(folder: &Path, name: &str) -> Option<()> {
    let subject = format!("/CN={name}");
    let (key, file) = (format!("{name}.key"), format!("{name}.pem"));
    let mut made = openssl(folder);
    made.args([
        "req",
        "-x509",
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:P-256",
        "-nodes",
        "-days",
        "2",
    ]);
    let made = made.args(["-subj", &subject, "-keyout", &key, "-out", &file]).output().ok()?;
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    Some(())
}

/// Creates the key and the certificate of the server.
fn certificate(folder: &Path) {
    let settings =
        format!("subjectAltName=DNS:{HOST}\nbasicConstraints=CA:FALSE\nextendedKeyUsage=serverAuth\n");
    fs::write(folder.join("settings"), settings).unwrap();
    let mut request = openssl(folder);
    request.args([
        "req",
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:P-256",
        "-nodes",
        "-subj",
        "/CN=server",
    ]);
    request.args(["-keyout", "server.key", "-out", "server.csr"]);
    let mut signed = openssl(folder);
    signed.args([
        "x509",
        "-req",
        "-in",
        "server.csr",
        "-CA",
        "ours.pem",
        "-CAkey",
        "ours.key",
        "-CAcreateserial",
    ]);
    signed.args(["-days", "2", "-extfile", "settings", "-out", "server.pem"]);
    for mut command in [request, signed] {
        let made = command.output().unwrap();
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    }
}

fn openssl(folder: &Path) -> Command {
    let mut command = Command::new("openssl");
    command.current_dir(folder);
    command
}

/// Starts a server again so that it listens on a free port, and returns the port.
fn listen(server: &Server, settings: &[String]) -> u16 {
    server.stop();
    // Another process may take the port before the server does.
    let port = (0..20).find_map(|_| {
        let port = TcpListener::bind((ADDRESS, 0)).unwrap().local_addr().unwrap().port();
        let listens = [format!("listen_addresses={ADDRESS}"), format!("port={port}")];
        server.try_run_with(&[settings, &listens].concat()).then_some(port)
    });
    port.expect("the server listens on a port")
}

fn url(port: u16, host: &str, mode: &str) -> String {
    format!("postgres://test@{host}:{port}/postgres?hostaddr={ADDRESS}{mode}")
}

/// Starts another process that trusts an authority, and returns what it says.
fn client(url: &str, trusted: &Path) -> String {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "tls::the_client", "--nocapture"]).env(URL, url).env(TRUSTED, trusted);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
    let message = lines.filter_map(|line| Some(line.split_once("client: ")?.1.to_owned())).last();
    child.wait().unwrap();
    message.expect("the client reports a result")
}

/// Runs in the other process only.
#[tokio::test]
async fn the_client() {
    let Ok(url) = std::env::var(URL) else { return };
    let store = match PostgresCheckpointer::open(PostgresOptions::new(url).schema("tls")) {
        Ok(store) => store,
        Err(error) => {
            println!("client: {}", superstep_graph::error::chain(&error));
            return;
        }
    };
    let thread = ThreadId::from("t");
    let _lease = store.lease(&thread).await.unwrap();
    let mut changes = store.changes(&thread).unwrap();
    changes.next().await.unwrap();
    store.delete(&thread).await.unwrap();
    line(&store, &thread, 2).await;
    changes.next().await.unwrap();
    println!("client: stored");
}

#[test]
fn connections_are_encrypted_and_certificates_verified() {
    if shared().is_none() {
        return;
    }
    let folder = tempfile::Builder::new().prefix("superstep-tls").tempdir_in("/tmp").unwrap();
    let path = folder.path();
    if authority(path, "ours").is_none() {
        superstep_testing::skipped("openssl is not installed, so that TLS is not tested");
        return;
    }
    authority(path, "other").unwrap();
    certificate(path);
    if rustix::process::geteuid().is_root() {
        // The server runs as another user, and wants its key to be its own.
        for file in [path.to_owned(), path.join("server.key"), path.join("server.pem")] {
            std::os::unix::fs::chown(file, Some(65534), Some(65534)).unwrap();
        }
    }
    let server = Server::start(&["fsync=off"]).unwrap();
    // The server reads them when it starts.
    let rules = server.folder().join("data/pg_hba.conf");
    let allow = |kind: &str| {
        fs::write(&rules, format!("local all all trust\n{kind} all all all trust\n")).unwrap();
    };
    // Only clients with TLS are let in.
    allow("hostssl");
    let [certificate, key] = ["server.pem", "server.key"].map(|file| path.join(file).display().to_string());
    let files = ["ssl=on".to_owned(), format!("ssl_cert_file={certificate}"), format!("ssl_key_file={key}")];
    let plain = ["fsync=off".to_owned()];
    let port = listen(&server, &[&files[..], &plain].concat());
    let (ours, other) = (path.join("ours.pem"), path.join("other.pem"));
    for mode in ["&sslmode=require", "&sslmode=prefer", ""] {
        assert_eq!(client(&url(port, HOST, mode), &ours), "stored", "{mode}");
        for (host, trusted) in [(HOST, &other), ("elsewhere.test", &ours)] {
            let error = client(&url(port, host, mode), trusted);
            assert!(
                error.contains("the server's certificate is not valid; check the host in the URL"),
                "{error}"
            );
        }
    }
    let error = client(&url(port, HOST, "&sslmode=disable"), &ours);
    assert!(error.contains("no encryption"), "{error}");
    // Without TLS in the server, `prefer` does without, and `require` does not.
    allow("host");
    let port = listen(&server, &plain);
    assert_eq!(client(&url(port, HOST, ""), &other), "stored");
    let error = client(&url(port, HOST, "&sslmode=require"), &ours);
    assert!(error.contains("the server offers no TLS, which the URL requires"), "{error}");
}
