//! The limits of the arguments that recipes take from their callers.

use std::time::Duration;

use bytes::Bytes;
use synod_core::path::{MAX_PATH_BYTES, Path};
use synod_testkit::recipe::Trap;

use crate::every::narrow::Narrow;
use crate::every::passing::{Passers, Passing, is_open};
use crate::every::trial::{Trial, each};
use crate::world::World;

cases![
    "L-X-11" needs [ManyUses] catches [NoImplicitParents] => a_path_of_any_length_is_used_or_refused,
    "L-X-11" needs [ManyUses] catches [NoImplicitParents] => a_text_of_any_length_is_taken_or_refused,
    "L-X-11" needs [ManyUses] catches [EmptyIsAbsent TextOnly] => data_of_any_size_is_taken_or_refused,
    "L-X-11" needs [ManyUses] breaks [SumWraps] => a_number_of_any_size_is_taken_or_refused,
    "L-X-11" needs [ManyUses] catches [NoImplicitParents] => a_time_of_any_length_is_taken_or_refused,
    "L-X-11" needs [ManyUses] catches [NoImplicitParents] => a_value_that_cannot_be_read_again_is_in_no_others_way,
    "L-X-11 L-SES-18" needs [ManyUses] breaks [DroppedTicketStays] => a_function_that_panics_is_in_no_others_way,
];

/// The maximum number of bytes that a recipe adds to a name, to a path or to data.
const ROOM: usize = 1_000;

async fn a_path_of_any_length_is_used_or_refused(world: World) {
    let passers = &Passers::new(&world).await;
    let uses = async |trial: &Trial, bytes: usize| {
        let path = long(&trial.path.join(&format!("of-{bytes}")).expect("valid"), bytes);
        let name = format!("{} at a path of {bytes} bytes", trial.it.name);
        let used = world.in_time(&name, trial.it.whole(&passers.ann, &path)).await;
        passers.is_taken(used, &name, &path)
    };
    let uses_of = Trial::all(&world).filter(|trial| !is_open(trial.it.name));
    each(uses_of, async |trial| {
        let (mut least, mut most) = (MAX_PATH_BYTES - ROOM, MAX_PATH_BYTES);
        assert!(uses(&trial, least).await, "{least} bytes are refused");
        if uses(&trial, most).await {
            return;
        }
        while least + 1 < most {
            let bytes = least.midpoint(most);
            *(if uses(&trial, bytes).await { &mut least } else { &mut most }) = bytes;
        }
    })
    .await;
}

/// A path below this one, with the given length in bytes.
fn long(path: &Path, bytes: usize) -> Path {
    /// A name short enough that another one fits below it.
    const NAME: usize = 100;
    let mut path = path.clone();
    while path.as_str().len() + 1 + 2 * NAME < bytes {
        path = path.join(&"x".repeat(NAME)).expect("it is valid");
    }
    let rest = bytes - path.as_str().len() - 1;
    path.join(&"y".repeat(rest)).expect("it is valid")
}

async fn a_text_of_any_length_is_taken_or_refused(world: World) {
    /// Some of them are special in paths, in JSON, or in encodings.
    const STRANGE: [&str; 12] =
        ["", ".", "..", "/", "a/b", "%", "%41", "\0", "\"\\", "é\u{301}", "\u{10ffff}", "-id-"];
    let passers = &Passers::new(&world).await;
    Passing::each(
        Passing::all(&world, passers, "texts", |it| it.texts, "a".to_owned()),
        async |it| {
            let _all = it.up_to_the_limit((1, 256), |bytes| "n".repeat(bytes)).await;
            let _all = it.up_to_the_limit((1, 86), |chars| "%".repeat(chars)).await;
            for (nth, text) in STRANGE.into_iter().enumerate() {
                it.takes(&format!("strange text {nth}"), text.to_owned()).await;
            }
            it.takes("more than a node", "n".repeat(Narrow::DATA + 1)).await;
        },
    )
    .await;
}

async fn data_of_any_size_is_taken_or_refused(world: World) {
    let passers = &Passers::new(&world).await;
    Passing::each(
        Passing::all(&world, passers, "data", |it| it.data, Bytes::from("x")),
        async |it| {
            assert!(it.takes("no data", Bytes::new()).await, "no data is data");
            assert!(it.takes("what is no text", Bytes::from_static(b"\xff\0")).await, "it is data");
            let sizes = (Narrow::DATA - ROOM, Narrow::DATA + 1);
            let all = it.up_to_the_limit(sizes, |bytes| vec![b'x'; bytes].into()).await;
            assert!(!all, "a node has not so much room");
        },
    )
    .await;
}

async fn a_number_of_any_size_is_taken_or_refused(world: World) {
    let ends = [0, u8::MAX.into(), u16::MAX.into(), i32::MAX.into(), u32::MAX.into()];
    let ends = ends.into_iter().chain([i64::MAX.into(), u64::MAX.into()]);
    let ends = ends.flat_map(|end: i128| [end - 1, end, end + 1]);
    let ends: Vec<_> = ends.chain([i32::MIN.into(), i64::MIN.into(), 999, 1_000]).collect();
    let passers = &Passers::new(&world).await;
    Passing::each(Passing::all(&world, passers, "numbers", |it| it.numbers, 1), async |it| {
        for &number in &ends {
            let name = format!("{}{}", if number < 0 { "minus " } else { "" }, number.abs());
            let taken = it.takes(&name, number).await;
            assert!(taken || number != 1, "one is refused");
        }
    })
    .await;
}

async fn a_time_of_any_length_is_taken_or_refused(world: World) {
    const HOUR: Duration = Duration::from_secs(3_600);
    let ends = [
        Duration::ZERO,
        Duration::from_nanos(1),
        Duration::from_millis(1),
        HOUR,
        Duration::from_millis(u64::MAX),
        Duration::from_secs(i64::MAX.unsigned_abs()),
        Duration::MAX,
    ];
    let passers = &Passers::new(&world).await;
    Passing::each(Passing::all(&world, passers, "times", |it| it.times, HOUR), async |it| {
        for time in ends {
            let taken = it.takes(&format!("{time:?}"), time).await;
            assert!(taken || time != HOUR, "an hour is refused");
        }
    })
    .await;
}

async fn a_value_that_cannot_be_read_again_is_in_no_others_way(world: World) {
    let values = [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, -0.0, f64::MIN_POSITIVE, f64::MAX];
    let passers = &Passers::new(&world).await;
    Passing::each(Passing::all(&world, passers, "values", |it| it.values, 1.5), async |it| {
        for (nth, value) in values.into_iter().enumerate() {
            let taken = it.takes(&format!("value {nth}"), value).await;
            assert!(taken || !value.is_finite(), "{value} is refused");
        }
    })
    .await;
}

async fn a_function_that_panics_is_in_no_others_way(world: World) {
    let passers = &Passers::new(&world).await;
    let functions = Passing::all(&world, passers, "functions", |it| it.functions, Trap::disarmed());
    Passing::each(functions, async |it| {
        let taken = it.takes("a panic", Trap::armed()).await;
        assert!(taken, "a function is refused");
    })
    .await;
}
