//! The set of backends depends on the features; every scheme gets an answer in any case.

use synod_core::error::ErrorKind;

use crate::config::Config;

#[test]
fn every_url_is_answered_by_its_backend_or_by_the_feature_that_is_missing() {
    let table = [
        ("mem://", "mem", cfg!(feature = "mem")),
        ("file:///var/lib/app", "file", cfg!(feature = "file")),
        ("zk://h:1", "zookeeper", cfg!(feature = "zookeeper")),
        ("zks://h:1", "zookeeper", cfg!(feature = "zookeeper")),
        ("etcd://h:1", "etcd", cfg!(feature = "etcd")),
        ("etcds://h:1", "etcd", cfg!(feature = "etcd")),
    ];
    for (url, feature, is_on) in table {
        let answer = Config::new(url).expect("valid").backend();
        let missing = answer.err().filter(|error| error.to_string().contains("switch on"));
        assert_eq!(missing.is_none(), is_on, "{url}");
        if let Some(error) = missing {
            assert_eq!(error.kind(), ErrorKind::Unsupported);
            assert!(error.to_string().contains(&format!("`{feature}`")), "{error}");
        }
    }
}

#[cfg(feature = "etcd")]
#[test]
fn etcd_takes_its_own_parameters_and_no_password_in_plain_text() {
    let table = [
        ("etcd://h:1?timeout=5s", true),
        ("etcd://h:1?timeout=soon", false),
        ("etcd://h:1?server_name=x", false),
        ("etcds://h:1?server_name=x&timeout=1s", true),
        ("etcd://ann:canary@h:1", false),
        ("etcd://ann:canary@h:1?plaintext=allow", true),
        ("etcd://ann:canary@h:1?plaintext=refuse", false),
        ("etcd://ann:canary@h:1?plaintext=yes", false),
        ("etcds://ann:canary@h:1?plaintext=allow", false),
        ("etcd://ann:canary@localhost:1", true),
        ("etcds://ann:canary@h:1", true),
    ];
    for (url, is_fine) in table {
        let answer = Config::new(url).and_then(|config| config.backend());
        assert_eq!(answer.is_ok(), is_fine, "{url}");
        if let Err(error) = answer {
            assert_eq!(error.kind(), ErrorKind::Invalid, "{url}");
            assert!(!error.to_string().contains("canary"), "{error}");
        }
    }
}

#[cfg(feature = "zookeeper")]
#[test]
fn zks_is_never_spoken_in_the_clear() {
    let answer = Config::new("zks://h:1?acl=open").expect("valid").backend();
    // The authorities of this system are trusted, if there are any.
    match answer {
        Ok(backend) => assert!(format!("{backend:?}").contains("tls: Some(Tls"), "{backend:?}"),
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::Invalid);
            assert!(error.to_string().contains("?ca="), "{error}");
        }
    }
}

#[cfg(feature = "zookeeper")]
#[test]
fn what_a_zookeeper_url_says_of_the_connection_is_checked() {
    let open = |url: &str| Config::new(url).expect("valid").backend();
    let table = [
        ("zk://ann:canary-7f3a@h", Some("?plaintext=allow")),
        ("zk://ann:canary-7f3a@h?plaintext=refuse", Some("?plaintext=allow")),
        ("zk://ann:canary-7f3a@h?plaintext=yes", Some("allow or refuse")),
        ("zk://ann:canary-7f3a@h?plaintext=allow", None),
        ("zk://ann:canary-7f3a@localhost", None),
        ("zk://localhost?identity=ann:canary-7f3a&identity=bob:canary-7f3a", None),
        ("zk://h?identity=ann:canary-7f3a", Some("?plaintext=allow")),
        ("zk://localhost?identity=:canary-7f3a", Some("holds no colon")),
        ("zk://h?acl=/a=world:r;open", None),
        ("zk://h?acl=/=world:anyone:cdr", None),
        ("zk://h?acl=/a=open", Some("access rights of new nodes are not set")),
        ("zk://h?acl=/a=creator;open", Some("needs the identity")),
        ("zk://ann:canary-7f3a@localhost?acl=/a=world:r,creator:all;/a/b=creator", None),
        ("zk://h?acl=", Some("lists by path")),
        ("zk://h?acl=opne", Some("lists by path")),
        ("zk://h?acl=open;creator", Some("once")),
        ("zk://h?acl=/a=open;/a=world:r", Some("two lists for /a")),
        ("zk://h?acl=a=open", Some("starts with /")),
        ("zk://h?acl=/a=world:x", Some("letters of cdrwa")),
        ("zk://h?acl=/a=digest:ann:canary-7f3a:r", Some("never the password")),
        ("zk://h?acl=open&heartbeat=read", Some("sync or write")),
        ("zk://h?acl=open&heartbeat=write&tick=100ms", None),
    ];
    for (url, because) in table {
        let refused = open(url).err().map(|error| error.to_string());
        assert_eq!(refused.is_some(), because.is_some(), "{url}: {refused:?}");
        if let (Some(refused), Some(because)) = (refused, because) {
            assert!(refused.contains(because), "{url}: {refused}");
            assert!(!refused.contains("canary"), "{refused}");
        }
    }
}

