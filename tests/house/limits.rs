//! Each trial of a test binary with servers has a time limit.

use crate::tree::{File, catches, code, holds, spares};

const TRIAL: &str = "Trial::test(";

#[test]
fn each_trial_has_a_time_limit() {
    catches(unlimited, "tests/a.rs", "Trial::test(name, move || play(scene))");
    catches(unlimited, "tests/a.rs", "fn play() { run() }\nTrial::test(name, || play())");
    catches(unlimited, "tests/a.rs", "limited(LIMIT, a)?;\nTrial::test(name, move || (scene)())");
    catches(
        unlimited,
        "tests/a.rs",
        "Trial::test(a, || limited(LIMIT, a));\nTrial::test(b, || b())",
    );
    catches(unlimited, "tests/a.rs", "Trial::test(name, || /* limited( */ play())");
    catches(unlimited, "tests/a.rs", "Trial::test(name, || unlimited(play))");
    spares(
        unlimited,
        "tests/a.rs",
        "Trial::test(name, move || limited(LIMIT, move || play(scene)))",
    );
    spares(
        unlimited,
        "tests/a.rs",
        "fn play() {\n    limited(LIMIT, run)\n}\nTrial::test(name, || play())",
    );
    spares(unlimited, "tests/a.rs", "Trial::test(name, || Ok(())).with_ignored_flag(true)");
    spares(unlimited, "tests/a.rs", "// Trial::test(name, || play())");

    holds(unlimited);
}

/// Trials whose work is not given to `limited`, in the call itself or in a function of the file
/// that it calls. A trial without work needs no limit.
fn unlimited(file: &File) -> Vec<String> {
    if !file.is_rust() || file.path.starts_with("tests/house/") {
        return Vec::new();
    }
    let code = code(&file.text);
    let trials =
        code.match_indices(TRIAL).map(|(at, _)| (at, arguments(&code[at + TRIAL.len()..])));
    let unlimited = trials.filter(|(_, trial)| {
        !trial.ends_with("|| Ok(())")
            && !calls(trial).any(|name| name == "limited" || is_limited(&code, name))
    });
    unlimited.map(|(at, _)| file.offence(at, "a trial without a time limit (`limited`)")).collect()
}

/// The text up to the parenthesis that closes the call.
fn arguments(text: &str) -> &str {
    let mut open = 1;
    let end = text.find(|letter| {
        open += i32::from(letter == '(') - i32::from(letter == ')');
        open == 0
    });
    &text[..end.unwrap_or(text.len())]
}

/// The names of the functions that are called.
fn calls(text: &str) -> impl Iterator<Item = &str> {
    text.match_indices('(').map(|(at, _)| {
        let name = |letter: char| letter.is_alphanumeric() || letter == '_';
        text[..at].rsplit(|letter| !name(letter)).next().unwrap_or_default()
    })
}

/// Returns `true` if the function of this name passes its work to `limited`.
fn is_limited(code: &str, name: &str) -> bool {
    let body = |(_, after): (&str, &str)| {
        let end = after.find("\n}").unwrap_or(after.len());
        calls(&after[..end]).any(|name| name == "limited")
    };
    !name.is_empty() && code.split_once(&format!("fn {name}(")).is_some_and(body)
}
