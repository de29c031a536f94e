//! The debug output of recipes and of their guards.

use synod::Path;
use synod_testkit::recipe::{Act, LABEL, rows};

#[tokio::test(start_paused = true)]
async fn a_recipe_is_shown_by_its_path_and_without_its_label() {
    let client = &synod::connect("mem://shown").await.expect("memory is always there");
    let at = |name: &str| Path::new(&format!("/{name}")).expect("valid");
    let quoted = format!("\"{LABEL}\"");
    for row in rows() {
        let own = synod::connect(&format!("mem://shown-{}", row.module)).await;
        let own = own.expect("memory is always there");
        let made = (row.make)(own, at("shown")).await.expect("memory answers");
        let shown = format!("{made:?}");
        drop(made);
        assert!(shown.contains(row.shown), "{}: {shown}", row.name);
        assert!(shown.len() < 400 && !shown.contains(&quoted), "{}: {shown}", row.name);
        // Labels, tickets and values are not shown as a part of a guard.
        for it in row.uses {
            let Act::Hold { take, .. } = it.act else { continue };
            let path = at(&it.name.replace('/', "-"));
            let proof = take(client.clone(), path).await.expect("it is free");
            let shown = format!("{proof:?}");
            assert!(shown.len() < 800 && !shown.contains(&quoted), "{}: {shown}", it.name);
        }
    }
}