#[cfg(all(feature = "etcd", feature = "zookeeper"))]
#[test]
fn a_file_of_certificates_is_read_or_the_error_says_why_not() {
    let name = format!("synod-tls-{}", std::process::id());
    let (file, missing) = (std::env::temp_dir().join(&name), std::env::temp_dir().join(name + "x"));
    std::fs::write(&file, "# no certificate\n").expect("written");
    for scheme in ["etcds", "zks"] {
        for (file, because) in
            [(&file, "has no certificate"), (&missing, "cannot be read: No such file")]
        {
            let url = format!("{scheme}://h:1?ca={}", file.display());
            let url = if scheme == "zks" { url + "&acl=open" } else { url };
            let error = Config::new(&url).expect("valid").backend().expect_err("no authority");
            assert_eq!(error.kind(), ErrorKind::Invalid, "{url}");
            assert!(error.to_string().contains(because), "{url}: {error}");
        }
    }
    std::fs::remove_file(&file).expect("it is there");
}

#[cfg(any(feature = "zookeeper", feature = "etcd"))]
#[tokio::test]
async fn servers_that_refuse_are_told_from_a_server_that_is_silent() {
    use std::net::TcpListener;
    use std::time::Duration;

    use synod_core::error::ErrorKind;
    use synod_core::store::SessionOptions;

    let opened = async |url: String| {
        let backend = Config::new(&url).and_then(|config| config.backend()).expect("valid");
        let error = backend.open(&SessionOptions::new(Duration::from_secs(1))).await;
        let error = error.expect_err("there is no server");
        assert_eq!(error.kind(), ErrorKind::Unreachable, "{error}");
        error.has_no_server()
    };
    let bind = || TcpListener::bind("127.0.0.1:0").expect("a free port");
    // The operating system accepts connections, and no server answers.
    let silent = bind();
    let silent = (silent.local_addr().expect("it is bound"), silent);
    let gone = bind().local_addr().expect("it is bound");
    let ways = [
        ("zk", "acl=open", cfg!(feature = "zookeeper")),
        ("etcd", "timeout=1s", cfg!(feature = "etcd")),
    ];
    for (scheme, parameter, _) in ways.into_iter().filter(|(_, _, is_compiled_in)| *is_compiled_in)
    {
        let url = |hosts: &str| format!("{scheme}://{hosts}?{parameter}");
        assert!(opened(url(&gone.to_string())).await, "{scheme}: refused");
        assert!(opened(url(&format!("no-such-host.invalid,{gone}"))).await, "{scheme}: unknown");
        assert!(!opened(url(&silent.0.to_string())).await, "{scheme}: silent");
    }
}

#[cfg(feature = "file")]
#[test]
fn a_directory_takes_no_host_no_user_and_no_unknown_parameter() {
    let table = [
        ("file:///var/lib/app", true),
        ("file:///var/lib/app?session=5s&fs=unchecked", true),
        ("file:///var/lib/app?fs=nfs", false),
        ("file:///var/lib/app?linger=true", true),
        ("file:///var/lib/app?linger=1s", false),
        ("file:///var/lib/app?group=app", false),
        ("file://", false),
        ("file:///", false),
        ("file://ann:canary@/var/lib/app", false),
    ];
    for (url, fine) in table {
        let answer = Config::new(url).expect("valid").backend();
        assert_eq!(answer.is_ok(), fine, "{url}: {answer:?}");
        assert!(!format!("{answer:?}").contains("canary"));
    }
    let error = Config::new("file://host/var/lib/app").expect_err("no host");
    assert!(error.to_string().contains("three slashes"), "{error}");
}
