//! A real cluster and its brokers: one of a test's own, or the one that `script/kafka run` started for the suite.

use super::Scratch;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Brokers that can be killed, frozen and restarted, by their numbers from 1.
pub struct Cluster {
    pub bootstrap: String,
    dir: PathBuf,
    /// Of a cluster of this test's own, which is stopped when the test ends, however it ends.
    own: Option<Scratch>,
}

impl Cluster {
    /// One of this test's own, with these options of `script/kafka start`.
    pub fn start(options: &[&str]) -> Cluster {
        let scratch = Scratch::new("cluster");
        let dir = scratch.0.join("kafka");
        let mut arguments = vec!["start", "--dir", dir.to_str().expect("a plain path")];
        arguments.extend(options);
        let output = script(&arguments);
        let line = output.lines().find_map(|line| line.strip_prefix("KAFKA_BOOTSTRAP="));
        let bootstrap = line.expect("script/kafka start prints it").trim_matches(['\'', '"']).to_owned();
        Cluster { bootstrap, dir, own: Some(scratch) }
    }

    /// The suite's own, if it has this many brokers; otherwise one is started.
    pub fn of(brokers: usize) -> Cluster {
        let given = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        if let (Some(bootstrap), Some(dir)) = (given("KAFKA_BOOTSTRAP"), given("KAFKA_DIR"))
            && bootstrap.split(',').count() == brokers
        {
            return Cluster { bootstrap, dir: dir.into(), own: None };
        }
        Cluster::start(&["--brokers", &brokers.to_string()])
    }

    /// `kill`, `freeze`, `thaw`, `restart` or `stop` of `script/kafka`.
    pub fn order(&self, what: &str, brokers: &[u32]) {
        let numbers: Vec<String> = brokers.iter().map(u32::to_string).collect();
        let mut arguments = vec![what, self.dir.to_str().expect("a plain path")];
        arguments.extend(numbers.iter().map(String::as_str));
        script(&arguments);
    }

    /// From now on broker 1 sends its clients to this address, at which something must pass on to its own: it answers only
    /// when that does.
    pub fn advertise(&self, address: &str) {
        let file = self.dir.join("broker-1/server.properties");
        let text = std::fs::read_to_string(&file).expect("the broker's settings");
        let line = |line: &str| match line.starts_with("advertised.listeners=") {
            true => format!("advertised.listeners=PLAINTEXT://{address}\n"),
            false => format!("{line}\n"),
        };
        std::fs::write(&file, text.lines().map(line).collect::<String>()).expect("the broker's settings");
        self.order("restart", &[1]);
    }

    /// Files of the cluster, such as the settings of its users.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// One of Kafka's command line tools.
    pub fn tool(&self, name: &str, arguments: &[&str]) -> String {
        let mut all = vec!["tool", name, "--bootstrap-server", &self.bootstrap];
        all.extend(arguments);
        script(&all)
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if self.own.is_some() {
            // A failure to stop is the script's to report; the test has its verdict by then.
            let _ = Command::new(in_tree("script/kafka")).arg("stop").arg(&self.dir).status();
        }
    }
}

fn in_tree(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

fn script(arguments: &[&str]) -> String {
    let output = Command::new(in_tree("script/kafka"))
        .args(arguments)
        .stderr(Stdio::inherit())
        .output()
        .expect("script/kafka can be run");
    assert!(output.status.success(), "script/kafka {arguments:?}: {}", output.status);
    String::from_utf8(output.stdout).expect("it prints text")
}
